"""The frame around every handler: log-in, rights, CSRF, the form, errors as pages, and the shape of the answer."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import Message

from eruca._admin.plain import hide_secrets, to_plain
from eruca._admin.plans import PlanRefused
from eruca._console.identity.origins import find_path
from eruca._console.identity.rights import Need
from eruca._console.pages.forms import FormRefused
from eruca._console.pages.navigation import list_navigation
from eruca._console.pages.rendering import render
from eruca._console.pages.routing import Route
from eruca._console.pages.texts import choose_language, texts_of
from eruca._console.pages.visit import Parts, Shown, Visit
from eruca._console.serving import note_session
from eruca._ground import limits
from eruca.errors import CallTimeout, ConfigError, ErucaError, InvalidName, NetError, NoRoute, RequestRefused

log = logging.getLogger(__name__)
# It warns about every form that is not valid, which anybody can send.
logging.getLogger("python_multipart").setLevel(logging.ERROR)

#: Cookies of a browser's choices; they are not secret.
LANGUAGE_COOKIE = "eruca_language"
_FIELDS_MAX = 2000
_FILES_MAX = 4
_UNSAFE = frozenset({"POST"})
# A page has the data of a cluster: no cache may keep it.
_NOT_KEPT = {"Cache-Control": "no-store", "Vary": "HX-Request"}
# What an error of the cluster is as a status of HTTP; the first that fits.
_STATUSES: tuple[tuple[type[ErucaError], int], ...] = (
    (NoRoute, 404),
    (PlanRefused, 409),
    (FormRefused, 400),
    (ConfigError, 400),
    (InvalidName, 400),
    (CallTimeout, 504),
    (NetError, 502),
    (RequestRefused, 502),
)


class Frame:
    """Answers requests by the declared routes."""

    def __init__(self, parts: Parts, routes: tuple[Route, ...]) -> None:
        self._parts = parts
        self._routes = routes

    async def answer(self, route: Route, request: Request, *, is_api: bool = False) -> Response:
        """Answer one request."""
        language = choose_language(request.headers.get("accept-language", ""), request.cookies.get(LANGUAGE_COOKIE, ""))
        request.scope["path_quoted"] = quote(request.scope["path"], safe="/:@!$&'()*+,;=~")
        visit = Visit(request, route, self._parts, None, texts_of(language), is_api=is_api)
        async with AsyncExitStack() as stack:
            return await self._answer(visit, stack)

    async def _answer(self, visit: Visit, stack: AsyncExitStack) -> Response:
        """Answer one request; what has to be closed afterwards is put on the stack."""
        request = visit.request
        try:
            visit = replace(visit, session=await self._parts.identity.gate.authenticate(request))
            if visit.session is not None:
                note_session(request)
            refusal = _ask_to_log_in(visit)
            if refusal is not None:
                return refusal
            visit = await self._check(visit, stack)
            return self._write(*await self._call(visit))
        except (ErucaError, HTTPException) as error:
            return self._write(visit, explain(visit, error))
        except Exception:
            log.exception("%s %s failed", request.method, request.scope["path"])
            return self._write(visit, explain(visit, HTTPException(500)))

    async def answer_unknown(self, request: Request) -> Response:
        """Answer a request for a path that does not exist."""
        return await self.answer(Route("/{path:path}", _find_nothing, Need.LOGGED_IN, in_api=False), request)

    async def _check(self, visit: Visit, stack: AsyncExitStack) -> Visit:
        """Return the visit with its cluster and form. Raises HTTPException for what may not be."""
        request, route = visit.request, visit.route
        name = request.path_params.get("cluster")
        if name is not None:
            cluster = self._parts.clusters.find(name)
            if cluster is None:
                raise HTTPException(404, visit.text("errors.cluster", name=name))
            visit = replace(visit, _cluster=cluster)
        if request.method in _UNSAFE:
            form = await _read_in_time(request, route.body_max)
            # The files that were uploaded.
            stack.push_async_callback(form.close)
            visit = replace(visit, form=form)
            token = request.headers.get("x-csrf-token") or str(visit.form.get("csrf", ""))
            if not self._parts.identity.gate.check_csrf(request, visit.session, token):
                raise HTTPException(403, visit.text("errors.csrf"))
        if route.need > Need.PUBLIC:
            self._require_right(visit)
        return visit

    def _require_right(self, visit: Visit) -> None:
        """Raise HTTPException unless the user may do this to each named topic and group."""
        route = visit.route
        names = [(kind, name) for parameter, kind in route.names.items() for name in _find_names(visit, parameter)]
        refused = self._parts.identity.gate.find_refused(visit.user, route.need, names)
        if refused is None:
            return
        kind, name = refused
        if kind:
            raise HTTPException(403, visit.text(f"errors.right.{kind}", name=name))
        raise HTTPException(403, visit.text("errors.right", need=visit.text(f"roles.{route.need.name.lower()}")))

    async def _call(self, visit: Visit) -> tuple[Visit, Shown | Response]:
        """Call the handler; a form that was refused is shown again, with what is wrong."""
        try:
            return visit, await visit.route.handler(visit)
        except ErucaError as error:
            if visit.method != "POST" or visit.is_api or "GET" not in visit.route.methods:
                raise
            errors = error.errors if isinstance(error, FormRefused) else {"": str(error.args[0])}
            again = replace(visit, errors=errors, hint=error.hint)
            shown = await again.route.handler(again)
            return again, replace(shown, status=find_status(error)) if isinstance(shown, Shown) else shown

    def _write(self, visit: Visit, shown: Shown | Response) -> Response:
        if isinstance(shown, Response):
            return shown
        if visit.is_api:
            return JSONResponse(
                hide_secrets(to_plain(shown.value)), shown.status, headers={**_NOT_KEPT, **shown.headers}
            )
        context = {
            "value": shown.value,
            "problems": shown.problems,
            "frame": "fragment.html" if visit.is_htmx else "base.html",
            "navigation": list_navigation(visit, self._routes),
            **shown.context,
        }
        headers = {**_NOT_KEPT, **shown.headers}
        return HTMLResponse(render(visit, shown.template, context), shown.status, headers=headers)


def _ask_to_log_in(visit: Visit) -> Response | None:
    """Return the way to the log-in, or to the choice of a password, for a visitor who needs one."""
    request, need = visit.request, visit.route.need
    if need is Need.PUBLIC or (visit.session is not None and (need is Need.LOGGED_IN or not visit.user.must_change)):
        return None
    if visit.is_api:
        return JSONResponse({"error": visit.text("errors.log_in")}, 401)
    wanted = request.scope["path_quoted"] if request.method in ("GET", "HEAD") else "/"
    if request.url.query and wanted != "/":
        wanted += f"?{request.url.query}"
    if visit.session is None and request.headers.get("sec-fetch-site") == "cross-site":
        # A link elsewhere leads here, and browsers send no cookie with it. They do when a page of ours leads on.
        return HTMLResponse(render(visit, "login/onwards.html", {"then": find_path(wanted)}), headers=_NOT_KEPT)
    there = "/password" if visit.session is not None else f"/login?next={quote(wanted, safe='')}"
    if visit.is_htmx:
        return Response(status_code=204, headers={"HX-Redirect": there})
    return RedirectResponse(there, 303)


async def _find_nothing(visit: Visit) -> Shown:
    raise HTTPException(404, visit.text("errors.page"))


def explain(visit: Visit, error: ErucaError | HTTPException) -> Shown:
    """Return the page of an error: what happened and what to do."""
    if isinstance(error, HTTPException):
        status, hint = error.status_code, ""
        text = visit.text("errors.broken") if status >= 500 else error.detail
    else:
        status, text, hint = find_status(error), str(error.args[0]) if error.args else str(error), error.hint
    key = f"errors.title.{status}"
    title = visit.text(key if visit.texts.has(key) else "errors.title")
    value = {"error": text, "hint": hint, "status": status}
    return Shown("error.html", value, {"title": title, "error_text": text, "hint": hint}, status)


def find_status(error: ErucaError) -> int:
    """Return the status of HTTP for an error of ours."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def _find_names(visit: Visit, parameter: str) -> list[str]:
    """Return the values of a parameter: in the path, or else in the form and in the query.

    Blanks around them are removed, as handlers do: otherwise a blank in front of a name would hide its prefix.
    """
    if parameter in visit.request.path_params:
        return [str(visit.request.path_params[parameter]).strip()]
    found = [*visit.form.getlist(parameter), *visit.query.getlist(parameter)]
    return [name for each in found if isinstance(each, str) and (name := each.strip())]


