"""Logging in and out, and a user's own password and sessions."""

from __future__ import annotations

import math
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from eruca._console.identity.entrance import LogInRefused, Visitor
from eruca._console.identity.gate import find_address
from eruca._console.identity.openid import CALLBACK
from eruca._console.identity.origins import find_path
from eruca._console.identity.rights import Need
from eruca._console.identity.sessions import SessionRow
from eruca._console.pages.forms import Field, FormRefused
from eruca._console.pages.rendering import render
from eruca._console.pages.routing import Route
from eruca._console.pages.tables import Column, make_table, show_table
from eruca._console.pages.visit import Shown, Visit, make_url
from eruca._ground import limits
from eruca.errors import ConfigError, ErucaError, TooManyCalls

_PASSWORD_FIELDS = (
    Field("old", "login.old", "password", default="current-password", required=True, chars_max=1024),
    Field("new", "login.new", "password", default="new-password", required=True, hint="login.new.hint", chars_max=1024),
    Field("again", "login.again", "password", default="new-password", required=True, chars_max=1024),
)
_SESSION_COLUMNS: tuple[Column[SessionRow], ...] = (
    Column("agent", "login.agent", lambda row: row.agent),
    Column("address", "login.address", lambda row: row.address, kind="code"),
    Column("made_at", "login.began", lambda row: row.made_at, kind="time"),
    Column("seen_at", "login.seen", lambda row: row.seen_at, kind="time"),
)


async def log_in(visit: Visit) -> Shown | Response:
    """Show the log-in page, and let a user in who has the right password."""
    then = find_path(visit.query.get("next", "") or str(visit.form.get("next", "")))
    if visit.method == "GET":
        return RedirectResponse(then, HTTPStatus.SEE_OTHER) if visit.session is not None else _show_login(visit, then)
    name, password = _read_text(visit, "user").strip(), _read_text(visit, "password")
    identity = visit.parts.identity
    try:
        session_id = await identity.entrance.log_in(name, password, find_visitor(visit))
    except LogInRefused as error:
        return _refuse(visit, then, error)
    except TooManyCalls:
        return _show_login(visit, then, visit.text("login.busy"), HTTPStatus.SERVICE_UNAVAILABLE)
    return _enter(visit, session_id, RedirectResponse(then, HTTPStatus.SEE_OTHER))


async def go_to_provider(visit: Visit) -> Response | Shown:
    """Send the browser to the provider of OpenID Connect."""
    openid = visit.parts.identity.openid
    if openid is None:
        raise HTTPException(404, visit.text("errors.page"))
    then = find_path(visit.query.get("next", ""))
    try:
        address, binding = await openid.begin(then, find_address(visit.request))
    except ErucaError as error:
        return _show_login(visit, then, str(error), HTTPStatus.BAD_GATEWAY)
    answer = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    visit.parts.identity.gate.remember_openid(visit.request, answer, binding)
    return answer


async def come_from_provider(visit: Visit) -> Response | Shown:
    """Let a user in whom the provider has proved."""
    identity = visit.parts.identity
    if identity.openid is None:
        raise HTTPException(404, visit.text("errors.page"))
    binding = identity.gate.find_openid(visit.request)
    try:
        proved, then = await identity.openid.finish(dict(visit.query), binding)
        session_id = await identity.entrance.welcome(proved, find_visitor(visit))
    except ErucaError as error:
        return _show_login(visit, "/", str(error), HTTPStatus.FORBIDDEN)
    # The browser comes from another site, so it sends no strict cookie with what it is redirected to. A page leads on.
    return _enter(visit, session_id, HTMLResponse(render(visit, "login/onwards.html", {"then": then})))


