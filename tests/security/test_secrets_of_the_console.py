"""A console with everything that has a secret, at the highest log level; then a search in all that it leaves behind."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from eruca._cli.optionlist import Role, options_of
from eruca._ground.config import HIDDEN
from tests.integration.cli.upprocess import make_command, make_environment, run_eruca
from tests.patience import PATIENCE_S
from tests.security.consoles import CLUSTER
from tests.security.test_secrets import MARK, find_marks, read_all

OPTIONS = {
    "consoleListenPort": 0,
    "consoleUrl": "http://127.0.0.1:8080",
    "consoleOidcIssuer": "https://127.0.0.1:1/realm",
    "consoleOidcClientId": "eruca",
    "consoleOidcRoles": "*=viewer",
    "alarmMailHost": "127.0.0.1",
    "alarmMailPort": 1,
    "alarmMailUser": "ops",
}
NOBODY_THERE = "127.0.0.1:1"
_TOKEN = re.compile(r'name="csrf" value="([0-9a-f]{64})"')
# A path of a URL often is a secret.
CHANNELS = {
    "hook": ("webhook", f"https://127.0.0.1:1/{MARK}-path?{MARK}-query"),
    "mail": ("mail", "ops@example.com"),
}


def make_secrets() -> dict[str, str]:
    """Environment variables that set every secret option of a console."""
    found = {facts.environment: f"{MARK}-{key}" for key, facts in options_of(Role.CONSOLE).items() if facts.info.secret}
    assert len(found) >= 3
    return found


class Browser:
    """A browser without a screen; what it hears is kept."""

    def __init__(self, address: str) -> None:
        self.client = httpx.Client(base_url=address, timeout=PATIENCE_S)
        self.heard: list[str] = []
        self._token = ""

    def get(self, path: str) -> httpx.Response:
        return self._keep(self.client.get(path))

    def post(self, path: str, **form: str) -> httpx.Response:
        return self._keep(self.client.post(path, data={"csrf": self._token, **form}))

    def read_token(self, path: str) -> None:
        found = _TOKEN.search(self.get(path).text)
        assert found is not None, path
        self._token = found[1]

    def log_in(self, password: str) -> int:
        self.read_token("/login")
        return self.post("/login", user="admin", password=password).status_code

    def _keep(self, answer: httpx.Response) -> httpx.Response:
        self.heard.append(answer.text)
        return answer


@pytest.fixture
def console(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """A console in a process, and what it says first."""
    home = tmp_path / "home"
    home.mkdir()
    words = [word for key, value in OPTIONS.items() for word in ("--option", f"{key}={value}")]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            make_command(
                "-vv", "console", "--cluster", f"{CLUSTER}={NOBODY_THERE}", "--output", "json", "--log-json", *words
            ),
            cwd=home,
            env=make_environment() | make_secrets() | {"ERUCA_CONSOLE_DIRECTORY": str(home / "state")},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (tmp_path / "log").read_text()
    yield process, json.loads(line)
    process.terminate()
    process.communicate(timeout=PATIENCE_S)


def test_a_console_leaves_no_secret_behind(
    console: tuple[subprocess.Popen[str], dict[str, str]], tmp_path: Path
) -> None:
    process, facts = console
    browser, stranger = Browser(facts["console"]), Browser(facts["console"])
    with browser.client, stranger.client:
        sessions = use(browser, stranger, facts["first_password"])
    process.terminate()
    out, _ = process.communicate(timeout=PATIENCE_S)
    # The password that is good for once is for whoever starts the console.
    secrets = [MARK, *sessions]
    said = [out, *stranger.heard, *browser.heard]
    files = read_all(tmp_path)
    assert files["log"] and files["home/state/console.db"]
    assert [secret for secret in secrets for text in said if secret in text] == []
    shown = {(name, secret) for name, data in files.items() for secret in secrets if secret.encode() in data}
    # Deliveries are signed with the secret of their channel, so it is kept; passwords and sessions are not.
    assert shown == {("home/state/console.db", MARK)}
    kept = files["home/state/console.db"]
    assert not any(f"{MARK}-{what}".encode() in kept for what in ("of-the-administrator", "guessed", "wrong"))


def use(browser: Browser, stranger: Browser, password: str) -> list[str]:
    """Do what has to do with secrets, right and wrong; return the ids of the sessions."""
    assert stranger.log_in(f"{MARK}-guessed") == 401
    assert stranger.get("/login/openid").status_code == 502
    assert browser.log_in(password) == 303
    sessions = [browser.client.cookies["eruca_session"]]
    browser.read_token("/password")
    new = f"{MARK}-of-the-administrator"
    assert browser.post("/password", old=f"{MARK}-wrong", new=new, again=new).status_code == 400
    assert browser.post("/password", old=password, new=new, again=new).status_code == 303
    sessions.append(browser.client.cookies["eruca_session"])
    browser.read_token("/password")
    for name, (kind, target) in CHANNELS.items():
        form = {"name": name, "kind": kind, "target": target, "secret": f"{MARK}-of-the-hook"}
        made = browser.post(f"/api/c/{CLUSTER}/alarms/new/channel", **form)
        assert made.status_code == 200, made.text
        tried = browser.post(f"/api/c/{CLUSTER}/alarms/channels/{made.json()['id']}/test")
        assert tried.json()["outcome"] == "failed", tried.text
    for path in (f"/c/{CLUSTER}", f"/c/{CLUSTER}/alarms/channels", f"/api/c/{CLUSTER}/alarms/channels", "/audit", "/x"):
        browser.get(path)
    return sessions


def test_the_printed_options_of_a_console_hide_secrets(tmp_path: Path) -> None:
    secrets = make_secrets()
    for output in ("table", "json"):
        words = ("console", "--print-config", "--output", output, "-n", NOBODY_THERE)
        done = run_eruca(*words, cwd=tmp_path, environment=secrets)
        assert done.returncode == 0, done.stderr
        assert find_marks("console", done.stdout + done.stderr) == []
        assert done.stdout.count(HIDDEN) == len(secrets)
