"""Chooses the queue for a message: the next in turn, one on a healthy broker, or the one the user chose."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

from eruca._client.produce.outgoing import read_text
from eruca._client.session.route import Route
from eruca._core.latency import LatencyFaults
from eruca._wire.bodies import MessageQueue
from eruca._wire.javahash import java_hash
from eruca.errors import MessageIllegal, NoRoute, WrongType

#: Chooses one of the queues of a topic for a message.
Selector: TypeAlias = Callable[[Sequence[MessageQueue]], MessageQueue]


class QueueChooser:
    """Picks the queues of a topic in turn; a retry goes to another broker."""

    def __init__(self, *, avoid_slow_brokers: bool = False) -> None:
        self.faults = LatencyFaults(enabled=avoid_slow_brokers)
        self._turn = random.randrange(2**31)

    def pick_next(self, route: Route) -> MessageQueue:
        """Return the next queue in turn; the route must have one that can be written to."""
        queues = route.write_queues
        self._turn = turn = self._turn + 1
        return queues[turn % len(queues)]

    def pick(self, route: Route, last: MessageQueue | None, now_ms: int) -> MessageQueue:
        """Return the queue for the next try; `last` is the queue of the last failed try."""
        queues = route.write_queues
        if not queues:
            raise explain_not_writable(route)
        faults = self.faults
        if last is None and not faults.enabled:
            return self.pick_next(route)
        self._turn += 1
        turn, count = self._turn, len(queues)
        for step in range(count):
            queue = queues[(turn + step) % count]
            if last is not None and queue.broker_name == last.broker_name:
                continue
            if faults.is_available(queue.broker_name, now_ms):
                return queue
        return self._pick_least_bad(queues, now_ms)

    def _pick_least_bad(self, queues: Sequence[MessageQueue], now_ms: int) -> MessageQueue:
        while (best := self.faults.pick_best(now_ms)) is not None:
            found = [queue for queue in queues if queue.broker_name == best]
            if found:
                return found[self._turn % len(found)]
            # This broker has no queue of this topic. If it is slow again for another topic, that is recorded anew.
            self.faults.forget(best)
        return queues[self._turn % len(queues)]


def choose_queue(shard: str | None, queue: MessageQueue | None, selector: Selector | None) -> Selector | None:
    """Return a selector for the user's choice of a queue; None if any queue will do."""
    given = (shard is not None) + (queue is not None) + (selector is not None)
    if not given:
        return None
    if given > 1:
        raise MessageIllegal("shard, queue and selector each choose the queue", hint="pass one of them")
    if shard is not None:
        text = read_text("shard", shard)
        return lambda queues: choose_by_shard(queues, text)
    if queue is not None:
        if not isinstance(queue, MessageQueue):
            raise WrongType(
                f"queue must be a MessageQueue, not {type(queue).__name__}: {queue!r:.80}; list_queues() returns them"
            )
        return lambda _: queue
    if not callable(selector):
        raise WrongType(f"selector must be a function, not {type(selector).__name__}: {selector!r:.80}")
    choose = selector

    def checked(queues: Sequence[MessageQueue]) -> MessageQueue:
        chosen = choose(queues)
        if not isinstance(chosen, MessageQueue):
            raise MessageIllegal(
                "the selector did not return a queue", hint="it must return one of the queues it is given"
            )
        return chosen

    return checked


def choose_by_shard(queues: Sequence[MessageQueue], shard: str) -> MessageQueue:
    """Return the queue of a shard: the same one that Java's selector by hash chooses."""
    # Java takes the remainder first and then its absolute value. The result is the same, for the smallest integer too.
    return queues[abs(java_hash(shard)) % len(queues)]


def explain_not_writable(route: Route) -> NoRoute:
    """Return the error for a topic that has brokers but no writable queue."""
    return NoRoute(
        f"topic {route.topic} has no queue that can be written to",
        hint="its brokers are down (eruca cluster list), or its permission forbids writing (eruca topic show)",
    )
