"""A name server with a master and a slave, under load, whose metrics are collected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.cli.upprocess import Up, choose_ports
from tests.interop.javapeer import find_ports
from tests.monitoring.workload import OPTIONS


class Cluster:
    """`eruca up`, and a slave beside it."""

    def __init__(self, home: Path, *more: str, of_slave: Sequence[str] = ()) -> None:
        """`more` are options of both."""
        options = _to_flags(*OPTIONS, *more)
        (home / "slave").mkdir(parents=True)
        self.up = Up(home, *choose_ports(), *options)
        ports = ["--listen-port", str(find_ports(-2, 1)), "--metrics-port", "0", "-n", self.up.address]
        role = _to_flags("brokerRole=SLAVE", "brokerId=1", *of_slave)
        try:
            self.slave = Up(home / "slave", *ports, *role, *options, command="broker")
        except BaseException:
            self.up.end()
            raise
        self.nameserver = self.up.address
        self.urls = [str(each.facts["metrics"]) for each in (self.up, self.slave)]

    def end(self) -> None:
        """Stop both."""
        for each in (self.slave, self.up):
            status, said = each.end()
            assert status == 0, said


def _to_flags(*options: str) -> list[str]:
    return [word for option in options for word in ("--option", option)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of a master and a slave."""
    running = Cluster(tmp_path / "cluster")
    yield running
    running.end()
