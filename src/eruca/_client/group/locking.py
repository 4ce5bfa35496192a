"""Queue locks: a broker keeps a queue for one member of a group as long as the member renews its lock."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping

from eruca._client.group.inbox import Inbox
from eruca._client.session.session import Session
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConnectFailed, ErucaError

log = logging.getLogger(__name__)

# How long we rely on a lock after the broker granted it; the broker itself keeps it for twice as long.
LOCK_S = 30.0


class QueueLocks:
    """The locks of one consumer."""

    def __init__(self, session: Session, group: str, *, gives_up: bool) -> None:
        self._session = session
        self._group = group
        # Whether a queue whose lock was not confirmed for too long is given up; ordered queues only pause.
        self._gives_up = gives_up
        # What the broker may have locked for us, even if nobody waited for its answer.
        self.asked: set[MessageQueue] = set()
        # Lock requests in flight. A broker with several threads may process an unlock before an earlier lock. So an
        # unlock is sent only after the lock is answered, even if nobody waits for that answer anymore.
        self._asking: set[asyncio.Task[set[MessageQueue]]] = set()

    async def lock(self, queue: MessageQueue) -> bool:
        """Lock one queue; False when another member has it. Raises ErucaError when the broker cannot be asked."""
        address = self._session.routes.find_address(queue.broker_name, only_this=True)
        if address is None:
            raise ConnectFailed(f"broker {queue.broker_name} has no master now")
        self.asked.add(queue)
        got = await self._ask(address, [queue])
        if queue not in got:
            self.asked.discard(queue)
        return queue in got

    async def _ask(self, address: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        """Ask a broker for locks. The request continues when the caller is cancelled."""
        work = self._session.calls.lock(address, self._group, self._session.client_id, queues)
        task = asyncio.get_running_loop().create_task(work)
        self._asking.add(task)
        task.add_done_callback(self._end_asking)
        return await asyncio.shield(task)

    def _end_asking(self, task: asyncio.Task[set[MessageQueue]]) -> None:
        self._asking.discard(task)
        if not task.cancelled():
            task.exception()  # marks the exception as seen: there may be no caller left

    def renew(self, inbox: Inbox) -> None:
        """Record that the broker has just confirmed our lock of a queue."""
        inbox.locked_until = asyncio.get_running_loop().time() + LOCK_S
        inbox.locked_at_ms = self._session.clock.now_ms()

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release queues for others."""
        wanted = set(queues)
        if self._asking:
            await asyncio.wait(self._asking)  # each has its own timeout
        for broker, mine in _by_broker(wanted).items():
            self.asked.difference_update(mine)
            address = self._session.routes.find_address(broker, only_this=True)
            if address is None:
                continue
            try:
                await self._session.calls.unlock(address, self._group, self._session.client_id, mine)
            except ErucaError as error:
                log.warning("queues of broker %s stay locked until their locks expire: %s", broker, error)

    async def renew_all(
        self, inboxes: Mapping[MessageQueue, Inbox], lose: Callable[[MessageQueue], Awaitable[None]]
    ) -> None:
        """Renew the locks of all queues; `lose` is called with each queue that another member has or may have now."""
        for broker, mine in _by_broker(inboxes).items():
            try:
                await self._renew_at(broker, mine, inboxes, lose)
            except Exception:  # the locks of other brokers are still renewed
                log.exception("locks of broker %s could not be renewed", broker)

    async def _renew_at(
        self,
        broker: str,
        mine: list[MessageQueue],
        inboxes: Mapping[MessageQueue, Inbox],
        lose: Callable[[MessageQueue], Awaitable[None]],
    ) -> None:
        address = self._session.routes.find_address(broker, only_this=True)
        got: set[MessageQueue] | None = None
        try:
            if address is not None:  # without the broker no other member gets the lock either; ours expires
                got = await self._ask(address, mine)
        except ErucaError as error:
            self._session.outages.report(
                log, address or broker, error, "locks of broker %s could not be renewed: %s", broker, error
            )
        now = asyncio.get_running_loop().time()
        for queue in mine:
            inbox = inboxes.get(queue)
            if inbox is None:
                continue
            if got is not None and queue in got:
                self.renew(inbox)
            elif got is not None or (self._gives_up and inbox.locked_until < now):
                await lose(queue)


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        found[queue.broker_name].append(queue)
    return found
