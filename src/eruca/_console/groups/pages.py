"""All pages of groups."""

from __future__ import annotations

from eruca._console.groups import detail, listing, moving
from eruca._console.pages.routing import Route

ROUTES: tuple[Route, ...] = (*listing.ROUTES, *detail.ROUTES, *moving.ROUTES)
