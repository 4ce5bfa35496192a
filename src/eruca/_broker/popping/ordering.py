"""Taking messages in order: each queue delivers on only when what it delivered is acknowledged or visible again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eruca._broker.groups.offsets import Offsets
from eruca._broker.options import LiveOptions
from eruca._broker.popping.contract import Popped, PopRequest, PopResult, PopStatus
from eruca._broker.popping.copies import Copies
from eruca._broker.popping.poplog import PopLog
from eruca._broker.popping.taking import COUNT_MAX, Record, Source, Taking, read_place
from eruca._core.popping import inorder
from eruca._core.popping.state import LineState
from eruca._store.messagestore import MessageStore
from eruca._store.queues.consumequeue import ConsumeQueue
from eruca._store.reading.slices import Filter
from eruca._wire.handle import ORDERED_QUEUE, Handle
from eruca._wire.poplog import Item, Ordered
from eruca._wire.record import decode_record

_FREE: Final = 0


@dataclass(eq=False)
class Ordering:
    """Takes messages in order."""

    _options: LiveOptions
    _store: MessageStore
    _offsets: Offsets
    _log: PopLog
    _copies: Copies
    _taking: Taking

    def take(self, request: PopRequest, accept: Filter | None, now_ms: int) -> tuple[PopResult, int]:
        """Deliver what there is, and return when the first blocked queue is free; 0: none is blocked.

        Raises StoreError if that cannot be written down.
        """
        result = PopResult(PopStatus.NOTHING, pop_ms=now_ms, invisible_ms=request.invisible_ms)
        free_ms = _FREE
        sources = self._taking.list_sources(request)
        for source in sources:
            left = min(request.count, COUNT_MAX) - len(result.messages)
            queue = self._store.queues.get(source.topic, source.line.queue_id)
            if left <= 0:
                break
            if queue is None:
                continue
            blocked_until = self._take_line(source, queue, request, accept, left, result)
            if blocked_until:
                free_ms = min(free_ms or blocked_until, blocked_until)
        if result.messages:
            result.status = PopStatus.FOUND
            result.rest = sum([self._taking.count_waiting(source) for source in sources])
        return result, free_ms

    def _take_line(
        self,
        source: Source,
        queue: ConsumeQueue,
        request: PopRequest,
        accept: Filter | None,
        count: int,
        result: PopResult,
    ) -> int:
        """Deliver the next messages of a queue; return until when it is blocked, 0 if it is not."""
        now_ms = result.pop_ms
        offset = self._taking.find_next(source, queue, latest=request.latest)
        state = self.find_state(source, offset)
        repeated = inorder.is_repeated(state, request.attempt_id, now_ms)
        if repeated:
            records = self._read_again(queue, inorder.list_repeated(state))
            end = state.end
        elif (free_ms := inorder.find_free_ms(state)) > now_ms:
            return free_ms
        else:
            records, end = self._read(source, offset, request, accept, count, state)
            # What is not there any more, or does not match any more, blocks nothing.
            state = inorder.settle(
                state, [each.offset for each in state.messages if each.offset < end and each.offset not in records]
            )
        if not records:
            if not repeated and not state.messages and end > offset:
                # Nothing matches up to here.
                self._offsets.put(request.group, source.topic, source.line.queue_id, end)
            return _FREE
        # The last try may be repeated.
        alive, dead = (records, {}) if repeated else self._divide(source, state, records)
        items: list[Item] = []
        if dead:
            self._copies.store_owed(now_ms)
            line = LineState(*source.key)
            items += self._copies.announce(line, [(decode_record(each), False) for each in dead.values()], dead=True)
        following = inorder.deliver(
            state, [*alive, *dead], end, now_ms, request.invisible_ms, request.attempt_id, repeated=repeated
        )
        if dead:
            following = inorder.settle(following, dead)
        self._log.write([*items, following])
        if dead:
            self._copies.store_announced(items, now_ms)
        self._offsets.put(request.group, source.topic, source.line.queue_id, following.next)
        self._add(source, following, alive, result)
        return _FREE

    def find_state(self, source: Source, offset: int) -> Ordered:
        """Return the state of a line; an offset that was reset begins a new one."""
        line = self._log.state.lines.get(source.key)
        if line is None or line.order is None or line.order.next != offset:
            return inorder.begin(source.line, offset)
        return line.order

    def _read(
        self, source: Source, offset: int, request: PopRequest, accept: Filter | None, count: int, state: Ordered
    ) -> tuple[dict[int, Record], int]:
        """Read the next messages, without those that were acknowledged before messages in front of them."""
        # As many more as may have to be left out.
        wanted = count + sum([each.done for each in state.messages])
        bytes_max = self._options.now.transfer_bytes_memory
        found = self._taking.read(source, offset, wanted, bytes_max, accept)
        records: dict[int, Record] = {}
        end = found.next_offset
        for record in found.slices:
            place, _, _ = read_place(record)
            if inorder.is_done(state, place):
                continue
            if len(records) == count:
                end = place
                break
            records[place] = record
        return records, end

    def _read_again(self, queue: ConsumeQueue, offsets: list[int]) -> dict[int, Record]:
        records: dict[int, Record] = {}
        for offset in offsets:
            entry = queue.entry(offset)
            view = None if entry is None else self._store.reader.view_record(entry.position)
            if view is not None:
                records[offset] = view
        return records

    def _divide(
        self, source: Source, state: Ordered, records: dict[int, Record]
    ) -> tuple[dict[int, Record], dict[int, Record]]:
        """Divide messages into those to deliver and those that were delivered too often."""
        tries = self._copies.find_tries(source.line.group)
        alive: dict[int, Record] = {}
        dead: dict[int, Record] = {}
        for offset, record in records.items():
            (dead if inorder.count_deliveries(state, offset) > tries else alive)[offset] = record
        return alive, dead

    def _add(self, source: Source, state: Ordered, records: dict[int, Record], result: PopResult) -> None:
        broker, invisible_ms = self._options.now.name, result.invisible_ms
        counts = {each.offset: each.count for each in state.messages}
        line = source.line
        start = min(records, default=0)
        for offset, record in records.items():
            _, position, times = read_place(record)
            handle = Handle(
                start, result.pop_ms, invisible_ms, ORDERED_QUEUE, line.kind, broker, line.queue_id, offset, position
            )
            attempt = times + max(1, counts.get(offset, 1))
            result.messages.append(Popped(record, line.topic, line.queue_id, offset, handle, attempt))
