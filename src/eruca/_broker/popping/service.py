"""Popping: any member of a group gets messages of any queue, and again those that nobody acknowledged in time.

    pop      reads the next messages, writes down that they are in flight, and moves the group's offset behind them
    ack      writes down that they are not any more, and waits until that is as safe as a stored message
    revive   copies what ran out to the retry topic of group and topic, which the group pops as well (`redelivery`)

The state is in memory (`core.popping`), and every change of it in a log (`poplog`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eruca._broker.delaying.steadytime import SteadyTime
from eruca._broker.groups.offsets import Offsets
from eruca._broker.options import LiveOptions
from eruca._broker.popping.admission import Admission
from eruca._broker.popping.contract import Outcome, PopRequest, PopResult, PopStatus
from eruca._broker.popping.copies import Copies, name_stored_topic
from eruca._broker.popping.ordering import Ordering
from eruca._broker.popping.poplog import PopLog
from eruca._broker.popping.taking import Taking
from eruca._broker.popping.waiting import WaitingPops
from eruca._broker.refusals import refuse_store_error
from eruca._broker.replication.acknowledging import Acknowledgement
from eruca._core.popping import inorder
from eruca._core.popping.state import Delivery, LineKey, LineState
from eruca._net.turns import find_turns
from eruca._store.messagestore import MessageStore
from eruca._store.reading.slices import Filter
from eruca._wire.codes import ResponseCode
from eruca._wire.handle import NORMAL, RETRY, Handle
from eruca._wire.poplog import Item, Ordered, Settled, Taken
from eruca.errors import StoreError

# How often a pop that waits for nothing looks into more queues; each time it begins with another one.
_TURNS_MAX: Final = 16
# A waiting pop looks into more queues after this time.
_AGAIN_S: Final = 0.005
# Without a slave there is nothing to wait for.
_OUTCOMES: Final = {
    ResponseCode.SUCCESS: Outcome.DONE,
    ResponseCode.SLAVE_NOT_AVAILABLE: Outcome.DONE,
    ResponseCode.FLUSH_DISK_TIMEOUT: Outcome.UNSAFE_DISK,
}


@dataclass(eq=False)
class PopService:
    """Pops, acknowledgements and changes; `contract.Popping` says what each does."""

    _options: LiveOptions
    _store: MessageStore
    _offsets: Offsets
    _steady: SteadyTime
    _acknowledgement: Acknowledgement
    _admission: Admission
    _log: PopLog
    _copies: Copies
    _taking: Taking
    _ordering: Ordering

    def __post_init__(self) -> None:
        #: Pops that wait for messages.
        self.waiting = WaitingPops(self._options, self._take, self._give_back)

    @property
    def in_flight(self) -> int:
        """The number of messages in flight."""
        return self._log.state.in_flight

    def count_in_flight(self, group: str, topic: str) -> int:
        """Return the number of messages of a topic that a group has popped and not acknowledged."""
        return self._log.state.by_subscription.get((group, topic), 0)

    # -- popping -----------------------------------------------------------------------------------------------------

    async def pop(self, request: PopRequest) -> PopResult:
        """Deliver messages, or wait for some. A cancelled call delivers nothing."""
        self._admission.check_pop(request)
        accept = await self._admission.find_filter(request)
        if request.is_wanted is not None and not request.is_wanted():
            return PopResult(PopStatus.NOTHING)
        result, free_s = self._take(request, accept)
        turns = find_turns(asyncio.get_running_loop())
        for _ in range(_TURNS_MAX):
            if result.messages or not self._taking.was_cut:
                break
            await turns.wait()
            result, free_s = self._take(request, accept)
        if result.messages or request.deadline is None or request.deadline <= asyncio.get_running_loop().time():
            return result
        return await self.waiting.wait(request, accept, request.deadline, free_s)

    def _take(self, request: PopRequest, accept: Filter | None) -> tuple[PopResult, float]:
        """Deliver what there is; also return the seconds until a blocked queue is free, 0 if none is blocked."""
        self._admission.check_master()
        now_ms = self._steady.now_ms()
        try:
            if not request.fifo:
                result = self._taking.take(request, accept, now_ms)
                return result, _AGAIN_S if self._taking.was_cut else 0.0
            self._taking.was_cut = False
            result, free_ms = self._ordering.take(request, accept, now_ms)
        except StoreError as error:
            raise refuse_store_error(error, self._store) from error
        return result, max(0.001, (free_ms - now_ms) / 1000) if free_ms else 0.0

    def wake_capped(self) -> None:
        """Try pops again that wait because too much was in flight."""
        if self._taking.is_capped:
            self._taking.is_capped = False
            self.waiting.wake_all()

    def _give_back(self, request: PopRequest, result: PopResult) -> None:
        """Make messages visible that were delivered to nobody."""
        for popped in result.messages:
            try:
                self._change(request.group, request.topic, popped.handle, 0, suspend=True)
            except StoreError:
                return  # they are visible after their time

    # -- acknowledging -----------------------------------------------------------------------------------------------

    async def ack(self, group: str, topic: str, handle: Handle) -> Outcome:
        """Acknowledge a message."""
        return (await self.ack_many(group, topic, (handle,)))[0]

    async def ack_many(self, group: str, topic: str, handles: Sequence[Handle]) -> list[Outcome]:
        """Acknowledge several messages in one write; returns an outcome for each."""
        self._admission.check_master()
        outcomes: list[Outcome] = []
        bits: dict[Delivery, int] = {}
        ordered: dict[LineKey, tuple[Ordered, list[int]]] = {}
        for handle in handles:
            key = (group, topic, handle.kind, handle.queue_id)
            outcome = Outcome.GONE
            if not self._is_ours(handle):
                outcome = Outcome.INVALID
            elif handle.is_ordered:
                state = self._find_ordered(key, handle)
                if state is not None:
                    known = ordered.setdefault(key, (state, []))[1]
                    if handle.offset not in known:
                        known.append(handle.offset)
                        outcome = Outcome.DONE
            elif (found := self._log.state.find(key, handle.start, handle.pop_ms, handle.offset)) is not None:
                delivery, bit = found
                if not bits.get(delivery, 0) & bit:
                    bits[delivery] = bits.get(delivery, 0) | bit
                    outcome = Outcome.DONE
            outcomes.append(outcome)
        body: list[Item] = [_settle(delivery, mask) for delivery, mask in bits.items()]
        states = [inorder.settle(state, offsets) for state, offsets in ordered.values()]
        if body or states:
            safe = await self._make_safe(self._write([*body, *states], states))
            outcomes = [safe if outcome is Outcome.DONE else outcome for outcome in outcomes]
        return outcomes

    async def change(
        self, group: str, topic: str, handle: Handle, invisible_ms: int, *, suspend: bool = False
    ) -> tuple[Outcome, Handle]:
        """Make a message visible after another time from now on; returns the new handle."""
        self._admission.check_master()
        self._admission.check_invisible(invisible_ms)
        if not self._is_ours(handle):
            return Outcome.INVALID, handle
        try:
            changed = self._change(group, topic, handle, invisible_ms, suspend=suspend)
        except StoreError as error:
            raise refuse_store_error(error, self._store) from error
        if changed is None:
            return Outcome.GONE, handle
        end, following = changed
        return await self._make_safe(end), following

    def _change(
        self, group: str, topic: str, handle: Handle, invisible_ms: int, *, suspend: bool
    ) -> tuple[int, Handle] | None:
        """Write down a change; return where the record ends, and the new handle. None: the handle is void."""
        key, now_ms = (group, topic, handle.kind, handle.queue_id), self._steady.now_ms()
        if handle.is_ordered:
            state = self._find_ordered(key, handle)
            if state is None:
                return None
            now_ms = max(now_ms, handle.pop_ms + 1)
            state = inorder.postpone(state, handle.offset, now_ms, now_ms + invisible_ms, suspended=suspend)
            end = self._log.write([state])
            self.waiting.wake(group, topic)
            start = handle.start
        else:
            found = self._log.state.find(key, handle.start, handle.pop_ms, handle.offset)
            if found is None:
                return None
            start = handle.offset
            now_ms = self._log.state.find_free_time(key, start, now_ms)
            taken = Taken(*key, start, now_ms, invisible_ms, -1, [], 1, suspend)
            end = self._log.write([_settle(*found), taken])
        following = Handle(
            start,
            now_ms,
            invisible_ms,
            handle.revive_queue,
            handle.kind,
            handle.broker,
            handle.queue_id,
            handle.offset,
            handle.position,
        )
        return end, following

    async def bury(self, group: str, topic: str, handle: Handle) -> Outcome:
        """Move a message to the dead letters of its group and acknowledge it."""
        self._admission.check_master()
        if not self._is_ours(handle):
            return Outcome.INVALID
        key = (group, topic, handle.kind, handle.queue_id)
        body: list[Item] = []
        states: list[Ordered] = []
        if handle.is_ordered:
            state = self._find_ordered(key, handle)
            if state is None:
                return Outcome.GONE
            states.append(inorder.settle(state, (handle.offset,)))
        else:
            found = self._log.state.find(key, handle.start, handle.pop_ms, handle.offset)
            if found is None:
                return Outcome.GONE
            body.append(_settle(*found))
        line = LineState(*key)
        original = self._copies.find_original(line, handle.offset)
        now_ms = self._steady.now_ms()
        try:
            self._copies.store_owed(now_ms)
            if original is not None:
                body += self._copies.announce(line, [(original, False)], dead=True)
            end = self._write([*body, *states], states)
            end = max(end, self._copies.store_announced(body, now_ms))
        except StoreError as error:
            raise refuse_store_error(error, self._store) from error
        return await self._make_safe(end)

    # -- common ------------------------------------------------------------------------------------------------------

    def _is_ours(self, handle: Handle) -> bool:
        return handle.broker == self._options.now.name and handle.kind in (NORMAL, RETRY)

    def _find_ordered(self, key: LineKey, handle: Handle) -> Ordered | None:
        """Return the state of a line in which a message was delivered with a handle; None if the handle is void."""
        line = self._log.state.lines.get(key)
        state = None if line is None else line.order
        if state is None or inorder.find(state, handle.offset, handle.pop_ms) is None:
            return None
        return state

    def _write(self, body: list[Item], states: list[Ordered]) -> int:
        """Write items, and adopt the states of lines that are read in order among them."""
        try:
            end = self._log.write(body)
        except StoreError as error:
            raise refuse_store_error(error, self._store) from error
        for state in states:
            line = self._log.state.lines[state.group, state.topic, state.kind, state.queue_id]
            self._offsets.put(state.group, name_stored_topic(line), state.queue_id, state.next)
            self.waiting.wake(state.group, state.topic)
        return end

    async def _make_safe(self, end: int) -> Outcome:
        """Wait until what ends at a position survives what the options demand."""
        if not self._acknowledgement.needs_wait(True):
            return Outcome.DONE
        code = await self._acknowledgement.wait(end)
        return _OUTCOMES.get(code, Outcome.UNSAFE_SLAVE)


def _settle(delivery: Delivery, bits: int) -> Settled:
    line = delivery.line
    return Settled(line.group, line.topic, line.kind, line.queue_id, delivery.start, delivery.pop_ms, bits)
