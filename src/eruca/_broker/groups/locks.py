"""Queue locks: which member of a group may consume a queue in order.

A lock expires a minute after its last renewal, so that a dead member does not keep its queues forever. A client that
renews its locks more often may ask for a shorter time. Decisions only: the clock is passed in and nothing is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from eruca._broker.options import LiveOptions
from eruca._broker.refusals import refuse
from eruca._ground.clock import Clock
from eruca._net.guards import Reporter
from eruca._net.handlers import HandlerTable, Reply, Request
from eruca._net.meters import count_refused, show
from eruca._wire.bodies import LockBody, LockedBody, MessageQueue
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.names import check_group, check_label

log = logging.getLogger(__name__)

# Shorter locks would be lost in the pauses of any process.
_LIVE_MS_MIN = 1000


@dataclass(slots=True)
class _Lock:
    """The holder of a queue, and when its lock expires."""

    client_id: str
    ends_at: float


class QueueLocks:
    """The locks of every group."""

    def __init__(self, clock: Clock, options: LiveOptions) -> None:
        self._clock = clock
        self._options = options
        self._live_ms = options.now.lock_live_ms
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0
        self._reporter = Reporter(log)
        show("queue_locks", "Number of queue locks.", self, len)

    def __len__(self) -> int:
        return self._count

    def choose_live_ms(self, wanted: int) -> int:
        """Return how long locks last for a client that asks for a time: at most as long as all others."""
        return max(_LIVE_MS_MIN, min(wanted, self._live_ms))

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], live_ms: int | None = None
    ) -> list[MessageQueue]:
        """Lock queues for a client, or renew its locks; return the queues it holds now."""
        now = self._clock.monotonic()
        ends_at = now + (self._live_ms if live_ms is None else live_ms) / 1000
        locks = self._groups.setdefault(group, {})
        held: list[MessageQueue] = []
        for queue in dict.fromkeys(queues):
            lock = locks.get(queue)
            if lock is None:
                if not self._has_room(group, len(locks)):
                    break
                self._count += 1
                locks[queue] = _Lock(client_id, ends_at)
            elif lock.client_id == client_id:
                lock.ends_at = ends_at
            elif now > lock.ends_at:
                whose = f"queue {queue.queue_id} of {queue.topic} because {lock.client_id} did not renew its lock"
                self._reporter.report(f"group {group}", f"group {group}: {client_id} takes over {whose}")
                locks[queue] = _Lock(client_id, ends_at)
            else:
                continue
            held.append(queue)
        if not locks:
            del self._groups[group]
        return held

    def _has_room(self, group: str, count: int) -> bool:
        """Whether one more lock may be granted to a group that has this many."""
        options = self._options.now
        if self._count >= options.locks_max:
            key, most = "maxQueueLocks", options.locks_max
        elif count >= options.locks_of_group_max:
            key, most = "maxQueueLocksPerGroup", options.locks_of_group_max
        else:
            return True
        count_refused(key)
        text = f"group {group} gets no more queue locks: it has {count}, and all groups have {self._count}"
        self._reporter.report("full", f"{text} ({key}={most})")
        return False

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release queues; only their holder can."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            del self._groups[group]

    def remove_group(self, group: str) -> None:
        """Remove the locks of a deleted group."""
        self._count -= len(self._groups.pop(group, ()))

    def remove_topic(self, topic: str) -> None:
        """Remove the locks on the queues of a deleted topic."""
        self._keep(lambda queue, _: queue.topic != topic)

    def remove_expired(self) -> None:
        """Remove expired locks, so that groups that are gone leave nothing behind."""
        now = self._clock.monotonic()
        self._keep(lambda _, lock: now <= lock.ends_at)

    def _keep(self, is_kept: Callable[[MessageQueue, _Lock], bool]) -> None:
        for group in list(self._groups):
            locks = self._groups[group]
            left = {queue: lock for queue, lock in locks.items() if is_kept(queue, lock)}
            self._count -= len(locks) - len(left)
            if left:
                self._groups[group] = left
            else:
                del self._groups[group]


class LockHandlers:
    """Handles requests to lock and unlock queues."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks

    def register(self, table: HandlerTable) -> None:
        """Register the handlers."""
        table.add(RequestCode.LOCK_BATCH_MQ, self.lock)
        table.add(RequestCode.UNLOCK_BATCH_MQ, self.unlock)

    def lock(self, request: Request) -> Reply:
        """Lock queues for a member of a group."""
        body = _body_of(request)
        live_ms = None if body.eruca_lock_ms is None else self._locks.choose_live_ms(body.eruca_lock_ms)
        locked = self._locks.lock(body.consumer_group, body.client_id, body.mq_set, live_ms)
        return Reply(body=LockedBody(eruca_lock_ms=live_ms, locked=locked))

    def unlock(self, request: Request) -> Reply:
        """Release queues."""
        body = _body_of(request)
        self._locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return Reply()


def _body_of(request: Request) -> LockBody:
    body: LockBody | None = request.body
    if body is None:
        refuse(ResponseCode.SYSTEM_ERROR, "the request has no body with queues")
    check_group(body.consumer_group)
    check_label("client id", body.client_id)
    for queue in body.mq_set:
        check_label("topic", queue.topic)
        check_label("broker name", queue.broker_name)
    return body
