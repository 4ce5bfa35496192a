"""Queue locks: a broker keeps a queue for one member of a group as long as the member renews its lock."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping

from eruca._client.group.inbox import Inbox
from eruca._client.session.session import Session
from eruca._wire.bodies import LockedBody, MessageQueue
from eruca.errors import ConnectFailed, ErucaError

log = logging.getLogger(__name__)

# How long we rely on a lock of a broker that does not say how long it keeps it; RocketMQ's keeps it for twice as long.
LOCK_S = 30.0
# An Eruca broker keeps a lock for as long as we ask: for some renewals, but not for less than this.
_LIVE_S_MIN = 10.0
_RENEWALS = 3
# The part of that time for which we rely on it. We count from the request, the broker from its arrival.
_RELIED = 0.8
_PAUSE_S_MIN = 0.05


class QueueLocks:
    """The locks of one consumer."""

    def __init__(self, session: Session, group: str, interval_s: float, *, gives_up: bool) -> None:
        """`interval_s` is how often the locks are renewed."""
        self._session = session
        self._group = group
        # Whether a queue whose lock was not confirmed for too long is given up; ordered queues only pause.
        self._gives_up = gives_up
        self._interval_s = interval_s
        self._live_ms = round(max(_LIVE_S_MIN, _RENEWALS * interval_s) * 1000)
        # Until when we rely on each lock, by the clock of the loop.
        self._until: dict[MessageQueue, float] = {}
        # What the broker may have locked for us, even if nobody waited for its answer.
        self.asked: set[MessageQueue] = set()
        # Lock requests in flight. A broker with several threads may process an unlock before an earlier lock. So an
        # unlock is sent only after the lock is answered, even if nobody waits for that answer anymore.
        self._asking: set[asyncio.Task[LockedBody]] = set()

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
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        work = self._session.calls.lock(address, self._group, self._session.client_id, queues, self._live_ms)
        task = loop.create_task(work)
        self._asking.add(task)
        task.add_done_callback(self._end_asking)
        answer = await asyncio.shield(task)
        relied_s = LOCK_S if answer.eruca_lock_ms is None else _RELIED * answer.eruca_lock_ms / 1000
        got = set(answer.locked)
        self._until |= dict.fromkeys(got, asked_at + relied_s)
        return got

    def _end_asking(self, task: asyncio.Task[LockedBody]) -> None:
        self._asking.discard(task)
        if not task.cancelled():
            task.exception()  # marks the exception as seen: there may be no caller left

    def renew(self, inbox: Inbox) -> None:
        """Record that the broker has confirmed our lock of a queue."""
        inbox.locked_until = self._until.get(inbox.queue, 0.0)
        inbox.locked_at_ms = self._session.clock.now_ms()

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release queues for others."""
        wanted = set(queues)
        if self._asking:
            await asyncio.wait(self._asking)  # each has its own timeout
        for queue in wanted:
            self._until.pop(queue, None)
        for broker, mine in _by_broker(wanted).items():
            self.asked.difference_update(mine)
            address = self._session.routes.find_address(broker, only_this=True)
            if address is None:
                continue
            try:
                await self._session.calls.unlock(address, self._group, self._session.client_id, mine)
            except ErucaError as error:
                log.warning("queues of broker %s stay locked until their locks expire: %s", broker, error)

    def find_pause(self, inboxes: Iterable[Inbox]) -> float:
        """Return how long to wait before the next renewal: at most until a queue must be given up."""
        now = asyncio.get_running_loop().time()
        ends = [inbox.locked_until - now for inbox in inboxes if not inbox.is_lost] if self._gives_up else []
        return max(_PAUSE_S_MIN, min([self._interval_s, *ends]))

    async def renew_all(
        self, inboxes: Mapping[MessageQueue, Inbox], lose: Callable[[MessageQueue], Awaitable[None]]
    ) -> None:
        """Renew the locks of all queues; `lose` is called with each queue that another member has or may have now."""
        ours = [queue for queue, inbox in inboxes.items() if not inbox.is_lost]
        # At the same time: a broker that does not answer must not cost us the locks of the others.
        renewals = [self._renew_at(broker, mine, inboxes, lose) for broker, mine in _by_broker(ours).items()]
        for error in await asyncio.gather(*renewals, return_exceptions=True):
            if error is not None:
                log.error("not all locks could be renewed", exc_info=error)

    async def _renew_at(
        self,
        broker: str,
        mine: list[MessageQueue],
        inboxes: Mapping[MessageQueue, Inbox],
        lose: Callable[[MessageQueue], Awaitable[None]],
    ) -> None:
        if self._gives_up:
            mine = await self._drop_ended(mine, inboxes, lose)
        if not mine:
            return
        address = self._session.routes.find_address(broker, only_this=True)
        got: set[MessageQueue] | None = None
        try:
            if address is not None:  # without the broker no other member gets the lock either; ours expires
                async with asyncio.timeout_at(self._find_first_end(mine, inboxes)):
                    got = await self._ask(address, mine)
        except TimeoutError:
            log.debug("broker %s does not answer while its locks end", broker)
        except ErucaError as error:
            self._session.outages.report(
                log, address or broker, error, "locks of broker %s could not be renewed: %s", broker, error
            )
        for queue in mine:
            inbox = inboxes.get(queue)
            if inbox is None or got is None:
                continue
            if queue in got:
                self.renew(inbox)
            else:
                await lose(queue)

    def _find_first_end(self, mine: list[MessageQueue], inboxes: Mapping[MessageQueue, Inbox]) -> float | None:
        """Return when the first lock ends, if its queue must be given up then."""
        ends = [inboxes[queue].locked_until for queue in mine if queue in inboxes] if self._gives_up else []
        return min(ends, default=None)

    async def _drop_ended(
        self,
        mine: list[MessageQueue],
        inboxes: Mapping[MessageQueue, Inbox],
        lose: Callable[[MessageQueue], Awaitable[None]],
    ) -> list[MessageQueue]:
        """Lose the queues whose locks were not confirmed for too long, without asking; returns the others."""
        now = asyncio.get_running_loop().time()
        ended = [queue for queue in mine if queue in inboxes and inboxes[queue].locked_until <= now + _PAUSE_S_MIN]
        for queue in ended:
            await lose(queue)
        return [queue for queue in mine if queue not in ended]


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        found[queue.broker_name].append(queue)
    return found
