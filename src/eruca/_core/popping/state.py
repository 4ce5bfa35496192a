"""What is in flight: changed by the items of the log and by nothing else, so that reading the log again restores it.

A broker decides on an item, stores it, and applies it; a start, or a slave that becomes the master, applies what is in
the log. Nothing here reads a clock or a disk.

Of a delivery of up to 32 messages there is one object, with a bit for each message that is in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, TypeAlias

from eruca._core.popping.due import DueTimes
from eruca._core.popping.pages import Kept, Pages
from eruca._wire import poplog as items

#: Group, topic of the requests, kind, queue.
LineKey: TypeAlias = tuple[str, str, int, int]

# Deliveries are found by first offset and time in one number; a time has 44 bits until the year 2527.
_TIME_BITS: Final = 44


class LineState(Kept):
    """A queue as one group reads it."""

    __slots__ = (
        "deliveries",
        "group",
        "in_flight",
        "kind",
        "next",
        "order",
        "queue_id",
        "topic",
        "unsafe_end",
        "unsafe_from",
    )

    def __init__(self, group: str, topic: str, kind: int, queue_id: int) -> None:
        super().__init__()
        self.group = group
        self.topic = topic
        self.kind = kind
        self.queue_id = queue_id
        #: Where the group continues, as the log has it; -1: the log does not say.
        self.next = -1
        self.deliveries: dict[int, Delivery] = {}
        #: The state of a line that is read in order.
        self.order: items.Ordered | None = None
        self.in_flight = 0
        #: Where the first record about the line ends, until that is on disk; then 0, as of what a start has read.
        self.unsafe_end = 0
        #: The offset in the table of offsets meanwhile; another one is a reset.
        self.unsafe_from = -1

    @property
    def key(self) -> LineKey:
        """The names of the line."""
        return self.group, self.topic, self.kind, self.queue_id


class Delivery(Kept):
    """What one pop delivered from one line."""

    __slots__ = ("due_ms", "gaps", "line", "open", "pop_ms", "start", "suspended")

    def __init__(self, line: LineState, item: items.Taken) -> None:
        super().__init__()
        self.line = line
        self.start = item.start
        self.pop_ms = item.pop_ms
        #: When the messages are visible again; -1 while that is decided, see `PopState.take_due`.
        self.due_ms = item.pop_ms + item.invisible_ms
        self.gaps = bytes(item.gaps) if not item.gaps or max(item.gaps) < 256 else tuple(item.gaps)
        self.open = item.open
        self.suspended = item.suspended

    @property
    def is_over(self) -> bool:
        """Whether everything is settled."""
        return not self.open

    def find_bit(self, offset: int) -> int:
        """Return the bit of a message that is in flight; 0 if it is not."""
        distance = offset - self.start
        if not self.gaps:
            return 1 << distance & self.open if 0 <= distance < 64 else 0
        for index, gap in enumerate(self.gaps):
            if gap == distance:
                return 1 << index & self.open
        return 0

    def list_open(self) -> list[tuple[int, int]]:
        """List the bits and the offsets of the messages in flight."""
        found: list[tuple[int, int]] = []
        index, left = 0, self.open
        while left:
            if left & 1:
                found.append((1 << index, self.start + (self.gaps[index] if self.gaps else index)))
            index, left = index + 1, left >> 1
        return found

    def describe(self, invisible_ms: int, next_offset: int) -> items.Taken:
        """Return the item that writes this delivery again."""
        line = self.line
        return items.Taken(
            line.group,
            line.topic,
            line.kind,
            line.queue_id,
            self.start,
            self.pop_ms,
            invisible_ms,
            next_offset,
            list(self.gaps),
            self.open,
            self.suspended,
        )


class PopState:
    """Everything that is in flight."""

    def __init__(self, low: int = 0) -> None:
        self.lines: dict[LineKey, LineState] = {}
        self.pages = Pages(low)
        self.due = DueTimes()
        #: Messages in flight: all, and by group and topic of the requests. Deliveries that are not in order.
        self.in_flight = 0
        self.by_subscription: dict[tuple[str, str], int] = {}
        self.deliveries = 0
        #: Copies that the log announces, by the position of the original and the topic of the copy.
        self.moved: dict[tuple[int, str], items.Moved] = {}
        #: What the last mark says.
        self.marked = low

    # -- applying ----------------------------------------------------------------------------------------------------

    def apply(self, body: list[items.Item], at: int, now_ms: int) -> None:
        """Apply the items of the record at an offset of the log; `now_ms` is when it was stored."""
        for item in body:
            _APPLY[type(item)](self, item, at, now_ms)

    def _take(self, item: items.Taken, at: int, now_ms: int) -> None:
        line = self._open_line(item)
        key = make_key(item.start, item.pop_ms)
        known = line.deliveries.get(key)
        if known is not None:
            self._settle_bits(known, known.open)
        if item.open:
            delivery = line.deliveries[key] = Delivery(line, item)
            self._count(line, item.open.bit_count())
            self.deliveries += 1
            self.due.add(delivery)
            self.pages.keep(delivery, at, now_ms)
        if item.next >= 0:
            line.next = item.next
            self._put_order(line, None)
            self.pages.keep(line, at, now_ms)

    def _settle(self, item: items.Settled, at: int, now_ms: int) -> None:
        line = self.lines.get((item.group, item.topic, item.kind, item.queue_id))
        delivery = None if line is None else line.deliveries.get(make_key(item.start, item.pop_ms))
        if line is not None and delivery is not None:
            self._settle_bits(delivery, item.bits & delivery.open)

    def _settle_bits(self, delivery: Delivery, bits: int) -> None:
        line = delivery.line
        delivery.open &= ~bits
        self._count(line, -bits.bit_count())
        if not delivery.open:
            del line.deliveries[make_key(delivery.start, delivery.pop_ms)]
            self.deliveries -= 1
            self.due.remove(delivery)
            self.pages.drop(delivery)

    def _set_cursor(self, item: items.Cursor, at: int, now_ms: int) -> None:
        line = self._open_line(item)
        line.next = item.next
        self._put_order(line, None)
        self.pages.keep(line, at, now_ms)

    def _set_order(self, item: items.Ordered, at: int, now_ms: int) -> None:
        line = self._open_line(item)
        line.next = item.next
        self._put_order(line, item)
        self.pages.keep(line, at, now_ms)

    def _put_order(self, line: LineState, order: items.Ordered | None) -> None:
        if order is not None or line.order is not None:
            self._count(line, _count_open(order) - _count_open(line.order))
            line.order = order

    def _count(self, line: LineState, change: int) -> None:
        line.in_flight += change
        self.in_flight += change
        name = line.group, line.topic
        left = self.by_subscription.get(name, 0) + change
        if left:
            self.by_subscription[name] = left
        else:
            self.by_subscription.pop(name, None)

    def _move(self, item: items.Moved, at: int, now_ms: int) -> None:
        self.moved[item.position, item.to_topic] = item

    def _forget(self, item: items.Forgotten, at: int, now_ms: int) -> None:
        for line in [each for each in self.lines.values() if each.group == item.group or each.topic == item.topic]:
            self.drop_line(line)
        # The copies may be deleted, too.
        for key, moved in list(self.moved.items()):
            if moved.group == item.group or moved.topic == item.topic:
                del self.moved[key]

    def _mark(self, item: items.Mark, at: int, now_ms: int) -> None:
        self.marked = item.low

    # -- lines -------------------------------------------------------------------------------------------------------

    def _open_line(self, names: items.Line) -> LineState:
        key = names.group, names.topic, names.kind, names.queue_id
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = LineState(*key)
        return line

    def drop_line(self, line: LineState) -> None:
        """Forget a line, with everything that is in flight."""
        for delivery in list(line.deliveries.values()):
            self._settle_bits(delivery, delivery.open)
        self._put_order(line, None)
        self.pages.drop(line)
        self.lines.pop(line.key, None)

    def find(self, key: LineKey, start: int, pop_ms: int, offset: int) -> tuple[Delivery, int] | None:
        """Return the delivery of a message, and its bit; None if it is not in flight."""
        line = self.lines.get(key)
        delivery = None if line is None else line.deliveries.get(make_key(start, pop_ms))
        bit = 0 if delivery is None else delivery.find_bit(offset)
        return (delivery, bit) if delivery is not None and bit else None

    def find_free_time(self, key: LineKey, start: int, pop_ms: int) -> int:
        """Return the first time from `pop_ms` on with which a new delivery of a line has a name of its own."""
        line = self.lines.get(key)
        while line is not None and make_key(start, pop_ms) in line.deliveries:
            pop_ms += 1
        return pop_ms

    # -- running out -------------------------------------------------------------------------------------------------

    def take_due(self, now_ms: int, count_max: int) -> list[Delivery]:
        """Return deliveries that ran out; the caller settles or defers each."""
        found: list[Delivery] = []
        for delivery in islice(self.due.take(now_ms), count_max):
            assert isinstance(delivery, Delivery)
            # It is in no bucket.
            delivery.due_ms = -1
            found.append(delivery)
        return found

    def defer(self, delivery: Delivery, due_ms: int) -> None:
        """Let a delivery that ran out wait longer, because it cannot be delivered again now."""
        delivery.due_ms = due_ms
        self.due.add(delivery)

    # -- writing again -----------------------------------------------------------------------------------------------

    def list_old(self, end: int, records_max: int, before_ms: int) -> Iterator[Kept]:
        """Iterate over what is in the first page, if it is further behind than this, or older."""
        things, since_ms = self.pages.list_oldest(end)
        if things and (end - self.pages.find_low(end) > records_max or since_ms < before_ms):
            yield from things


def make_key(start: int, pop_ms: int) -> int:
    """Return the name of a delivery in its line."""
    return start << _TIME_BITS | pop_ms


def describe_line(line: LineState) -> items.Item:
    """Return the item that writes the place of a line again."""
    if line.order is not None:
        return line.order
    return items.Cursor(line.group, line.topic, line.kind, line.queue_id, line.next)


def _count_open(order: items.Ordered | None) -> int:
    return 0 if order is None else sum([not each.done for each in order.messages])


_APPLY: Final[dict[type, Callable[[PopState, Any, int, int], None]]] = {
    items.Taken: PopState._take,
    items.Settled: PopState._settle,
    items.Cursor: PopState._set_cursor,
    items.Ordered: PopState._set_order,
    items.Moved: PopState._move,
    items.Forgotten: PopState._forget,
    items.Mark: PopState._mark,
}
