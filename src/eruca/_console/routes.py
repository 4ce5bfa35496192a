"""All routes of the console."""

from __future__ import annotations

from eruca._console.brokers import pages as brokers
from eruca._console.pages import choices
from eruca._console.pages.routing import Route
from eruca._console.topics import changing as topic_changes
from eruca._console.topics import pages as topics

ROUTES: tuple[Route, ...] = (*choices.ROUTES, *brokers.ROUTES, *topic_changes.ROUTES, *topics.ROUTES)
