"""Which queues are ours: looked at when told of a change, and in intervals in case nobody tells."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum

from eruca._client.session.routes import NAME_SERVERS, Route
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
    """What became of beginning with a queue that is ours by the strategy."""

    OURS = "ours"
    # Another member has not let go of it yet.
    HELD = "held by another"
    # Something failed. As for the one above, it is tried again soon.
    FAILED = "failed"


class Balance:
    """Shares the queues of topics with the other members of a group."""

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
    ) -> None:
        self._session = session
        self._group = group
        self._strategy = strategy
        self._broadcast = broadcast
        self._interval_s = interval_s
        # Begins with a queue that is ours now.
        self._take = take
        # Lets go of a queue that is not ours any more.
        self._drop = drop
        # Is told of queues that are ours now, and of those that will be let go.
        self._tell = tell
        # What is ours, by topic.
        self.owned: dict[str, set[MessageQueue]] = {}
        # All queues of a topic when it was looked at first; what comes later is new.
        self.first_seen: dict[str, frozenset[MessageQueue]] = {}
        # Set as soon as every topic was shared once: it has its queues, or there is none yet.
        self.settled = asyncio.Event()
        # Topics that were not shared yet since something failed, and why.
        self.unsettled: dict[str, str] = {}
        self._topics: dict[str, None] = {}
        # The server that was asked last, for those who say that it does not answer.
        self._asked = NAME_SERVERS
        self._lock = asyncio.Lock()
        self._sharing = Repeating(
            f"the sharing of queues in group {group}",
            self._share,
            lambda: self._interval_s,
            at_once=True,
            jitter=_JITTER,
        )

    def start(self) -> None:
        """Share the queues now, and again whenever there is a reason to."""
        self._sharing.start()

    async def stop(self) -> None:
        """Leave everything as it is."""
        self.settled.set()  # whoever waits for the start need not any more
        await self._sharing.stop()

    def set_topics(self, topics: Iterable[str]) -> None:
        """Which topics are shared."""
        self._topics = dict.fromkeys(topics)

    def wake(self) -> None:
        """Look again now."""
        self._sharing.wake()

    async def _share(self) -> float | None:
        return None if await self.balance() else spread(min(_RETRY_S, self._interval_s), _JITTER)

    async def balance(self) -> bool:
        """Look at every topic once; False when something is to be tried again soon."""
        async with self._lock:
            all_well = True
            self.unsettled = {}
            for topic in [*self._topics, *(self.owned.keys() - self._topics.keys())]:
                try:
                    all_well &= await self._balance_topic(topic)
                except NoRoute as error:
                    # Should it come later, all its messages were sent while the group was listening.
                    self.first_seen.setdefault(topic, frozenset())
                    log.debug("%s is not shared now: %s", topic, error)
                except ErucaError as error:
                    self._session.outages.report(
                        log, self._asked, error, "the queues of %s could not be shared now: %s", topic, error
                    )
                    self.unsettled[topic] = str(error)
                    all_well = False
                except Exception as error:
                    # A strategy of the user, for example. Without this no queue would ever be shared again.
                    log.exception("the queues of %s could not be shared now", topic)
                    self.unsettled[topic] = repr(error)
                    all_well = False
            if not self.unsettled:
                self.settled.set()
            return all_well

    async def wait_settled(self, seconds: float) -> None:
        """Wait until every topic was shared once, and where to begin is known, for at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self.settled.wait()
        except TimeoutError:
            reasons = "; ".join([f"{topic}: {reason}" for topic, reason in self.unsettled.items()])
            log.warning(
                "group %s has started without all its queues, it goes on trying (%s)",
                self._group,
                reasons or f"the brokers do not answer within {seconds:.0f} s",
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
            # A strategy that was told its queues gives them for every topic, that of the retries too.
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
            self.unsettled[topic] = f"where to begin is not known for {len(failed)} of {len(everything)} queues"
        if change.added or change.dropped:
            log.info("group %s has %d of %d queues of %s", self._group, len(owned), len(everything), topic)
        if taken:
            await self._tell(taken, [])
        if topic not in self._topics:
            del self.owned[topic]
        return len(taken) == len(change.added)

    async def _take_all(self, queues: list[MessageQueue]) -> list[tuple[MessageQueue, Taken]]:
        """Begin with queues side by side: each takes several questions to its broker."""
        slots = asyncio.Semaphore(_TAKEN_AT_ONCE)

        async def take(queue: MessageQueue) -> tuple[MessageQueue, Taken]:
            async with slots:
                return queue, await self._take(queue)

        return await asyncio.gather(*[take(queue) for queue in queues])

    async def _allot(self, topic: str, route: Route) -> list[MessageQueue] | None:
        """The queues that are ours by the strategy; None when it cannot be said now."""
        queues = list(route.read_queues)
        if self._broadcast:
            return queues
        members = await self._list_members(route)
        if not members or not queues:
            return None  # as Java does: keep what is ours
        return self._strategy.allocate(self._group, self._session.client_id, queues, sort_clients(members))

    async def _list_members(self, route: Route) -> list[str]:
        """Ask any broker of the topic who is in the group; it must have heard of us first."""
        addresses = [by_id.get(MASTER_ID) or next(iter(by_id.values())) for by_id in route.brokers.values()]
        random.shuffle(addresses)
        failure: ErucaError = NetError(f"no broker of {route.topic} is there now")
        for address in addresses:
            self._asked = address
            try:
                await self._session.greet(address)
                return await self._session.calls.list_members(address, self._group)
            except ErucaError as error:
                failure = error
        raise failure