async def _read_in_time(request: Request, body_max: int) -> FormData:
    """Return the fields of a form. Raises HTTPException: 408 if it does not arrive, 400 if it cannot be read.

    Anybody can send one, so nothing about it is logged.
    """
    try:
        async with asyncio.timeout(limits.CONSOLE_FORM_SECONDS_MAX):
            return await read_form(request, body_max)
    except TimeoutError:
        raise HTTPException(408, "the form did not arrive in time") from None
    except (ClientDisconnect, ValueError, RecursionError) as error:
        raise HTTPException(400, f"the form cannot be read: {error}") from None


async def read_form(request: Request, body_max: int) -> FormData:
    """Return the fields of a form, or those of a JSON object.

    Raises HTTPException (413) for one that is too large, and ClientDisconnect, ValueError or RecursionError.
    """
    receive, size = request.receive, 0

    async def receive_bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > body_max:
            raise HTTPException(413, f"the form is larger than {body_max} bytes")
        return message

    bounded = Request(request.scope, receive_bounded)
    if bounded.headers.get("content-type", "").partition(";")[0].strip() == "application/json":
        found = msgspec.json.decode(await bounded.body() or b"{}", type=dict[str, Any])
        return FormData([(name, item) for name, value in found.items() for item in _write_items(value)])
    return await bounded.form(max_files=_FILES_MAX, max_fields=_FIELDS_MAX)


def _write_items(value: Any) -> list[str]:
    """Return a value of JSON as the texts of form fields: one, or one for each member of a list."""
    return [_write_item(each) for each in (value if isinstance(value, list) else [value]) if each is not None]


def _write_item(value: Any) -> str:
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_plain else msgspec.json.encode(value).decode()
