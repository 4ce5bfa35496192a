"""Answers that several visitors share: asked for once, for a moment, and never a failure."""

from __future__ import annotations

import asyncio

import pytest

from eruca._console.clusters import Clusters, Remembering
from eruca.errors import ConfigError, NetError


async def test_visitors_at_the_same_time_ask_once() -> None:
    asked, may_answer = [], asyncio.Event()

    async def ask() -> int:
        asked.append(1)
        await may_answer.wait()
        return 7

    recent = Remembering()
    visits = [asyncio.ensure_future(recent.ask("topics", ask)) for _ in range(3)]
    await asyncio.sleep(0)
    # The one who asked first leaves; the others get their answer.
    visits[0].cancel()
    may_answer.set()
    assert await asyncio.gather(*visits[1:]) == [7, 7] and len(asked) == 1
    recent.forget()
    assert await recent.ask("topics", ask) == 7 and len(asked) == 2


async def test_a_failure_is_not_remembered() -> None:
    answers: list[int | Exception] = [NetError("away"), 3]

    async def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    recent = Remembering()
    with pytest.raises(NetError):
        await recent.ask("brokers", ask)
    assert await recent.ask("brokers", ask) == 3


def test_a_console_needs_a_cluster() -> None:
    with pytest.raises(ConfigError, match="no cluster"):
        Clusters({})
