"""The parts of `make torture ONLY=replication` resume where they stopped, and a failure shows how to repeat it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.torture import replication
from tests.torture.replication import PARTS, Part, Seen, run_part


@dataclass
class Told:
    """What a case of a test saw."""

    case: int
    violations: list[str] = field(default_factory=list)

    def summarise(self) -> str:
        """For people."""
        return f"case {self.case} was fine"


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """The cases that were run; 2 fails the first time."""
    done: list[int] = []

    async def run(case: int, _: Path) -> tuple[Seen, Counter[str]]:
        done.append(case)
        return Told(case, ["lost: 1"] if done.count(case) == 1 and case == 2 else []), Counter(messages=10)

    monkeypatch.setattr(replication, "STATE", tmp_path)
    monkeypatch.setattr(replication, "keep_quiet", lambda: None)  # this process has other tests, and they check logs
    monkeypatch.setitem(PARTS, "some", Part("cases of a test", 4, run))
    return done


def test_a_part_goes_on_where_it_failed(cases: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_part("some", None) == 1
    assert "FAILED lost: 1\nreplay: .venv/bin/python -m tests.torture.replication some 2" in capsys.readouterr().out
    assert run_part("some", None) == 0
    assert cases == [0, 1, 2, 2, 3]
    assert "cases 0 to 3: 40 messages" in capsys.readouterr().out
    assert run_part("some", 0) == 0
    assert "stopped before case 0 of 4" in capsys.readouterr().out


def test_every_part_has_cases() -> None:
    assert {name: part.cases for name, part in PARTS.items()} == {
        "replication-java-slave": 1,
        "replication-java-master": 1,
        "replication-pair": 1,
        "replication-kills": 10,
        "replication-failover": 10,
        "replication-faults": 350,
        "replication-faults-etcd": 350,
        "replication-strangers": 20,
    }
