"""`eruca up` in a separate process, to be attacked: its memory, its log, and whether it serves a healthy client."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.headers import RouteHeader
from eruca._wire.record import decode_records
from tests.integration.broker.requests import pull_header, send_header
from tests.integration.cli.upprocess import choose_ports, make_command, make_environment
from tests.unit.net.rawpeer import SECONDS_MAX, open_peer


class Serving:
    """`eruca up` in its own directory; its log goes to a file, so that nothing can block it."""

    def __init__(
        self,
        directory: Path,
        *arguments: str | Path,
        before: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        """`arguments` follow the command, and `before` precedes it."""
        self.directory = directory / "home"
        self.directory.mkdir()
        self.log = directory / "log"
        self._command = make_command(*before, "up", "--output", "json", *choose_ports(), *arguments)
        self._environment = environment or {}
        self.read_log_from = 0
        self.start()

    def start(self) -> None:
        """Start it, again if it was ended before; blocks."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self._command,
                cwd=self.directory,
                env=make_environment() | self._environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        facts: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.broker: str = facts["broker"]
        self.names: str = facts["nameserver"]
        # Where the metrics are: host and port.
        self.metrics = str(facts["metrics"]).removeprefix("http://").partition("/")[0]

    def memory(self) -> int:
        """Anonymous bytes of the process; blocks."""
        return read_memory(self.process.pid)

    def complaints(self) -> list[str]:
        """Return the warnings and errors in the log since the last call; blocks."""
        text = self.log.read_bytes()
        new, self.read_log_from = text[self.read_log_from :].decode(), len(text)
        return [line for line in new.splitlines() if not line or "INFO" not in line]

    def list_files(self) -> list[str]:
        """Return everything beside its data; blocks."""
        return sorted(str(path.relative_to(self.directory)) for path in self.directory.iterdir())

    def end(self) -> int:
        """Stop it; return its exit status. Blocks."""
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=SECONDS_MAX)
        return self.process.returncode


def read_memory(pid: int) -> int:
    """Anonymous bytes of a process; blocks."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("RssAnon"))


async def check_well(serving: Serving) -> None:
    """A healthy client is served by both."""
    async with asyncio.timeout(SECONDS_MAX), open_peer(serving.broker) as peer:
        sent = await peer.ask(make_request(RequestCode.SEND_MESSAGE_V2, send_header("Healthy"), b"well", opaque=1))
        assert sent.code == ResponseCode.SUCCESS
        offset = int(sent.ext_dict()["queueOffset"])
        header = pull_header("Healthy", queue_offset=offset)
        pulled = await peer.ask(make_request(RequestCode.PULL_MESSAGE, header, opaque=2))
        assert [message.body for message in decode_records(pulled.body)] == [b"well"]
    async with asyncio.timeout(SECONDS_MAX), open_peer(serving.names) as peer:
        route = await peer.ask(make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic="Healthy"), opaque=1))
        # A mutated recording may have registered, and unregistered, a broker of the same name: that is harmless.
        assert route.code in (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
