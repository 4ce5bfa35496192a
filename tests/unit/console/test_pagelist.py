"""Every page of the console is among those of which pictures are taken, and which are checked for accessibility."""

from __future__ import annotations

import re

from eruca._console.routes import ROUTES
from tests.console.pagelist import CONFIRMED, LOG_IN, SENT, list_pages
from tests.console.scenery import Scenery

#: Routes that are read and are not pages, and what they are.
_NO_PAGES = {
    "/language/{language}": "leads back to the page it came from",
    "/c/{cluster}/live/overview": "events",
    "/c/{cluster}/live/rates": "events",
    "/c/{cluster}/topics/{topic}/live": "events",
    "/c/{cluster}/tail/events": "events",
    "/c/{cluster}/groups/{group}/charts": "a part of the page of the group",
    "/c/{cluster}/groups/{group}/inside": "a part of the page of the group",
    "/c/{cluster}/doctor/findings": "a part of the page of the doctor",
    "/c/{cluster}/messages/more": "a part of the list of messages",
    "/login/openid": "leads to the provider",
    "/login/openid/callback": "leads to the start page",
    "/api/openapi.json": "a document",
    "/api/session": "a document",
}


def _match(path: str) -> re.Pattern[str]:
    return re.compile(
        "".join("[^/]+" if part.startswith("{") else re.escape(part) for part in re.split(r"({\w+})", path))
    )


def test_every_route_that_is_a_page_is_in_the_list() -> None:
    scenery = Scenery(message_path=("messages", "t", "b", "0", "1"), client="c", rule="1")
    paths = {LOG_IN, *(path.partition("?")[0] for path in list_pages(scenery, "production").values())}
    # The first route that fits a path answers it.
    shown = {next(route.path for route in ROUTES if _match(route.path).fullmatch(path)) for path in paths}
    read = {route.path for route in ROUTES if "GET" in route.methods}
    assert read - shown == _NO_PAGES.keys()
    assert shown <= read


def test_pages_after_a_form_are_in_the_list() -> None:
    pages = list_pages(Scenery(message_path=("messages", "t", "b", "0", "1"), client="c", rule="1"), "production")
    assert pages.keys() >= SENT | CONFIRMED
