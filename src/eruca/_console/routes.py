"""All routes of the console."""

from __future__ import annotations

from eruca._console.pages import choices
from eruca._console.pages.routing import Route
from eruca._console.topics import pages as topics

ROUTES: tuple[Route, ...] = (*choices.ROUTES, *topics.ROUTES)
