"""The console as a server: builds its parts bottom-up, serves them, and stops them in reverse order."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route as Mounted
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eruca._admin.plans import Plans
from eruca._admin.results import Undo
from eruca._console.brokers.reading import OptionMeaning
from eruca._console.clusters import Cluster, Clusters
from eruca._console.identity.identity import Identity
from eruca._console.identity.options import IdentityOptions
from eruca._console.identity.origins import Origins, read_headers
from eruca._console.identity.tables import IDENTITY
from eruca._console.messages.parts import MessageParts
from eruca._console.messages.saved import FILTERS, SavedFilters
from eruca._console.messages.schemas import load_decoder
from eruca._console.options import ConsoleOptions
from eruca._console.pages.live import Streams
from eruca._console.pages.page import Frame
from eruca._console.pages.rendering import load_files
from eruca._console.pages.routing import Route
from eruca._console.pages.static import serve_static
from eruca._console.pages.visit import Parts, make_url
from eruca._console.routes import ROUTES
from eruca._console.serving import WebServer
from eruca._console.state import Schema, State
from eruca._console.topics import favourites
from eruca._console.watching import alarmtables, history
from eruca._console.watching.options import WatchingOptions
from eruca._console.watching.watching import Watching
from eruca._ground.clock import Clock, SystemClock
from eruca._net.certificates import list_own_names
from eruca._net.tls import ServerTls
from eruca._net.tlsoptions import TlsMode, TlsOptions

#: The tables of all subjects.
SCHEMAS: tuple[Schema, ...] = (IDENTITY, history.SCHEMA, alarmtables.SCHEMA, favourites.SCHEMA, FILTERS)
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
#: Over TLS: for a year, browsers reach this host over TLS only. Not those below it, which are others' affairs.
_SECURE_HEADERS = [(b"strict-transport-security", b"max-age=31536000")]


class Console:
    """The console of some clusters."""

    def __init__(
        self,
        options: ConsoleOptions,
        clusters: Sequence[Cluster],
        meanings: Sequence[OptionMeaning] = (),
        identity: IdentityOptions | None = None,
        tls: TlsOptions | None = None,
        clock: Clock | None = None,
        watching: WatchingOptions | None = None,
        list_undo: Callable[[Sequence[Undo]], list[list[str]]] = lambda undo: [],
    ) -> None:
        self.options = options
        identity, tls = identity or IdentityOptions(), tls or TlsOptions()
        state = State(Path(options.directory), SCHEMAS)
        schemas = Path(options.schemas) if options.schemas else None
        self.identity = Identity(identity, state, clock or SystemClock())
        self.parts = Parts(
            options=options,
            state=state,
            clusters=Clusters({cluster.name: cluster for cluster in clusters}),
            identity=self.identity,
            plans=Plans(),
            streams=Streams(),
            watching=Watching(clusters, state, watching or WatchingOptions(), url=identity.url),
            list_undo=list_undo,
            routes=ROUTES,
            favourites=favourites.Favourites(state),
            meanings={each.key: each for each in meanings},
            messages=MessageParts(saved=SavedFilters(state), decoder=load_decoder(schemas)),
        )
        origins = Origins([*identity.list_hosts(), *list_own_names(options.bind)])
        self.app = guard(build_app(self.parts, ROUTES), origins)
        self._scheme = "https" if tls.mode is TlsMode.ENFORCING else "http"
        self._server = WebServer(self.app, ServerTls(tls, options.bind), proxies=identity.proxies)
        #: The one-time password of the first user, after the first start. It is shown to the operator once.
        self.first_password: str | None = None

    @property
    def address(self) -> str:
        """Where it is: `http://127.0.0.1:8080`; empty while it does not run."""
        host, port = self.options.bind, self._server.port
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{port}" if port else ""

    async def start(self) -> None:
        """Open the file, start the admins and listen. Raises ConnectFailed if the port is taken."""
        await asyncio.to_thread(load_files)
        await self.parts.state.open()
        self.first_password = await self.identity.start()
        await self.parts.clusters.start()
        await self.parts.watching.start()
        await self._server.start(self.options.bind, self.options.port)

    async def stop(self) -> None:
        """Stop listening, end live views, close the admins and the file. Safe to call after a failed start."""
        self.parts.streams.close()
        await self._server.stop()
        await self.parts.watching.stop()
        await self.parts.clusters.stop()
        await self.identity.stop()
        await self.parts.state.close()

    def look_again(self) -> None:
        """Check the certificates for changes now."""
        self._server.look_again()


def build_app(parts: Parts, routes: Sequence[Route]) -> ASGIApp:
    """Return the application of a list of routes."""
    frame = Frame(parts, tuple(routes))
    first = make_url("c", parts.clusters.first.name)

    async def go_home(request: Request) -> Response:
        return RedirectResponse(first, 303)

    mounted = [Mounted("/", go_home), Mounted("/static/{name}", serve_static)]
    for route in routes:
        methods = list(route.methods)
        answer = functools.partial(frame.answer, route)
        mounted.append(Mounted(route.path, answer, methods=methods))
        if route.in_api and route.path.startswith("/c/"):
            answer_api = functools.partial(frame.answer, route, is_api=True)
            mounted.append(Mounted(f"/api{route.path}", answer_api, methods=methods))
    mounted.append(Mounted("/{path:path}", frame.answer_unknown))
    return Starlette(routes=mounted)


def guard(app: ASGIApp, origins: Origins) -> ASGIApp:
    """Return the application behind the checks of Host and Origin, with headers that tell browsers what pages may do.

    This is around everything, also static files and paths that do not exist.
    """

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        is_secure = scope["scheme"] == "https"
        wanted = [*_RAW_HEADERS, *(_SECURE_HEADERS if is_secure else ())]

        async def send_more(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                more = [header for header in wanted if header[0] not in present]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        assert scope["type"] == "http"
        headers = read_headers(scope["headers"])
        fault = "a header comes twice" if headers is None else ""
        fault = fault or origins.find_fault(scope["method"], headers or {}, secure=is_secure)
        answer = app if not fault else PlainTextResponse(f"refused: {fault}\n", 403)
        await answer(scope, receive, send_more)

    return call
