"""Named cases with the official Java client, run several at a time against any cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop.brokers import BROKER_NAME, Cluster
from tests.interop.javapeer import JavaProgram, Peer
from tests.patience import PATIENCE_S

Facts = dict[str, Any]

CASE_SECONDS_MAX = PATIENCE_S


class BehaviourProgram(JavaProgram):
    """`Behaviour.java`: takes any number of cases at once and answers each when it is done."""

    def __init__(self, peer: Peer, home: Path, headers: str, main: str = "eruca.interop.Behaviour") -> None:
        super().__init__(peer, main, home, headers, heap="512m")

    def submit(self, case: str, cluster: Cluster | None, plan: Mapping[str, Any] | None = None) -> None:
        """Let a case begin as soon as there is room for it; some want to be told more in a plan."""
        request = {**(plan or {}), "id": _identify(case, cluster), "case": case}
        if cluster is not None:
            request |= {"nameServer": cluster.name_server, "address": cluster.broker, "broker": BROKER_NAME}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def wait_for_facts(self, case: str, cluster: Cluster | None) -> Facts:
        """What a case found; one that could not do its work is an error."""
        beginning = f'{{"id":"{_identify(case, cluster)}",'
        number = self.wait_for(lambda line: line.startswith(beginning), CASE_SECONDS_MAX)
        answer = json.loads(self.lines[number])
        assert "error" not in answer, answer["error"]
        facts: Facts = answer["facts"]
        return facts

    def list_cases(self) -> list[str]:
        """The names of all cases it knows."""
        self.submit("list", None)
        cases: list[str] = self.wait_for_facts("list", None)["cases"]
        return cases


def _identify(case: str, cluster: Cluster | None) -> str:
    return f"{cluster.kind if cluster else ''}/{case}"
