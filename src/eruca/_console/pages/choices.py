"""The language of a visitor, kept in a cookie."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from eruca._console.identity.origins import find_path
from eruca._console.identity.rights import Need
from eruca._console.pages.page import LANGUAGE_COOKIE
from eruca._console.pages.routing import Route
from eruca._console.pages.texts import LANGUAGES
from eruca._console.pages.visit import Visit

_YEAR_S = 365 * 86_400


async def choose_language(visit: Visit) -> Response:
    """Remember a language and return to the page where it was chosen."""
    language = visit.path["language"]
    if language not in LANGUAGES:
        raise HTTPException(404, visit.text("errors.page"))
    answer = RedirectResponse(find_path(visit.query.get("next", "")), 303)
    answer.set_cookie(LANGUAGE_COOKIE, language, max_age=_YEAR_S, httponly=True, samesite="lax")
    return answer


ROUTES = (Route("/language/{language}", choose_language, Need.PUBLIC),)
