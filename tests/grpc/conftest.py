"""The servers and the programs of the matrix, started once for all tests of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.authority import Authority, Pair
from tests.figures import note_figures
from tests.grpc.expected import LACKING, PECULIAR
from tests.grpc.programs import Program
from tests.grpc.remote import Account
from tests.grpc.scenarios import SCENARIOS, Facts, Stage
from tests.grpc.servers import ADMIN, OfficialProxy, Server, prepare_proxy

# Most of them wait, for a delay or an invisible time.
AT_A_TIME = 8
FindFacts = Callable[[str, str], Facts]


class Hall:
    """A server without accounts, one with them, and the programs; each is started when a cell wants it."""

    def __init__(self, kind: str, folders: pytest.TempPathFactory, stack: ExitStack) -> None:
        self._kind = kind
        self._folders = folders
        self._stack = stack
        self._authority = Authority(folders.mktemp("grpc-authority"))
        self._pair = self._authority.issue("server")
        self._starting = threading.Lock()
        self._servers: dict[bool, OfficialProxy] = {}
        self._programs: dict[tuple[str, bool], Program] = {}

    def find_server(self, *, secured: bool) -> Server:
        """The server."""
        with self._starting:
            if secured not in self._servers:
                home, account = self._folders.mktemp(f"grpc-{self._kind}"), ADMIN if secured else None
                server = _start_server(home, self._pair, account)
                self._stack.enter_context(server)
                self._servers[secured] = server
            return self._servers[secured]

    def find_program(self, client: str, *, tls: bool) -> Program:
        """The program around a client."""
        with self._starting:
            if (client, tls) not in self._programs:
                home = self._folders.mktemp(f"grpc-{client}")
                self._programs[client, tls] = self._stack.enter_context(
                    Program(client, home, self._authority.ca, tls=tls)
                )
            return self._programs[client, tls]

    def run(self, client: str, scenario: str) -> Facts:
        """One cell."""
        server = self.find_server(secured=scenario == "secret")
        stage = Stage(self.find_program(client, tls=scenario == "tls"), server, scenario)
        try:
            return SCENARIOS[scenario](stage)
        finally:
            stage.close()


def _start_server(home: Path, pair: Pair, account: Account | None) -> OfficialProxy:
    return OfficialProxy(prepare_proxy(), home, pair, account)


@pytest.fixture(scope="session")
def find_facts(
    server: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[FindFacts]:
    """Begin all cells of a server that this run wants; returns what one of them found."""
    wanted = [cell for kind, *cell in map(_read_parameters, request.session.items) if kind == server]
    with ExitStack() as stack:
        hall = Hall(server, tmp_path_factory, stack)
        tasks = stack.enter_context(ThreadPoolExecutor(AT_A_TIME))
        running: dict[tuple[str, str], Future[Facts]] = {
            (client, scenario): tasks.submit(hall.run, client, scenario) for client, scenario in wanted
        }
        yield lambda client, scenario: running[client, scenario].result()


def _read_parameters(item: pytest.Item) -> tuple[str, str, str]:
    """Server, client and scenario of a test; nothing for tests of another kind."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return params.get("server", ""), params.get("client", ""), params.get("scenario", "")


@pytest.fixture(scope="session", autouse=True)
def list_what_is_lacking() -> None:
    """Say which cells there are none of."""
    for (client, scenario), reason in LACKING.items():
        note_figures(f"grpc: no cell {client} {scenario}: {reason}")
    for (client, scenario), (_, reason) in PECULIAR.items():
        note_figures(f"grpc: {client} {scenario} differs on all servers: {reason}")
