"""The two systems every client case runs against: a freshly started Eruca, and the official Java servers.

Both are a name server and a broker on their own loopback ports, with the same settings. Whatever a case does it does
in topics and groups with its own names, so that one start serves a whole session.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tests.interop.javapeer import (
    START_SECONDS_MAX,
    JavaBroker,
    JavaNameServer,
    JavaProcess,
    Peer,
    PeerError,
    find_broker_port,
    find_ports,
)

BROKER_NAME = "broker-a"
# Where the defaults differ (Eruca takes SQL92 subscriptions, Java does not) or are too slow for a test.
SETTINGS: Mapping[str, object] = {
    "enablePropertyFilter": "true",
    "transactionCheckInterval": 1000,
    # No sooner: a client on a busy machine takes its time between a half and the decision, and would be asked.
    "transactionTimeOut": 3000,
}
# Java's broker refuses what it could not begin with in 200 ms, which happens on a machine that does other things too.
PATIENCE: Mapping[str, object] = {
    "waitTimeMillsInSendQueue": 20_000,
    "waitTimeMillsInPullQueue": 20_000,
    "waitTimeMillsInTransactionQueue": 20_000,
    "osPageCacheBusyTimeOutMills": 20_000,
}


class Cluster(Protocol):
    """A running name server and broker."""

    # `eruca` or `java`: what a case's name ends with.
    kind: str

    @property
    def name_server(self) -> str:
        """Where clients ask for routes."""

    @property
    def broker(self) -> str:
        """Where the broker listens."""


class ErucaCluster(JavaProcess):
    """Eruca as a newcomer starts it: `eruca up`, name server and broker in one process."""

    kind = "eruca"

    def __init__(self, home: Path, settings: Mapping[str, object] = SETTINGS) -> None:
        home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "eruca", "up", "-o", "json", "--data", str(home / "data")]
        command += ["--nameserver-port", str(find_ports()), "--listen-port", str(find_broker_port())]
        command += ["--metrics-port", "0", "--console-listen-port", "-1"]
        for key, value in {"brokerName": BROKER_NAME, **settings}.items():
            command += ["--option", f"{key}={value}"]
        super().__init__(command, home / "eruca.log", talks=True)
        try:
            line = self.wait_for(lambda text: text.startswith("{"), START_SECONDS_MAX)
        except PeerError:
            self.__exit__(None, None, None)
            raise
        self._told: dict[str, Any] = json.loads(self.lines[line])

    @property
    def name_server(self) -> str:
        """Where clients ask for routes."""
        return str(self._told["nameserver"])

    @property
    def broker(self) -> str:
        """Where the broker listens."""
        return str(self._told["broker"])

    def list_complaints(self) -> list[str]:
        """Errors and exceptions it has written to its log."""
        text = self.log.with_suffix(".err").read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if re.search(r"\bERROR\b|Traceback|Error:", line)]


class JavaCluster:
    """The official name server and broker."""

    kind = "java"

    def __init__(
        self,
        peer: Peer,
        home: Path,
        settings: Mapping[str, object] = SETTINGS,
        *,
        system: Mapping[str, object] | None = None,
    ) -> None:
        with ExitStack() as stack:
            self._names = stack.enter_context(JavaNameServer(peer, home / "namesrv", system=system))
            self._broker = stack.enter_context(
                JavaBroker(
                    peer,
                    self._names.address,
                    home / "store",
                    name=BROKER_NAME,
                    home=home / "broker",
                    properties=settings,
                    system=system,
                )
            )
            self._stack = stack.pop_all()

    @property
    def name_server(self) -> str:
        """Where clients ask for routes."""
        return self._names.address

    @property
    def broker(self) -> str:
        """Where the broker listens."""
        return self._broker.address

    @property
    def broker_pid(self) -> int:
        """The process of the broker."""
        return self._broker.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
