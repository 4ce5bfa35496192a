"""The window: what may be under way at once, who waits, and that nobody is forgotten when a waiter gives up."""

from __future__ import annotations

import asyncio
import random

import pytest

from eruca._client.produce.window import Window
from tests.unit.client.scripted import wait_until


def start(window: Window, *sizes: int) -> list[asyncio.Task[None]]:
    return [asyncio.get_running_loop().create_task(window.enter(size)) for size in sizes]


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_count_and_bytes_are_bounded() -> None:
    window = Window(2, 100)
    assert window.try_enter(60)
    assert not window.try_enter(50)
    assert window.try_enter(40)
    assert not window.try_enter(0)
    window.leave(60)
    assert window.try_enter(1)
    assert (window.count, window.bytes) == (2, 41)


async def test_what_is_larger_than_the_window_goes_alone() -> None:
    window = Window(10, 100)
    assert window.try_enter(500)
    assert not window.try_enter(1)
    window.leave(500)
    assert window.try_enter(1)
    assert not window.try_enter(500)


async def test_who_came_first_goes_first_although_a_smaller_one_would_fit() -> None:
    window = Window(10, 100)
    assert window.try_enter(90)
    large, small = start(window, 50, 5)
    await turn()
    assert not window.try_enter(5)
    assert not large.done()
    assert not small.done()
    window.leave(90)
    await turn()
    assert large.done()
    assert small.done()
    assert (window.count, window.bytes) == (2, 55)


async def test_nobody_overtakes_who_was_let_in_and_does_not_run_yet() -> None:
    window = Window(2, 100)
    assert window.try_enter(1)
    assert window.try_enter(1)
    (first,) = start(window, 1)
    await turn()
    window.leave(1)
    window.leave(1)
    assert not window.try_enter(1)
    (second,) = start(window, 1)
    assert not first.done()
    await turn()
    assert first.done()
    assert second.done()
    assert (window.count, window.bytes) == (2, 2)


async def test_a_waiter_that_gives_up_does_not_hold_up_the_others() -> None:
    window = Window(1, 100)
    assert window.try_enter(1)
    first, second = start(window, 1, 1)
    await turn()
    first.cancel()
    await turn()
    window.leave(1)
    await second
    assert (window.count, window.bytes) == (1, 1)
    window.leave(1)
    assert window.try_enter(1)


async def test_a_waiter_that_gives_up_when_it_is_let_in_gives_its_room_back() -> None:
    window = Window(1, 100)
    assert window.try_enter(1)
    first, second = start(window, 1, 1)
    await turn()
    window.leave(1)  # lets the first one in, which has not noticed yet
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()
    await second
    assert window.count == 1


async def test_waiting_until_it_is_empty() -> None:
    window = Window(1, 100)
    await window.wait_empty()
    assert window.try_enter(1)
    (second,) = start(window, 1)
    emptied = asyncio.get_running_loop().create_task(window.wait_empty())
    await turn()
    window.leave(1)
    await second
    await turn()
    assert not emptied.done()
    window.leave(1)
    await emptied


@pytest.mark.parametrize("seed", range(5))
async def test_bounds_hold_and_nothing_leaks_whatever_is_cancelled(seed: int) -> None:
    choices = random.Random(seed)
    window = Window(3, 100)
    inside = 0

    async def use(size: int, turns: int) -> None:
        nonlocal inside
        await window.enter(size)
        inside += 1
        try:
            assert inside <= window.count <= 3
            assert window.bytes <= 100 or window.count == 1
            for _ in range(turns):
                await asyncio.sleep(0)
        finally:
            inside -= 1
            window.leave(size)

    tasks = [
        asyncio.get_running_loop().create_task(use(choices.randrange(150), choices.randrange(5))) for _ in range(300)
    ]
    while not all(task.done() for task in tasks):
        choices.choice(tasks).cancel()
        await asyncio.sleep(0)
    for task in tasks:
        assert task.cancelled() or task.exception() is None
    await wait_until(lambda: window.count == 0)
    assert window.bytes == 0
    assert window.try_enter(100)