async def log_out(visit: Visit) -> Response:
    """End this session, or all of this user."""
    assert visit.session is not None
    everywhere = bool(visit.form.get("everywhere"))
    await visit.parts.identity.entrance.log_out(visit.session, find_visitor(visit), everywhere=everywhere)
    answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    # Pages that the browser has kept are gone too.
    answer.headers["Clear-Site-Data"] = '"cache"'
    visit.parts.identity.gate.forget(visit.request, answer)
    return answer


async def change_password(visit: Visit) -> Shown | Response:
    """Let a user choose a password; all sessions end, and a new one begins."""
    if not visit.user.is_local:
        raise ConfigError(visit.text("login.not_here"), hint=visit.text("login.not_here.hint"))
    if visit.method == "GET":
        return visit.show("login/password.html", fields=_PASSWORD_FIELDS, few=limits.CONSOLE_PASSWORD_CHARS_MIN)
    old, new, again = (_read_text(visit, field.name) for field in _PASSWORD_FIELDS)
    if new != again:
        raise FormRefused({"again": visit.text("login.differs")})
    identity = visit.parts.identity
    try:
        session_id = await identity.entrance.change_password(visit.user, old, new, find_visitor(visit))
    except LogInRefused as error:
        raise FormRefused({"old": visit.text("login.wait", seconds=math.ceil(error.wait_s))}) from error
    return _enter(visit, session_id, RedirectResponse("/", HTTPStatus.SEE_OTHER))


async def show_profile(visit: Visit) -> Shown | Response:
    """Show who one is here, what one may do, and one's sessions."""
    rows = await visit.parts.identity.sessions.list(visit.user.name)
    table = make_table(visit, "sessions", _SESSION_COLUMNS, rows, sort="-seen_at")
    return show_table(visit, "login/profile.html", table)


def find_visitor(visit: Visit) -> Visitor:
    """Return where a request came from."""
    return Visitor(find_address(visit.request), visit.request.headers.get("user-agent", ""))


def _read_text(visit: Visit, name: str) -> str:
    found = visit.form.get(name, "")
    return found if isinstance(found, str) else ""


def _enter(visit: Visit, session_id: str, answer: Response) -> Response:
    answer.headers["Cache-Control"] = "no-store"
    visit.parts.identity.gate.remember_session(visit.request, answer, session_id)
    return answer


def _refuse(visit: Visit, then: str, error: LogInRefused) -> Shown:
    if error.wait_s <= 0:
        return _show_login(visit, then, visit.text("login.wrong"), HTTPStatus.UNAUTHORIZED)
    seconds = math.ceil(error.wait_s)
    text = visit.text("login.wait", seconds=seconds)
    return _show_login(visit, then, text, HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": str(seconds)})


def _show_login(
    visit: Visit,
    then: str,
    error: str = "",
    status: HTTPStatus = HTTPStatus.OK,
    headers: dict[str, str] | None = None,
) -> Shown:
    gate = visit.parts.identity.gate
    visitor, token = gate.greet(visit.request)
    carrier = Response()
    gate.remember_visitor(visit.request, carrier, visitor)
    openid = make_url("login", "openid", next=then) if visit.parts.identity.openid is not None else ""
    context = {"then": then, "error": error, "token": token, "openid": openid, "user": _read_text(visit, "user")}
    return Shown(
        "login/login.html",
        {"error": error},
        context,
        status,
        headers={"Set-Cookie": carrier.headers["set-cookie"], **(headers or {})},
    )


ROUTES = (
    Route("/login", log_in, Need.PUBLIC, ("GET", "POST"), in_api=False, body_max=16 * 1024),
    Route("/login/openid", go_to_provider, Need.PUBLIC, in_api=False),
    Route(CALLBACK, come_from_provider, Need.PUBLIC, in_api=False),
    Route("/logout", log_out, Need.LOGGED_IN, ("POST",), in_api=False, body_max=16 * 1024),
    Route("/password", change_password, Need.LOGGED_IN, ("GET", "POST"), in_api=False, body_max=16 * 1024),
    Route("/profile", show_profile, Need.VIEW, in_api=False),
)
