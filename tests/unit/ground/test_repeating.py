"""Periodic work continues whatever happens to it, and follows its interval."""

from __future__ import annotations

import asyncio
import logging

import pytest

from eruca._ground.repeating import Repeating
from eruca.errors import StoreError

WEEK_S = 7 * 86_400.0


class Work:
    """Counts how often it was done, and fails as it is told."""

    def __init__(self, *outcomes: Exception | float | None) -> None:
        self.count = 0
        self._outcomes = list(outcomes)
        self._done = asyncio.Event()

    async def __call__(self) -> float | None:
        self.count += 1
        self._done.set()
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(60):
            while self.count < count:
                self._done.clear()
                await self._done.wait()


async def test_no_failure_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(StoreError("full"), StoreError("full"), ValueError("ours"), None, KeyError("again"))
    repeating = Repeating("the work", work, lambda: 0.0)
    with caplog.at_level(logging.INFO, "eruca._ground.repeating"):
        repeating.start()
        repeating.start()  # a second time does nothing
        await work.wait_for(7)
        assert repeating.is_running
        await repeating.stop()
    count = work.count
    await asyncio.sleep(0)
    assert (work.count, repeating.is_running) == (count, False)
    said = [(record.levelname, record.getMessage(), record.exc_info is not None) for record in caplog.records]
    failed = "the work failed, retrying"
    assert said == [
        ("ERROR", f"{failed}: full", False),  # once, though it happened twice
        ("ERROR", failed, True),
        ("INFO", "the work works again", False),
        ("ERROR", failed, True),
        ("INFO", "the work works again", False),
    ]


async def test_a_change_of_the_interval_takes_effect_at_once() -> None:
    work, interval_s = Work(), WEEK_S
    repeating = Repeating("the work", work, lambda: interval_s)
    repeating.start()
    await asyncio.sleep(0)
    repeating.look_again()
    await asyncio.sleep(0)
    assert work.count == 0
    interval_s = 0.0
    repeating.look_again()
    await work.wait_for(1)
    await repeating.stop()


async def test_the_work_may_say_when_it_comes_next() -> None:
    work = Work(0.0, 0.0)
    repeating = Repeating("the work", work, lambda: WEEK_S, at_once=True)
    repeating.start()
    await work.wait_for(3)
    await asyncio.sleep(0)
    assert work.count == 3
    await repeating.stop()


@pytest.mark.parametrize("interval", [10**400, "soon"])
async def test_an_interval_that_cannot_be_read_does_not_end_it(
    interval: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("eruca._ground.repeating.RETRY_S", 0.0)
    work = Work()
    repeating = Repeating("the work", work, lambda: interval / 1000)  # type: ignore[operator]
    repeating.start()
    await work.wait_for(2)
    await repeating.stop()
    assert "the interval of the work cannot be read" in caplog.text


async def test_after_a_failure_it_may_wait_for_another_time() -> None:
    work = Work(ValueError("ours"))
    repeating = Repeating("the work", work, lambda: WEEK_S, at_once=True, retry_s=0.0)
    repeating.start()
    await work.wait_for(2)
    await repeating.stop()
    assert work.count == 2


async def test_the_wait_after_a_failure_may_grow_until_one_succeeds() -> None:
    asked: list[int] = []

    def find_pause(failures: int) -> float:
        asked.append(failures)
        return 0.0

    work = Work(ValueError("ours"), StoreError("full"), 0.0, ValueError("ours"))
    repeating = Repeating("the work", work, lambda: WEEK_S, at_once=True, retry_s=find_pause)
    repeating.start()
    await work.wait_for(5)
    await repeating.stop()
    assert asked == [1, 2, 1]


async def test_whoever_wakes_it_does_not_wait_for_the_interval() -> None:
    work = Work(WEEK_S)
    repeating = Repeating("the work", work, lambda: WEEK_S)
    repeating.start()
    await asyncio.sleep(0)
    assert work.count == 0
    for count in (1, 2):  # also when the work has said how long to wait
        repeating.wake()
        repeating.wake()
        await work.wait_for(count)
        for _ in range(5):
            await asyncio.sleep(0)
        assert work.count == count  # two wakes before it began are one
    await repeating.stop()


async def test_work_that_is_under_way_when_it_is_woken_is_done_again() -> None:
    began, may_end, count = asyncio.Event(), asyncio.Event(), 0

    async def work() -> None:
        nonlocal count
        count += 1
        began.set()
        await may_end.wait()

    repeating = Repeating("the work", work, lambda: WEEK_S, at_once=True)
    repeating.start()
    await began.wait()
    repeating.wake()
    began.clear()
    may_end.set()
    async with asyncio.timeout(60):
        await began.wait()
    await repeating.stop()
    assert count == 2


async def test_chance_shortens_the_interval_once_for_each_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[float] = []

    def draw(seconds: float, share: float) -> float:
        drawn.append(share)
        return seconds * (1.0 - share)

    monkeypatch.setattr("eruca._ground.repeating.spread", draw)
    work = Work()
    repeating = Repeating("the work", work, lambda: WEEK_S, jitter=1.0)  # all of it may go
    repeating.start()
    await work.wait_for(2)
    await repeating.stop()
    assert set(drawn) == {1.0}

    drawn.clear()
    idle = Repeating("the work", work, lambda: WEEK_S, jitter=0.1)
    idle.start()
    for _ in range(3):
        await asyncio.sleep(0)
        idle.look_again()
    assert drawn == [0.1]
    await idle.stop()


async def test_trouble_that_is_expected_is_a_warning_but_a_mistake_of_ours_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = Work(StoreError("gone"), ValueError("ours"))
    repeating = Repeating("the work", work, lambda: 0.0, level=logging.WARNING)
    with caplog.at_level(logging.WARNING, "eruca._ground.repeating"):
        repeating.start()
        await work.wait_for(3)
        await repeating.stop()
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


def test_a_timer_that_rings_a_part_of_a_millisecond_early_makes_no_busy_loop() -> None:
    """Those of uvloop do, and its clock stands still within a turn."""
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not made for this system")
    looks = 0

    def look() -> float:
        nonlocal looks
        looks += 1
        return 0.0053

    async def run() -> None:
        done = asyncio.Event()
        runs = 0

        async def work() -> None:
            nonlocal runs
            runs += 1
            if runs == 50:
                done.set()

        repeating = Repeating("a test", work, look)
        repeating.start()
        await done.wait()
        await repeating.stop()

    uvloop.run(run())
    assert looks <= 102, "the interval is looked at before each wait and behind it"
