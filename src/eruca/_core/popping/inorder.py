"""Delivery in order: a queue is blocked until everything that was delivered is acknowledged or visible again.

What follows an unacknowledged message may be acknowledged already; it is remembered and not delivered again. All
functions take the state of a line and return the next one, which the caller writes down before it counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from eruca._wire.poplog import InOrder, Line, Ordered


def begin(line: Line, next_offset: int) -> Ordered:
    """Return the state of a line of which nothing was delivered."""
    return Ordered(line.group, line.topic, line.kind, line.queue_id, next_offset, 0, 0, "", next_offset, [])


def find_free_ms(state: Ordered) -> int:
    """Return when the line is no longer blocked unless more is acknowledged; 0: it is not."""
    return max([each.due_ms for each in state.messages if not each.done], default=0)


def is_repeated(state: Ordered, attempt: str, now_ms: int) -> bool:
    """Whether a request repeats the last one, whose answer was lost."""
    return bool(attempt) and attempt == state.attempt and find_free_ms(state) > now_ms


def list_repeated(state: Ordered) -> list[int]:
    """List what the last pop delivered and is not acknowledged."""
    return [each.offset for each in state.messages if not each.done and each.pop_ms == state.pop_ms]


def is_done(state: Ordered, offset: int) -> bool:
    """Whether a message was acknowledged already."""
    return any(each.done for each in state.messages if each.offset == offset)


def count_deliveries(state: Ordered, offset: int) -> int:
    """Return how often a message was delivered, as far as it counts."""
    for each in state.messages:
        if each.offset == offset:
            return max(0, each.count - each.suspended)
    return 0


def deliver(
    state: Ordered, offsets: Iterable[int], end: int, pop_ms: int, invisible_ms: int, attempt: str, *, repeated: bool
) -> Ordered:
    """Deliver messages; `end` is the offset after the last one that was read."""
    messages = {each.offset: each for each in state.messages}
    for offset in offsets:
        known = messages.get(offset)
        count = 0 if known is None else max(0, known.count - known.suspended)
        if repeated and known is not None:
            count, suspended = known.count, known.suspended
        else:
            count, suspended = count + 1, False
        messages[offset] = InOrder(offset, pop_ms, pop_ms + invisible_ms, count, suspended=suspended)
    return replace(
        state,
        pop_ms=pop_ms,
        invisible_ms=invisible_ms,
        attempt=attempt,
        end=max(end, state.end),
        messages=[messages[offset] for offset in sorted(messages)],
    )


def find(state: Ordered, offset: int, pop_ms: int) -> InOrder | None:
    """Return the message that a handle of a pop stands for; None if the handle is void."""
    for each in state.messages:
        if each.offset == offset:
            return None if each.done or each.pop_ms != pop_ms else each
    return None


def settle(state: Ordered, offsets: Iterable[int]) -> Ordered:
    """Acknowledge messages, and continue at the first one that is not."""
    settled = set(offsets)
    messages = [replace(each, done=True) if each.offset in settled else each for each in state.messages]
    open_offsets = [each.offset for each in messages if not each.done]
    following = open_offsets[0] if open_offsets else state.end
    return replace(state, next=following, messages=[each for each in messages if each.offset >= following])


def postpone(state: Ordered, offset: int, pop_ms: int, due_ms: int, *, suspended: bool) -> Ordered:
    """Make a message visible at another time. Its handle gets another time of the pop, so that the old one is void."""
    return replace(
        state,
        messages=[
            replace(each, pop_ms=pop_ms, due_ms=due_ms, suspended=suspended) if each.offset == offset else each
            for each in state.messages
        ],
    )
