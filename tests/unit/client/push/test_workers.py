"""Threads for plain handlers, and calls from threads to the loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from eruca._client.handover import Handover
from eruca._client.push.workers import Workers
from tests.patience import PATIENCE_S

SECONDS_MAX = PATIENCE_S


def test_jobs_that_wait_have_all_threads_and_no_more() -> None:
    workers = Workers("T", 4)
    gate, guard = threading.Event(), threading.Lock()
    at_work, most, done = 0, 0, threading.Semaphore(0)
    full = threading.Event()

    def job(_: int) -> None:
        nonlocal at_work, most
        with guard:
            at_work += 1
            most = max(most, at_work)
            if at_work == 4:
                full.set()
        gate.wait(SECONDS_MAX)
        with guard:
            at_work -= 1
        done.release()

    workers.put([(job, number) for number in range(20)])
    assert full.wait(SECONDS_MAX)
    gate.set()
    for _ in range(20):
        assert done.acquire(timeout=SECONDS_MAX)
    assert most == 4
    workers.close()


def test_quick_jobs_are_done_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is woken while another finishes jobs goes back to rest: both would only contend for the lock."""
    workers = Workers("T", 4)
    by_thread: Counter[int] = Counter()
    ended = threading.Event()

    def look(_: float) -> None:
        before = workers._finished
        while workers._finished == before and not ended.wait(0.001):
            pass

    monkeypatch.setattr("eruca._client.push.workers.time", SimpleNamespace(sleep=look))
    workers.put([(lambda _: by_thread.update([threading.get_ident()]), None)] * 5000)
    workers.put([(lambda _: ended.set(), None)])
    assert ended.wait(SECONDS_MAX)
    assert list(by_thread.values()) == [5000]
    assert workers._threads > 1
    workers.close()


def test_one_thread_does_jobs_in_their_order() -> None:
    workers = Workers("T", 1)
    seen: list[int] = []
    ended = threading.Event()
    for start in range(0, 1000, 10):
        workers.put([(seen.append, number) for number in range(start, start + 10)])
    workers.put([(lambda _: ended.set(), None)])
    assert ended.wait(SECONDS_MAX)
    assert seen == list(range(1000))
    workers.close()


def test_no_wake_is_lost_when_many_put_jobs() -> None:
    workers = Workers("T", 3)
    done = threading.Semaphore(0)

    def put_some() -> None:
        for _ in range(500):
            workers.put([(lambda _: done.release(), None)])

    threads = [threading.Thread(target=put_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2000):
        assert done.acquire(timeout=SECONDS_MAX)
    for thread in threads:
        thread.join()
    workers.close()


def test_threads_end_when_the_workers_are_closed() -> None:
    before = set(threading.enumerate())
    workers = Workers("T", 3)
    done = threading.Event()
    workers.put([(lambda _: done.set(), None)])
    assert done.wait(SECONDS_MAX)
    ours = set(threading.enumerate()) - before
    workers.close()
    for thread in ours:
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()
    workers.put([(lambda _: pytest.fail("a closed crew worked"), None)])


async def test_calls_from_threads_are_made_in_the_loop_in_their_order() -> None:
    handover = Handover(asyncio.get_running_loop())
    seen: list[tuple[str, int]] = []
    ended = asyncio.Event()
    names = {"a", "b", "c"}

    def take(item: tuple[str, int]) -> None:
        asyncio.get_running_loop()  # raises anywhere else
        seen.append(item)
        if len(seen) == 3000:
            ended.set()

    def post_all(name: str) -> None:
        for number in range(1000):
            handover.post(take, (name, number))

    threads = [threading.Thread(target=post_all, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(SECONDS_MAX):
        await ended.wait()
    for name in names:
        assert [number for who, number in seen if who == name] == list(range(1000))


async def test_a_call_that_fails_does_not_keep_others_from_being_made(caplog: pytest.LogCaptureFixture) -> None:
    handover = Handover(asyncio.get_running_loop())
    ended = asyncio.Event()

    def fail(_: None) -> None:
        raise ValueError("no")

    handover.post(fail, None)
    handover.post(lambda _: ended.set(), None)
    async with asyncio.timeout(SECONDS_MAX):
        await ended.wait()
    assert "a call handed over to the loop failed" in caplog.text


async def test_an_interrupt_while_posting_does_not_keep_later_calls_from_being_made() -> None:
    loop = asyncio.get_running_loop()

    class InterruptedLoop:
        is_interrupted = True

        def call_soon_threadsafe(self, function: Callable[[], None]) -> None:
            if self.is_interrupted:
                self.is_interrupted = False
                raise KeyboardInterrupt
            loop.call_soon_threadsafe(function)

    handover = Handover(cast(asyncio.AbstractEventLoop, InterruptedLoop()))
    seen: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        handover.post(seen.append, 1)
    handover.post(seen.append, 2)
    async with asyncio.timeout(SECONDS_MAX):
        while len(seen) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert seen == [1, 2]
