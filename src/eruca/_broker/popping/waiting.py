"""Pops that wait for messages: in rooms, one for each group and topic.

A message wakes the rooms of its topic, two turns of the loop later, so that the answer to its sender goes out first.
Then the requests of a room are tried in order; when one finds nothing, those that ask for the same are not tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TypeAlias

from eruca._broker.options import LiveOptions
from eruca._broker.popping.contract import PopRequest, PopResult, PopStatus
from eruca._ground.limits import SLICE_SECONDS
from eruca._net.meters import count_refused, show
from eruca._net.turns import find_turns
from eruca._store.queues.dispatch import Grown
from eruca._store.reading.slices import Filter
from eruca._wire.names import name_pop_retry

#: Delivers to a request; also returns the seconds until a queue that is blocked now is free, 0 if none is.
Take: TypeAlias = Callable[[PopRequest, Filter | None], tuple[PopResult, float]]


@dataclass(slots=True, eq=False)
class _Waiter:
    request: PopRequest
    accept: Filter | None
    done: asyncio.Future[PopResult]

    @property
    def kind(self) -> tuple[int, bool, str, str]:
        """Requests of one room and kind get the same messages."""
        request = self.request
        return request.queue_id, request.fifo, request.filter_kind, request.filter_text


class _Room:
    __slots__ = ("alarm", "key", "waiters")

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.waiters: dict[_Waiter, None] = {}
        # Wakes the room when a queue that is read in order is free again.
        self.alarm: asyncio.TimerHandle | None = None


class WaitingPops:
    """All waiting pops of a broker."""

    def __init__(self, options: LiveOptions, take: Take, give_back: Callable[[PopRequest, PopResult], None]) -> None:
        """`give_back` is called with messages that were delivered to a request that was cancelled."""
        self._options = options
        self._take = take
        self._give_back = give_back
        self._rooms: dict[tuple[str, str], _Room] = {}
        # By the topic in which messages arrive: the topic itself, or the retry topic.
        self._by_topic: dict[str, dict[_Room, None]] = {}
        self._count = 0
        # Rooms to be tried.
        self._woken: dict[_Room, None] = {}
        self._is_due = False
        show("waiting_pops", "Number of pops that wait for messages.", self, len)

    def __len__(self) -> int:
        return self._count

    async def wait(self, request: PopRequest, accept: Filter | None, deadline: float, free_s: float) -> PopResult:
        """Wait for messages until a time of the loop's clock."""
        options, key = self._options.now, (request.group, request.topic)
        room = self._rooms.get(key)
        if self._count >= options.pop_waiting_max:
            count_refused("maxPopPollingSize")
            return PopResult(PopStatus.POLLING_FULL)
        if room is not None and len(room.waiters) >= options.pop_waiting_of_group_max:
            count_refused("popPollingSize")
            return PopResult(PopStatus.POLLING_FULL)
        loop = asyncio.get_running_loop()
        waiter = _Waiter(request, accept, loop.create_future())
        room = self._enter(key, waiter)
        self._set_alarm(room, free_s)
        timer = loop.call_at(deadline, _finish, waiter, PopResult(PopStatus.NOTHING))
        try:
            return await waiter.done
        except asyncio.CancelledError:
            if waiter.done.done() and not waiter.done.cancelled() and waiter.done.exception() is None:
                self._give_back(request, waiter.done.result())
            raise
        finally:
            timer.cancel()
            self._leave(room, waiter)

    def _enter(self, key: tuple[str, str], waiter: _Waiter) -> _Room:
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = _Room(key)
            for topic in _list_topics(key):
                self._by_topic.setdefault(topic, {})[room] = None
        room.waiters[waiter] = None
        self._count += 1
        return room

    def _leave(self, room: _Room, waiter: _Waiter) -> None:
        if room.waiters.pop(waiter, waiter) is waiter:
            return
        self._count -= 1
        if room.waiters:
            return
        if room.alarm is not None:
            room.alarm.cancel()
        del self._rooms[room.key]
        self._woken.pop(room, None)
        for topic in _list_topics(room.key):
            rooms = self._by_topic[topic]
            del rooms[room]
            if not rooms:
                del self._by_topic[topic]

    # -- waking ------------------------------------------------------------------------------------------------------

    def on_dispatched(self, grown: Grown) -> None:
        """Messages were stored and these queues have grown; hot path."""
        rooms = self._by_topic
        if rooms:
            for queue, _ in grown:
                if queue.topic in rooms:
                    self.wake_topic(queue.topic)

    def on_readable(self, topic: str, queue_id: int, begin: int, end: int) -> None:
        """Hidden messages became readable."""
        self.wake_topic(topic)

    def wake_topic(self, topic: str) -> None:
        """Try the requests that wait for messages of a stored topic."""
        for room in self._by_topic.get(topic, ()):
            self._wake(room)

    def wake(self, group: str, topic: str) -> None:
        """Try the requests of a group for a topic."""
        room = self._rooms.get((group, topic))
        if room is not None:
            self._wake(room)

    def wake_all(self) -> None:
        """Try all requests."""
        for room in self._rooms.values():
            self._wake(room)

    def release_all(self) -> None:
        """Answer all requests, with nothing."""
        for room in self._rooms.values():
            for waiter in room.waiters:
                _finish(waiter, PopResult(PopStatus.NOTHING))

    def _wake(self, room: _Room) -> None:
        self._woken[room] = None
        if not self._is_due:
            self._is_due = True
            loop = asyncio.get_running_loop()
            # The iteration after the one in which slaves are sent new data.
            loop.call_soon(loop.call_soon, loop.call_soon, self._serve)

    def _set_alarm(self, room: _Room, free_s: float) -> None:
        if free_s <= 0:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + free_s
        if room.alarm is None or room.alarm.cancelled() or room.alarm.when() > at or room.alarm.when() <= loop.time():
            if room.alarm is not None:
                room.alarm.cancel()
            room.alarm = loop.call_at(at, self._wake, room)

    def _serve(self) -> None:
        """Try the requests of woken rooms, for at most one time slice."""
        end = perf_counter() + SLICE_SECONDS
        self._is_due = False
        while self._woken:
            room = next(iter(self._woken))
            if not self._try(room, end):
                # The next room first, then the rest of this one.
                del self._woken[room]
                self._woken[room] = None
            else:
                del self._woken[room]
            if self._woken and perf_counter() >= end:
                self._is_due = True
                find_turns(asyncio.get_running_loop()).call(self._serve)
                return

    def _try(self, room: _Room, end: float) -> bool:
        """Deliver to the requests of a room; return whether all were tried."""
        empty: set[tuple[int, bool, str, str]] = set()
        free_s = 0.0
        for waiter in list(room.waiters):
            if waiter.done.done() or waiter.kind in empty:
                continue
            if waiter.request.is_wanted is not None and not waiter.request.is_wanted():
                _finish(waiter, PopResult(PopStatus.NOTHING))
                continue
            if perf_counter() >= end:
                return False
            try:
                result, blocked_s = self._take(waiter.request, waiter.accept)
            except Exception as error:
                waiter.done.set_exception(error)
                continue
            if result.messages:
                _finish(waiter, result)
            else:
                empty.add(waiter.kind)
                free_s = min(free_s or blocked_s, blocked_s or free_s)
        self._set_alarm(room, free_s)
        return True


def _list_topics(key: tuple[str, str]) -> tuple[str, str]:
    group, topic = key
    return topic, name_pop_retry(group, topic)


def _finish(waiter: _Waiter, result: PopResult) -> None:
    if not waiter.done.done():
        waiter.done.set_result(result)
