"""Delivery in order: against a simple model of one queue."""

from __future__ import annotations

import random

import pytest

from eruca._core.popping import inorder
from eruca._wire.poplog import Line, Ordered

LINE = Line("group", "topic", 0, 0)


def start() -> Ordered:
    return inorder.begin(LINE, 0)


def test_blocked_until_everything_is_acknowledged() -> None:
    state = inorder.deliver(start(), [0, 1, 2], 3, 100, 50, "", repeated=False)
    assert inorder.find_free_ms(state) == 150
    state = inorder.settle(state, [0, 2])
    assert (state.next, inorder.find_free_ms(state)) == (1, 150)
    assert inorder.is_done(state, 2)
    state = inorder.settle(state, [1])
    assert (state.next, inorder.find_free_ms(state), state.messages) == (3, 0, [])


def test_a_handle_is_void_after_the_next_delivery() -> None:
    state = inorder.deliver(start(), [0], 1, 100, 50, "", repeated=False)
    assert inorder.find(state, 0, 100) is not None
    state = inorder.deliver(state, [0], 1, 200, 50, "", repeated=False)
    assert inorder.find(state, 0, 100) is None
    assert inorder.count_deliveries(state, 0) == 2


def test_a_repeated_request_does_not_count() -> None:
    state = inorder.deliver(start(), [0, 1], 2, 100, 50, "id", repeated=False)
    assert inorder.is_repeated(state, "id", 120)
    assert not inorder.is_repeated(state, "other", 120)
    assert not inorder.is_repeated(state, "id", 150)
    assert inorder.list_repeated(state) == [0, 1]
    state = inorder.deliver(state, [0, 1], 2, 120, 50, "id", repeated=True)
    assert inorder.count_deliveries(state, 1) == 1


@pytest.mark.parametrize("number", range(5))
def test_random_histories(number: int) -> None:
    """Every message is acknowledged once, and no message before one of an earlier delivery."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    choose = random.Random(seed)
    state, now_ms, end = start(), 0, 200
    done: list[int] = []
    held: dict[int, int] = {}
    for _ in range(5000):
        now_ms += choose.randrange(20)
        if choose.random() < 0.3:
            if inorder.find_free_ms(state) > now_ms:
                continue
            offsets = [each for each in range(state.next, end) if not inorder.is_done(state, each)]
            offsets = offsets[: choose.randrange(1, 6)]
            if not offsets:
                break
            assert offsets[0] == min(set(range(end)) - set(done))
            assert not set(offsets) & set(done)
            state = inorder.deliver(state, offsets, offsets[-1] + 1, now_ms, 100, "", repeated=False)
            held = dict.fromkeys(offsets, now_ms)
        elif held:
            offset = choose.choice(list(held))
            if inorder.find(state, offset, held[offset]) is None:
                continue
            if choose.random() < 0.2:
                pop_ms = max(now_ms, held[offset] + 1)
                state = inorder.postpone(state, offset, pop_ms, pop_ms + choose.randrange(50), suspended=False)
                del held[offset]
            else:
                del held[offset]
                state = inorder.settle(state, [offset])
                done.append(offset)
    assert len(set(done)) == len(done) > 50
    assert set(range(state.next)) <= set(done)
