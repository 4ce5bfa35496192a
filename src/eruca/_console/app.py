"""The console as a server: builds its parts bottom-up, serves them with uvicorn, and stops them in reverse order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as Mounted
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eruca._admin.plans import Plans
from eruca._console.clusters import Cluster, Clusters
from eruca._console.identity import audit
from eruca._console.identity.gate import Gate
from eruca._console.options import ConsoleOptions
from eruca._console.pages.live import Streams
from eruca._console.pages.page import Frame
from eruca._console.pages.routing import Route
from eruca._console.pages.static import serve_static
from eruca._console.pages.visit import Parts, make_url
from eruca._console.routes import ROUTES
from eruca._console.state import Schema, State
from eruca.errors import ConnectFailed

#: The tables of all subjects.
SCHEMAS: tuple[Schema, ...] = (audit.SCHEMA,)
_CONNECTIONS_MAX = 500
_STOP_S = 3
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


class Console:
    """The console of some clusters."""

    def __init__(self, options: ConsoleOptions, clusters: Sequence[Cluster]) -> None:
        self.options = options
        state = State(Path(options.directory), SCHEMAS)
        self.parts = Parts(
            options=options,
            state=state,
            clusters=Clusters({cluster.name: cluster for cluster in clusters}),
            gate=Gate(),
            audit=audit.Audit(state),
            plans=Plans(),
            streams=Streams(),
        )
        self.app = build_app(self.parts, ROUTES)
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._address = ""

    @property
    def address(self) -> str:
        """Where it is: `http://127.0.0.1:8080`; empty while it does not run."""
        return self._address

    async def start(self) -> None:
        """Open the file, start the admins and listen. Raises ConnectFailed if the port is taken."""
        listening = _listen(self.options.bind, self.options.port)
        try:
            await self.parts.state.open()
            await self.parts.clusters.start()
        except BaseException:
            listening.close()
            raise
        host, port = listening.getsockname()[:2]
        self._address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._server = _Server(
            uvicorn.Config(
                self.app,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                limit_concurrency=_CONNECTIONS_MAX,
                timeout_graceful_shutdown=_STOP_S,
            )
        )
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))

    async def stop(self) -> None:
        """Stop listening, end live views, close the admins and the file. Safe to call after a failed start."""
        self._address = ""
        self.parts.streams.close()
        server, self._server = self._server, None
        serving, self._serving = self._serving, None
        if server is not None and serving is not None:
            server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
        await self.parts.clusters.stop()
        await self.parts.state.close()

    def look_again(self) -> None:
        """Nothing of it is read from files that change while it runs."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command that runs this server."""
        yield


def build_app(parts: Parts, routes: Sequence[Route]) -> ASGIApp:
    """Return the application of a list of routes."""
    frame = Frame(parts, tuple(routes))
    first = make_url("c", parts.clusters.first.name, "topics")

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
    return add_headers(Starlette(routes=mounted))


def add_headers(app: ASGIApp) -> ASGIApp:
    """Return the application with the headers that tell browsers what a page may do."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_more(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                more = [header for header in _RAW_HEADERS if header[0] not in present]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await app(scope, receive, send_more if scope["type"] == "http" else send)

    return call


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ConnectFailed(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listening
