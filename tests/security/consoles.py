"""A running console for tests, users of each role, and a browser without a screen that knows how to log in."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
from starlette.responses import PlainTextResponse, Response

from eruca._admin.admin import Admin
from eruca._console.app import Console, build_app, guard
from eruca._console.clusters import Cluster
from eruca._console.identity.options import IdentityOptions
from eruca._console.identity.origins import Origins
from eruca._console.identity.rights import Grant, Role
from eruca._console.options import ConsoleOptions
from eruca._console.pages.routing import Route
from eruca._console.pages.visit import Shown, Visit
from eruca._console.routes import ROUTES
from eruca._ground.clock import Clock
from eruca._net.tlsoptions import TlsOptions

CLUSTER = "paris"
NOBODY_THERE = "127.0.0.1:1"
PASSWORD = "correct horse battery"
_TOKEN = re.compile(r'name="csrf" value="([0-9a-f]{64})"')


@dataclass
class Running:
    """A console, and who logged in to it."""

    console: Console
    stack: AsyncExitStack
    # What handlers were called with, where the test records them.
    called: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Where it is."""
        return self.console.address

    async def open_browser(self) -> Browser:
        """Return a browser that is not logged in."""
        client = httpx.AsyncClient(base_url=self.address, verify=False, timeout=30)
        return Browser(await self.stack.enter_async_context(client))

    async def log_in(self, name: str, role: Role, grants: Sequence[Grant] = ()) -> Browser:
        """Make a user, and return a browser in which it has logged in and chosen a password."""
        _, password = await self.console.identity.users.create(name, role, grants)
        browser = await self.open_browser()
        await browser.log_in(name, password)
        await browser.choose_password(password)
        return browser

    async def log_in_first(self) -> Browser:
        """Return a browser in which the first user has logged in and chosen a password."""
        password = self.console.first_password
        assert password is not None
        browser = await self.open_browser()
        await browser.log_in("admin", password)
        await browser.choose_password(password)
        return browser


@dataclass
class Browser:
    """Cookies, and the token that the pages of its session have."""

    client: httpx.AsyncClient
    token: str = ""

    @property
    def session(self) -> str:
        """The id of its session."""
        cookies = self.client.cookies
        return cookies.get("eruca_session") or cookies.get("__Host-eruca_session") or ""

    async def get(self, path: str, **more: object) -> httpx.Response:
        """Get a page."""
        return await self.client.get(path, **more)  # type: ignore[arg-type]

    async def post(self, path: str, form: dict[str, str] | None = None, **more: object) -> httpx.Response:
        """Post a form of this session."""
        return await self.client.post(path, data={"csrf": self.token, **(form or {})}, **more)  # type: ignore[arg-type]

    async def read_token(self, path: str) -> str:
        """Return the token in the form of a page."""
        found = _TOKEN.search((await self.get(path)).text)
        assert found is not None, path
        return found[1]

    async def try_to_log_in(self, name: str, password: str, then: str = "/") -> httpx.Response:
        """Send the log-in form."""
        token = await self.read_token("/login")
        form = {"csrf": token, "user": name, "password": password, "next": then}
        return await self.client.post("/login", data=form)

    async def log_in(self, name: str, password: str) -> None:
        """Log in."""
        answer = await self.try_to_log_in(name, password)
        assert answer.status_code == 303, answer.text
        self.token = await self.read_token("/password")

    async def choose_password(self, old: str, new: str = PASSWORD) -> None:
        """Replace the password."""
        answer = await self.post("/password", {"old": old, "new": new, "again": new})
        assert answer.status_code == 303, answer.text
        self.token = await self.read_token("/password")


@asynccontextmanager
async def run_console(
    directory: Path,
    *,
    nameserver: str = NOBODY_THERE,
    identity: IdentityOptions | None = None,
    tls: TlsOptions | None = None,
    bind: str = "127.0.0.1",
    records: bool = False,
    clock: Clock | None = None,
    admin: Admin | None = None,
) -> AsyncIterator[Running]:
    """Run a console. `records`: its handlers do nothing but note that they were called. `admin` replaces that of the
    name server."""
    options = ConsoleOptions(port=0, bind=bind, directory=str(directory))
    cluster = Cluster(CLUSTER, admin or Admin(nameserver), ("-n", nameserver))
    console = Console(options, [cluster], identity=identity, tls=tls, clock=clock)
    async with AsyncExitStack() as stack:
        running = Running(console, stack)
        if records:
            routes = [route if is_needed(route) else replace(route, handler=record(running, route)) for route in ROUTES]
            app = guard(build_app(console.parts, routes), Origins([]))
            console._server._config.app = app
        await console.start()
        stack.push_async_callback(console.stop)
        yield running


def is_needed(route: Route) -> bool:
    """Whether a test with recording handlers needs this one to work, to log in."""
    return route.path in ("/login", "/password")


def record(running: Running, route: Route):  # type: ignore[no-untyped-def]
    """Return a handler that notes that it was called."""

    async def handle(visit: Visit) -> Shown | Response:
        running.called.append((visit.method, route.path, "api" if visit.is_api else "page"))
        return PlainTextResponse("called")

    return handle
