"""Who listens for alarms: a web server and a mail server, in threads, that keep what they get."""

from __future__ import annotations

import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.authority import Authority
from tests.interop.javapeer import find_ports

SECRET: Final = "for this channel only"
MAIL_USER: Final = "console"
MAIL_PASSWORD: Final = "letters in between"


class Hook(ThreadingHTTPServer):
    """A web server that keeps the reports that are posted to it, after it has checked their signatures."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.reports: list[dict[str, Any]] = []
        self.faults: list[str] = []
        # How many requests it refuses first.
        self.refusals = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}/alarms/token-4711"

    def list_events(self, target: str) -> list[str]:
        """The events it was told about one target, in their order."""
        return [
            str(report["event"])
            for report in self.reports
            if any(alarm["target"] == target for alarm in report["alarms"])
        ]


class _Answer(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        signed = f"{self.headers['X-Eruca-Timestamp']}.".encode() + body
        wanted = "sha256=" + hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
        if self.headers["X-Eruca-Signature"] != wanted:
            self.server.faults.append(f"signature {self.headers['X-Eruca-Signature']}")
        is_refused = self.server.refusals > 0
        self.server.refusals -= is_refused
        if not is_refused:
            self.server.reports.append(json.loads(body))
        self.send_response(503 if is_refused else 204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what arrives is in `reports`."""


class Post:
    """A mail server with STARTTLS and log-in; it keeps the mails."""

    def __init__(self, home: Path) -> None:
        authority = Authority(home, "post-ca")
        pair = authority.issue("post")
        self.ca = authority.ca
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self.mails: list[EmailMessage] = []
        #: Where it listens.
        self.port = find_ports()
        self._controller = Controller(
            self,
            hostname="127.0.0.1",
            port=self.port,
            tls_context=context,
            require_starttls=True,
            auth_required=True,
            authenticator=_check,
        )

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Keep a mail."""
        found = message_from_bytes(_read(envelope.content), policy=policy.default)
        assert isinstance(found, EmailMessage)
        self.mails.append(found)
        return "250 taken"

    def list_subjects(self) -> list[str]:
        """The subjects of all mails."""
        return [str(mail["Subject"]) for mail in self.mails]

    def start(self) -> None:
        """Listen."""
        self._controller.start()

    def stop(self) -> None:
        """End."""
        self._controller.stop()


def _read(content: str | bytes | None) -> bytes:
    assert isinstance(content, bytes)
    return content


def _check(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
    is_known = isinstance(data, LoginPassword) and (data.login, data.password) == (
        MAIL_USER.encode(),
        MAIL_PASSWORD.encode(),
    )
    return AuthResult(success=is_known)


@contextmanager
def run_hook() -> Iterator[Hook]:
    """Run a web server."""
    with Hook() as hook:
        thread = threading.Thread(target=hook.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield hook
        finally:
            hook.shutdown()
            thread.join()


@contextmanager
def run_post(home: Path) -> Iterator[Post]:
    """Run a mail server."""
    home.mkdir(parents=True, exist_ok=True)
    post = Post(home)
    post.start()
    try:
        yield post
    finally:
        post.stop()
