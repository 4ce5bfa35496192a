"""A console as a process, and a browser that uses it: what the tests of pages have in common."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, StorageState, StorageStateCookie, expect

from eruca._console.pages.visit import make_url
from tests.integration.cli.upprocess import make_command, make_environment
from tests.interop.javapeer import START_SECONDS_MAX, JavaProcess, PeerError
from tests.needs import expect_need
from tests.patience import PATIENCE_S

Answer = TypeVar("Answer")

PASSWORD: Final = "correct horse battery staple"
ADMIN: Final = "admin"
CHROMIUM_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_PATIENCE_MS: Final = 1000 * PATIENCE_S
_POLL_S: Final = 0.05


class ConsoleProcess(JavaProcess):
    """`eruca console` with its own directory and port; `options` are options of the console by their names."""

    def __init__(self, home: Path, clusters: Mapping[str, str], options: Mapping[str, object] | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        wanted = {"consoleListenPort": 0, "consoleDirectory": home / "console", **(options or {})}
        command = make_command("console", "-o", "json")
        for name, address in clusters.items():
            command += ["--cluster", f"{name}={address}"]
        for key, value in wanted.items():
            command += ["--option", f"{key}={value}"]
        super().__init__(command, home / "console.log", talks=True)
        try:
            line = self.wait_for(lambda text: text.startswith("{"), START_SECONDS_MAX)
        except PeerError:
            self.__exit__(None, None, None)
            raise
        told: dict[str, Any] = json.loads(self.lines[line])
        self.address = str(told["console"])
        self.first_password = str(told["first_password"] or "")

    def list_complaints(self) -> list[str]:
        """Errors and exceptions it has written to its log."""
        text = self.log.with_suffix(".err").read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if re.search(r"\bERROR\b|Traceback|Error:", line)]


def launch(playwright: Playwright) -> Browser:
    """Start the browser of the system."""
    expect_need("chromium")
    expect.set_options(timeout=_PATIENCE_MS)
    path = shutil.which("chromium")
    assert path is not None
    return playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))


def log_in(client: httpx.Client, user: str, password: str) -> None:
    """Log in without a browser."""
    page = client.get("/login")
    answer = client.post("/login", data={"csrf": read_token(page.text), "user": user, "password": password})
    assert answer.status_code == 303, answer.text


def read_token(page: str) -> str:
    """Return the token of the first form of a page."""
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None, page
    return found[1]


def choose_password(client: httpx.Client, first: str) -> None:
    """Log in as the first administrator without a browser, and choose a password instead of the one-time one."""
    log_in(client, ADMIN, first)
    token = read_token(client.get("/password").text)
    answer = client.post("/password", data={"csrf": token, "old": first, "new": PASSWORD, "again": PASSWORD})
    assert answer.status_code == 303, answer.text


def choose_first_password(console: ConsoleProcess) -> StorageState:
    """Log in as the first administrator and choose a password; returns the cookies of the session for a browser."""
    with httpx.Client(base_url=console.address, timeout=PATIENCE_S) as client:
        choose_password(client, console.first_password)
        cookies: list[StorageStateCookie] = [
            {
                "name": each.name,
                "value": each.value or "",
                "domain": "127.0.0.1",
                "path": "/",
                "expires": -1,
                "httpOnly": True,
                "secure": False,
                "sameSite": "Strict",
            }
            for each in client.cookies.jar
        ]
    return {"cookies": cookies, "origins": []}


class Visitor:
    """A user with a browser of their own. Whatever the browser complains about is kept in `complaints`.

    `path("topics", name)` is the address of a page of the cluster.
    """

    def __init__(self, context: BrowserContext, address: str, cluster: str) -> None:
        self.context = context
        self.address = address
        self.cluster = cluster
        self.complaints: list[str] = []
        # Patterns of complaints that a test expects: the status of a page that it is refused.
        self.expected: list[str] = []
        context.set_default_timeout(_PATIENCE_MS)
        self.page = self.open_page()

    def open_page(self) -> Page:
        """Open another tab."""
        page = self.context.new_page()
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.on("requestfailed", lambda request: self._note("failed", f"{request.url}: {request.failure}"))
        return page

    def _note(self, kind: str, text: str) -> None:
        # A live view is closed when its page is left.
        if kind in ("error", "warning", "failed") and "ERR_ABORTED" not in text:
            self.complaints.append(f"{kind}: {text}")

    def list_complaints(self) -> list[str]:
        """What the browser complained about and no test expected."""
        return [text for text in self.complaints if not any(re.search(each, text) for each in self.expected)]

    def path(self, *parts: str, **query: object) -> str:
        """Return the address of a page of the cluster."""
        return self.address + make_url("c", self.cluster, *parts, **query)

    def go(self, *parts: str, **query: object) -> Page:
        """Open a page of the cluster."""
        self.page.goto(self.path(*parts, **query))
        return self.page

    def log_in(self, user: str, password: str) -> None:
        """Log in; ends at the page that the console shows then."""
        self.page.goto(f"{self.address}/login")
        self.page.locator("#user").fill(user)
        self.page.locator("#password").fill(password)
        self.page.locator("button[type=submit]").click()
        self.page.wait_for_url(lambda url: "/login" not in url)

    def choose_password(self, old: str, new: str) -> None:
        """Choose a password, as after the first log-in."""
        self.page.goto(f"{self.address}/password")
        for name, text in (("old", old), ("new", new), ("again", new)):
            self.page.locator(f"[name={name}]").fill(text)
        self.page.locator("main button[type=submit]").click()
        self.page.wait_for_url(lambda url: "/password" not in url)

    def confirm(self, typed: str = "") -> None:
        """Confirm the change that is shown, typing the name if it asks for it; the result is shown then."""
        if typed:
            self.page.locator("#confirm").fill(typed)
        self.page.locator("form.confirm button[type=submit]").click()
        expect(self.page.locator("form.confirm")).to_have_count(0)


def run_eruca(*arguments: str | Path, stdin: str = "") -> str:
    """Run a command of `eruca` and return what it prints."""
    done = subprocess.run(
        make_command(*arguments),
        input=stdin,
        env=make_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def poll(ask: Callable[[], Answer], is_wanted: Callable[[Answer], bool], what: str) -> Answer:
    """Ask repeatedly until the answer is the wanted one; returns it."""
    deadline, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while not is_wanted(answer := ask()):
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s, but {answer!r}"
        pause.wait(_POLL_S)
    return answer
