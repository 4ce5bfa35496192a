"""Which queues a stream has now, and where each of them ends.

Queues come and go while a stream runs. A queue that disappears from the route was deleted, or its broker is temporarily
unavailable. The two must not be confused: the first is data loss, the second happens with every restart of a broker.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from eruca._client.group.pulling import make_peek_header
from eruca._client.session.route import Route
from eruca._ground.clock import Clock, SystemClock
from eruca._spark.cluster import Cluster
from eruca._spark.offsets import Offsets
from eruca._spark.source.bounds import match_topics
from eruca._spark.source.options import SourceOptions
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.names import MASTER_ID
from eruca.errors import ConnectFailed, NetError, RequestRefused

log = logging.getLogger(__name__)

# How old the list of topics and queues may be when a batch is planned.
FRESH_MS = 1000
# The same warning is not repeated more often than this.
_REPEAT_S = 60.0
_SHOWN_MAX = 5
# Number of messages that are read to estimate their size.
_MEASURED = 16

_Answer = TypeVar("_Answer")


class View(Protocol):
    """The queries of a stream to a cluster. Offsets are missing for queues whose broker does not answer."""

    # Whether requests that fail are retried.
    insists: bool

    def match_topics(self, pattern: str) -> list[str]:
        """Return the topics whose names match. Raises NetError."""

    def find_routes(self, topics: Collection[str]) -> dict[str, Route | None]:
        """Return the route of each topic; None for a topic that does not exist. Raises NetError."""

    def list_masters(self) -> dict[str, str]:
        """Return the masters that are registered now. Raises NetError."""

    def find_ends(self, queues: Collection[MessageQueue]) -> Offsets:
        """Return the offset after the last message of each queue."""

    def find_begins(self, queues: Collection[MessageQueue]) -> Offsets:
        """Return the first offset that each queue still has."""

    def find_address(self, queue: MessageQueue) -> str:
        """Return the address of the broker of a queue. Raises ConnectFailed."""

    def measure(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, list[int]]:
        """Return the sizes in bytes of some messages from an offset on, for each queue."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """What a stream reads: exactly one of the fields is set."""

    topics: frozenset[str] = frozenset()
    pattern: str = ""
    assigned: frozenset[MessageQueue] = frozenset()

    @classmethod
    def of(cls, options: SourceOptions) -> Subscribed:
        """Return what the options of a source select."""
        return cls(frozenset(options.topics), options.pattern, frozenset(options.assigned))

    def list_topics(self, view: View) -> set[str]:
        """Return the topics it reads now, whether or not they exist. Raises NetError."""
        if self.pattern:
            return set(view.match_topics(self.pattern))
        return {*self.topics, *(queue.topic for queue in self.assigned)}

    def wants(self, queue: MessageQueue) -> bool:
        """Whether a queue is one of those it reads."""
        if self.pattern:
            return re.fullmatch(self.pattern, queue.topic) is not None
        return queue in self.assigned if self.assigned else queue.topic in self.topics


@dataclass
class Sight:
    """The state of the queues at one time."""

    # Where queues end, without those that could not be asked.
    ends: Offsets = field(default_factory=dict)
    # Where queues begin, only for those with something to read.
    begins: Offsets = field(default_factory=dict)
    # Queues that no longer exist.
    gone: set[MessageQueue] = field(default_factory=set)
    # Queues that cannot be read at the moment.
    away: set[MessageQueue] = field(default_factory=set)


class ClusterView:
    """A view of a real cluster."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self.cluster = cluster
        self.insists = True
        self._group = options.consumer_group

    def match_topics(self, pattern: str) -> list[str]:
        """Return the topics whose names match."""
        return match_topics(self.cluster, pattern)

    def find_routes(self, topics: Collection[str]) -> dict[str, Route | None]:
        """Return the route of each topic."""

        find = self.cluster.connection.find_route
        return self.cluster.gather(topics, lambda topic: self._ask(partial(find, topic)))

    def list_masters(self) -> dict[str, str]:
        """Return the masters that are registered now."""
        return self.cluster.run(self._ask(self.cluster.connection.list_masters))

    def find_ends(self, queues: Collection[MessageQueue]) -> Offsets:
        """Return the offset after the last message of each queue."""
        return self._ask_each(queues, self.cluster.calls.find_max_offset)

    def find_begins(self, queues: Collection[MessageQueue]) -> Offsets:
        """Return the first offset that each queue still has."""
        found = self._ask_each(queues, self.cluster.calls.find_min_offset)
        return {queue: max(0, offset) for queue, offset in found.items()}

    def find_address(self, queue: MessageQueue) -> str:
        """Return the address of the broker of a queue."""
        return self.cluster.find_address(queue)

    def measure(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, list[int]]:
        """Return the sizes in bytes of some messages from an offset on, for each queue."""

        async def pull(address: str, queue: MessageQueue) -> list[int]:
            header = make_peek_header(self._group, queue, places[queue], _MEASURED)
            answer = await self.cluster.calls.call(address, make_request(RequestCode.PULL_MESSAGE, header))
            if answer.code != ResponseCode.SUCCESS:
                return []  # keep the last estimate
            return [*_split_sizes(answer.body)]

        return self._ask_each(places, pull)

    def _ask_each(
        self, queues: Collection[MessageQueue], ask: Callable[[str, MessageQueue], Awaitable[_Answer]]
    ) -> dict[MessageQueue, _Answer]:
        """Ask the broker of each queue; queues whose broker does not answer are left out."""

        async def ask_one(queue: MessageQueue) -> _Answer | None:
            try:
                return await self._ask(partial(self.cluster.ask_broker, queue, ask))
            except NetError:
                return None
            except RequestRefused as error:
                if not error.retryable:
                    raise
                return None

        found = self.cluster.gather(queues, ask_one)
        return {queue: answer for queue, answer in found.items() if answer is not None}

    async def _ask(self, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        return await (self.cluster.insist(ask) if self.insists else ask())


class QueueWatch:
    """Observes the queues of a subscription."""

    def __init__(self, view: View, wishes: Subscribed, clock: Clock | None = None) -> None:
        self._view = view
        self._wishes = wishes
        self._clock = clock or SystemClock()
        self._looked_at = -FRESH_MS / 1000
        self._routes: dict[str, Route | None] = {}
        self._queues: set[MessageQueue] = set()
        self._warned: dict[str, float] = {}

    def look(
        self,
        start: Mapping[MessageQueue, int],
        *,
        must_answer: bool,
        only: Collection[MessageQueue] | None = None,
    ) -> Sight:
        """Return the state of the queues (or of some of them), for a stream that has reached certain offsets.

        With `must_answer`, NetError is raised if a broker does not answer; without it, the broker counts as
        unavailable. Requests are retried if the broker must answer, and at the first look: a server may be starting.
        """
        self._view.insists = must_answer or not self._routes
        self._refresh({queue.topic for queue in start}, is_fresh_enough=not self._view.insists)
        sight = Sight()
        # A queue that is no longer selected keeps its position, in case it is selected again.
        for queue in filter(self._wishes.wants, set(start) - self._queues):
            (sight.gone if self._is_gone(queue) else sight.away).add(queue)
        asked = self._queues if only is None else self._queues.intersection(only)
        sight.ends = self._view.find_ends(sorted(asked))
        sight.away |= asked - set(sight.ends)
        self._leave_out_lagging(start, sight)
        moved = [queue for queue, end in sight.ends.items() if start.get(queue) != end]
        sight.begins = self._view.find_begins(moved)
        for queue in set(moved) - set(sight.begins):
            del sight.ends[queue]
            sight.away.add(queue)
        if sight.away and must_answer:
            brokers = sorted({queue.broker_name for queue in sight.away})
            raise ConnectFailed(
                f"{describe_queues(sight.away)} cannot be read now", hint=f"is {' and '.join(brokers)} running?"
            )
        if sight.away:
            self._warn("cannot be read now and will be read later", sight.away)
        return sight

    def _refresh(self, topics: set[str], *, is_fresh_enough: bool) -> None:
        """Look up the queues, unless the known ones are recent and that is enough."""
        now = self._clock.monotonic()
        if is_fresh_enough and (now - self._looked_at) * 1000 < FRESH_MS:
            return
        try:
            wanted = self._wishes.list_topics(self._view)
            routes = self._view.find_routes(sorted(wanted | topics))
        except NetError as error:
            # Brokers keep running without name servers.
            if self._view.insists:
                raise
            self._warn(f"no name server answers: {error}", set())
            return
        found = [queue for route in routes.values() if route is not None for queue in route.read_queues]
        self._queues = {queue for queue in found if queue.topic in wanted and self._wishes.wants(queue)}
        self._routes, self._looked_at = routes, now

    def _is_gone(self, queue: MessageQueue) -> bool:
        """Whether a queue was deleted, rather than temporarily unavailable."""
        route = self._routes.get(queue.topic)
        if route is not None and queue.broker_name in route.brokers:
            # A broker without readable queues has reading disabled for now; with some, there are fewer than before.
            return any(other.broker_name == queue.broker_name for other in route.read_queues)
        try:
            if queue.broker_name not in self._view.list_masters():
                return False
            # A broker registers with all its topics at once. It may have done so after the route was asked for.
            again = self._view.find_routes([queue.topic])[queue.topic]
            return again is None or queue not in again.read_queues
        except NetError:
            if self._view.insists:
                raise
            return False

    def _leave_out_lagging(self, start: Mapping[MessageQueue, int], sight: Sight) -> None:
        """Skip queues of a slave that replaces its master and does not have everything yet: that is not data loss."""
        for queue in [each for each, end in sight.ends.items() if end < start.get(each, 0)]:
            route = self._routes.get(queue.topic)
            if route is not None and MASTER_ID not in route.brokers.get(queue.broker_name, {}):
                del sight.ends[queue]
                sight.away.add(queue)

    def _warn(self, what: str, queues: set[MessageQueue]) -> None:
        now = self._clock.monotonic()
        if now - self._warned.get(what, -_REPEAT_S) >= _REPEAT_S:
            self._warned[what] = now
            log.warning("%s", f"{describe_queues(queues)} {what}" if queues else what)


def _split_sizes(body: bytes) -> Iterator[int]:
    """Return the sizes of the records of an answer: each record starts with its size."""
    at = 0
    while at + 4 <= len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        yield size
        at += max(4, size)


def describe_queues(queues: Collection[MessageQueue]) -> str:
    """Return a short description of queues."""
    shown = [f"{queue.topic}/{queue.broker_name}/{queue.queue_id}" for queue in sorted(queues)]
    more = f" and {len(shown) - _SHOWN_MAX} more" if len(shown) > _SHOWN_MAX else ""
    return f"{'queue' if len(shown) == 1 else 'queues'} {', '.join(shown[:_SHOWN_MAX])}{more}"
