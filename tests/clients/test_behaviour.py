"""What our client does, against Eruca and against the official Java broker: the same cases, none left out.

A case is an `async def case_NAME(nameserver, topic, group)` in one of the modules `cases_*.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from blockbuster import BlockBuster

from tests.clients.running import CASE_SECONDS_MAX, Run, find_cases

CASES = find_cases()


@pytest.fixture
def excuse_calls() -> Callable[[BlockBuster], None]:
    """Let loops that run side by side wait for each other's imports, and cases have directories; no more may block."""

    def excuse(buster: BlockBuster) -> None:
        del buster.functions["threading.Lock.acquire"]
        for function in buster.functions.values():
            function.can_block_in("tempfile.py", {"__init__", "cleanup", "_cleanup"})

    return excuse


@pytest.mark.parametrize(
    "case",
    [pytest.param(name, marks=[pytest.mark.whole] * getattr(case, "is_whole", False)) for name, case in CASES.items()],
)
def test_behaviour(run: Run, case: str) -> None:
    assert run.wait(case) < CASE_SECONDS_MAX
