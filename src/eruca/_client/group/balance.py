"""Which queues are assigned to us: checked on every notification of a change, and periodically in case one is lost."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum

from eruca._client.session.route import Route
from eruca._client.session.routes import NAME_SERVERS
from eruca._client.session.session import Session
from eruca._core.allocation import Strategy, plan_change, sort_clients
from eruca._ground.backoff import spread
from eruca._ground.repeating import Repeating
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import MASTER_ID
from eruca.errors import ErucaError, NetError, NoRoute

log = logging.getLogger(__name__)

_RETRY_S = 1.0
_JITTER = 0.1
_TAKEN_AT_ONCE = 32


class Taken(Enum):
    """The result of taking a queue that the strategy assigns to us."""

    OURS = "ours"
    # Another member has not released it yet.
    HELD = "held by another"
    # Something failed. As with HELD, it is tried again soon.
    FAILED = "failed"


class Balance:
    """Divides the queues of topics among the members of a group."""

    def __init__(
        self,
        session: Session,
        group: str,
        strategy: Strategy,
        *,
        broadcast: bool,
        interval_s: float,
        take: Callable[[MessageQueue], Awaitable[Taken]],
        drop: Callable[[MessageQueue], Awaitable[None]],
        tell: Callable[[list[MessageQueue], list[MessageQueue]], Awaitable[None]],
        begin: Callable[[MessageQueue], None],
    ) -> None:
        self._session = session
        self._group = group
        self._strategy = strategy
        self._broadcast = broadcast
        self._interval_s = interval_s
        # Called to take a queue that is assigned to us, and then, once `tell` has returned, to read it.
        self._take = take
        self._begin = begin
        # Called to release a queue that is no longer assigned to us.
        self._drop = drop
        # Called with the queues newly assigned, and those about to be revoked.
        self._tell = tell
        # Our queues, by topic.
        self.owned: dict[str, set[MessageQueue]] = {}
        # All queues of a topic when it was first seen; queues that appear later are new.
        self.first_seen: dict[str, frozenset[MessageQueue]] = {}
        # Set once every topic was balanced once: its queues are assigned, or it has none yet.
        self.settled = asyncio.Event()
        # Topics that are not balanced yet because something failed, and why.
        self.unsettled: dict[str, str] = {}
        self._topics: dict[str, None] = {}
        # The server that was asked last, for error reports.
        self._asked = NAME_SERVERS
        self._lock = asyncio.Lock()
        self._sharing = Repeating(
            f"the assignment of queues in group {group}",
            self._share,
            lambda: self._interval_s,
            at_once=True,
            jitter=_JITTER,
        )

    def start(self) -> None:
        """Balance the queues now, and again whenever there is a reason to."""
        self._sharing.start()

    async def stop(self) -> None:
        """Stop balancing; keep everything as it is."""
        self.settled.set()  # a waiting start need not wait any longer
        await self._sharing.stop()

    def set_topics(self, topics: Iterable[str]) -> None:
        """Set the topics to balance."""
        self._topics = dict.fromkeys(topics)

    def wake(self) -> None:
        """Check the assignment again now."""
        self._sharing.wake()

    async def _share(self) -> float | None:
        return None if await self.balance() else spread(min(_RETRY_S, self._interval_s), _JITTER)

    async def balance(self) -> bool:
        """Check every topic once; False when something is to be tried again soon."""
        async with self._lock:
            all_well = True
            self.unsettled = {}
            for topic in [*self._topics, *(self.owned.keys() - self._topics.keys())]:
                try:
                    all_well &= await self._balance_topic(topic)
                except NoRoute as error:
                    # If it appears later, all its messages were sent while the group was listening.
                    self.first_seen.setdefault(topic, frozenset())
                    log.debug("the queues of %s are not assigned now: %s", topic, error)
                except ErucaError as error:
                    self._session.outages.report(
                        log, self._asked, error, "the queues of %s could not be assigned now: %s", topic, error
                    )
                    self.unsettled[topic] = str(error)
                    all_well = False
                except Exception as error:
                    # For example in a user's strategy. Without this, no queue would ever be assigned again.
                    log.exception("the queues of %s could not be assigned now", topic)
                    self.unsettled[topic] = repr(error)
                    all_well = False
            if not self.unsettled:
                self.settled.set()
            return all_well

    async def wait_settled(self, seconds: float) -> None:
        """Wait until every topic was balanced once and the start offsets are known, for at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self.settled.wait()
        except TimeoutError:
            reasons = "; ".join([f"{topic}: {reason}" for topic, reason in self.unsettled.items()])
            log.warning(
                "group %s has started without all its queues, and keeps trying (%s)",
                self._group,
                reasons or f"the brokers did not answer within {seconds:.0f} s",
            )

    async def _balance_topic(self, topic: str) -> bool:
        owned = self.owned.setdefault(topic, set())
        if topic not in self._topics:
            allotted: list[MessageQueue] = []
            everything: list[MessageQueue] = []
        else:
            self._asked = NAME_SERVERS
            route = await self._session.routes.get(topic)
            everything = list(route.read_queues)
            self.first_seen.setdefault(topic, frozenset(everything))
            found = await self._allot(topic, route)
            if found is None:
                if everything:
                    self.unsettled[topic] = "the brokers do not know the members of the group yet"
                return False
            # ConfigStrategy returns its queues for every topic, including the retry topic.
            allotted = [queue for queue in found if queue.topic == topic]
        change = plan_change(owned, allotted)
        if change.dropped:
            await self._tell([], change.dropped)
        for queue in change.dropped:
            owned.discard(queue)
            await self._drop(queue)
        answers = await self._take_all(change.added)
        taken = [queue for queue, answer in answers if answer is Taken.OURS]
        owned.update(taken)
        if failed := [queue for queue, answer in answers if answer is Taken.FAILED]:
            self.unsettled[topic] = f"the start offset is not known for {len(failed)} of {len(everything)} queues"
        if change.added or change.dropped:
            log.info("group %s has %d of %d queues of %s", self._group, len(owned), len(everything), topic)
        if taken:
            await self._tell(taken, [])
            for queue in taken:
                self._begin(queue)
        if topic not in self._topics:
            del self.owned[topic]
        return len(taken) == len(change.added)

    async def _take_all(self, queues: list[MessageQueue]) -> list[tuple[MessageQueue, Taken]]:
        """Take queues concurrently: each takes several requests to its broker."""
        slots = asyncio.Semaphore(_TAKEN_AT_ONCE)

        async def take(queue: MessageQueue) -> tuple[MessageQueue, Taken]:
            async with slots:
                return queue, await self._take(queue)

        return await asyncio.gather(*[take(queue) for queue in queues])

    async def _allot(self, topic: str, route: Route) -> list[MessageQueue] | None:
        """Return the queues that the strategy assigns to us; None when this cannot be determined now."""
        queues = list(route.read_queues)
        if self._broadcast:
            return queues
        members = await self._list_members(route)
        if not members or not queues:
            return None  # as Java does: keep the current queues
        return self._strategy.allocate(self._group, self._session.client_id, queues, sort_clients(members))

    async def _list_members(self, route: Route) -> list[str]:
        """Ask any broker of the topic for the members of the group; it must have received our heartbeat first."""
        addresses = [by_id.get(MASTER_ID) or next(iter(by_id.values())) for by_id in route.brokers.values()]
        random.shuffle(addresses)
        failure: ErucaError = NetError(f"no broker of {route.topic} is reachable now")
        for address in addresses:
            self._asked = address
            try:
                await self._session.greet(address)
                return await self._session.calls.list_members(address, self._group)
            except ErucaError as error:
                failure = error
        raise failure
