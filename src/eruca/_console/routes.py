"""All routes of the console."""

from __future__ import annotations

from eruca._console import api
from eruca._console.accounts import pages as accounts
from eruca._console.alarms import pages as alarms
from eruca._console.auditing import pages as auditing
from eruca._console.brokers import pages as brokers
from eruca._console.deadletters import pages as deadletters
from eruca._console.delayed import pages as delayed
from eruca._console.doctor import pages as doctor
from eruca._console.groups import pages as groups
from eruca._console.login import pages as login
from eruca._console.messages import pages as messages
from eruca._console.overview import pages as overview
from eruca._console.pages import choices
from eruca._console.pages.routing import Route
from eruca._console.tailing import pages as tailing
from eruca._console.topics import changing as topic_changes
from eruca._console.topics import pages as topics
from eruca._console.traces import pages as traces
from eruca._console.transactions import pages as transactions
from eruca._console.users import masks
from eruca._console.users import pages as users

ROUTES: tuple[Route, ...] = (
    *choices.ROUTES,
    *overview.ROUTES,
    *brokers.ROUTES,
    *topic_changes.ROUTES,
    *topics.ROUTES,
    *groups.ROUTES,
    *alarms.ROUTES,
    *doctor.ROUTES,
    *messages.ROUTES,
    *tailing.ROUTES,
    *traces.ROUTES,
    *deadletters.ROUTES,
    *delayed.ROUTES,
    *transactions.ROUTES,
    *accounts.ROUTES,
    *login.ROUTES,
    *users.ROUTES,
    *masks.ROUTES,
    *auditing.ROUTES,
    *api.ROUTES,
)
