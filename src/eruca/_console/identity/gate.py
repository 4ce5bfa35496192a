"""The gate: finds the session of a request, and checks tokens and rights. Nothing else decides about a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from eruca._console.identity.rights import Need, User
from eruca._console.identity.sessions import Session, Sessions, is_csrf, make_csrf, make_id

# With the prefix, browsers accept a cookie only from this host and over TLS. Plain HTTP is for loopback.
_SESSION_COOKIES: Final = {False: "eruca_session", True: "__Host-eruca_session"}
_VISITOR_COOKIES: Final = {False: "eruca_visitor", True: "__Host-eruca_visitor"}
_OPENID_COOKIES: Final = {False: "eruca_openid", True: "__Host-eruca_openid"}
#: Requests with this header were not made by the user: they do not keep a session from ending.
BACKGROUND_HEADER: Final = "x-background"
_OPENID_S: Final = 600


class Gate:
    """Checks requests. A route is reached only through it."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    # -- who it is ---------------------------------------------------------------------------------------------------

    async def authenticate(self, request: Request) -> Session | None:
        """Return the session of a request; None if there is none."""
        session_id = request.cookies.get(_SESSION_COOKIES[is_secure(request)], "")
        is_active = BACKGROUND_HEADER not in request.headers
        return await self._sessions.find(session_id, is_active=is_active)

    async def is_current(self, session: Session | None) -> bool:
        """Whether a session has not ended, and its user may still do the same; live views ask."""
        return session is not None and await self._sessions.is_live(session)

    # -- whether its user sent it ------------------------------------------------------------------------------------

    def check_csrf(self, request: Request, session: Session | None, token: str) -> bool:
        """Whether a POST has the token of its session; without one, that of the visitor's log-in page."""
        cookies = _VISITOR_COOKIES if session is None else _SESSION_COOKIES
        cookie = request.cookies.get(cookies[is_secure(request)], "")
        return bool(cookie) and is_csrf(cookie, token)

    def greet(self, request: Request) -> tuple[str, str]:
        """Return an id for a visitor without a session and the token for forms; an id that came is kept."""
        visitor = request.cookies.get(_VISITOR_COOKIES[is_secure(request)], "")[:100] or make_id()
        return visitor, make_csrf(visitor)

    # -- whether the user may ----------------------------------------------------------------------------------------

    def find_refused(self, user: User, need: Need, names: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
        """Return what refuses a request: the kind and name of a topic or group, or two empty texts for the role.

        `names` are all topics and groups that a request names, as (kind, name). None: it is not refused. A request that
        names any needs the right to each; one that names none needs it in general.
        """
        found = list(names)
        for kind, name in found:
            if not user.may(need, **{kind: name}):
                return kind, name
        return None if found or user.may(need) else ("", "")

    # -- cookies -----------------------------------------------------------------------------------------------------

    def remember_session(self, request: Request, response: Response, session_id: str) -> None:
        """Give the browser its session. Only this host gets it, no script reads it, no other site uses it."""
        _put(request, response, _SESSION_COOKIES, session_id)
        _drop(request, response, _VISITOR_COOKIES)

    def remember_visitor(self, request: Request, response: Response, visitor: str) -> None:
        """Give the browser the id that its log-in form belongs to."""
        _put(request, response, _VISITOR_COOKIES, visitor)

    def remember_openid(self, request: Request, response: Response, binding: str) -> None:
        """Give the browser what binds a log-in at the provider to it. It comes back from there, so it is not strict."""
        _put(request, response, _OPENID_COOKIES, binding, same_site="lax", seconds=_OPENID_S)

    def find_openid(self, request: Request) -> str:
        """Return what `remember_openid` gave."""
        return request.cookies.get(_OPENID_COOKIES[is_secure(request)], "")

    def forget(self, request: Request, response: Response) -> None:
        """Take all of it from the browser."""
        for cookies in (_SESSION_COOKIES, _VISITOR_COOKIES, _OPENID_COOKIES):
            _drop(request, response, cookies)


def is_secure(request: Request) -> bool:
    """Whether a request came over TLS."""
    return request.url.scheme == "https"


def find_address(request: Request) -> str:
    """Return the address that a request came from."""
    return request.client.host if request.client is not None else ""


def _put(
    request: Request,
    response: Response,
    names: Mapping[bool, str],
    value: str,
    *,
    same_site: str = "strict",
    seconds: int | None = None,
) -> None:
    secure = is_secure(request)
    response.set_cookie(
        names[secure],
        value,
        max_age=seconds,
        path="/",
        secure=secure,
        httponly=True,
        samesite="lax" if same_site == "lax" else "strict",
    )


def _drop(request: Request, response: Response, names: Mapping[bool, str]) -> None:
    secure = is_secure(request)
    response.delete_cookie(names[secure], path="/", secure=secure, httponly=True, samesite="strict")
