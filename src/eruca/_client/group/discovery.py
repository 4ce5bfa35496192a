"""Subscriptions by regular expression: matching topics are found, consumed when created, and dropped when deleted.

Brokers of Eruca tell us at once which topics they create. Others do not, so the topics are listed periodically as well.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

from eruca._client.group.balance import Balance
from eruca._client.group.subscriptions import Subscription, TopicPattern, make_subscription
from eruca._client.namespaces import unwrap, wrap
from eruca._client.session.cluster import describe_clusters, list_topics
from eruca._client.session.session import Session
from eruca._ground.limits import REGISTRATION_TOPICS_MAX
from eruca._ground.repeating import Repeating
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX, SELF_TEST_TOPIC, is_system_topic
from eruca.errors import ErucaError, WireError

log = logging.getLogger(__name__)

# How often topics are listed, unless the group checks its queues more often.
_LOOK_S = 5.0
# A topic must be missing this many times in a row: a broker that restarts removes its topics for a moment.
_MISSED_MAX = 3
_REPLY_SUFFIX = "_REPLY_TOPIC"


class Discovery:
    """Keeps the subscriptions of one consumer in sync with the topics that match its patterns."""

    def __init__(
        self,
        session: Session,
        patterns: Sequence[TopicPattern],
        subscriptions: dict[str, Subscription],
        balance: Balance,
        interval_s: float,
        on_found: Callable[[str, TopicPattern], None],
    ) -> None:
        self._session = session
        self._namespace = session.options.namespace
        self._patterns = patterns
        self._subscriptions = subscriptions
        self._balance = balance
        # Called with a topic, as the broker knows it, before anything is consumed from it.
        self._on_found = on_found
        # Topics that are subscribed because they match, and how many times in a row each was missing.
        self.found: dict[str, int] = {}
        self._has_looked = False
        # Topics that match and that a broker has just created.
        self._created: dict[str, TopicPattern] = {}
        self._taking = Repeating(
            "the subscription to new topics", self._take_created, lambda: math.inf, level=logging.WARNING
        )
        self._looking = Repeating(
            "the search for topics that match", self._follow, lambda: min(_LOOK_S, interval_s), level=logging.WARNING
        )

    async def begin(self) -> None:
        """Find the topics that exist now. If no name server answers, they are found later."""
        # Every broker has this topic. Its route makes them all known, so that all get our heartbeats, which ask them to
        # tell us about new topics.
        self._session.routes.watch(SELF_TEST_TOPIC)
        await self._session.routes.refresh_each([SELF_TEST_TOPIC])
        try:
            await self._look()
        except ErucaError as error:
            log.warning("matching topics cannot be looked up yet: %s", error)

    def start(self) -> None:
        """List the topics periodically, and take new ones that brokers tell us about."""
        self._taking.start()
        self._looking.start()

    async def stop(self) -> None:
        """Stop listing topics, and forget those that were found."""
        await self._taking.stop()
        await self._looking.stop()
        self._session.routes.unwatch(SELF_TEST_TOPIC)
        for topic in self.found:
            self._session.routes.unwatch(topic)
            self._subscriptions.pop(topic, None)
        self.found.clear()

    def note_created(self, topics: list[str]) -> None:
        """Consume those of the topics that match; a broker has just created them."""
        for topic in topics:
            if len(self.found) + len(self._created) >= REGISTRATION_TOPICS_MAX:
                break
            if (pattern := self._match(topic)) is not None:
                self._created[topic] = pattern
        if self._created:
            self._taking.wake()

    async def _take_created(self) -> None:
        created, self._created = self._created, {}
        for topic, pattern in created.items():
            if topic not in self._subscriptions:
                self._add(topic, pattern, is_new=True)
        self._balance.set_topics(self._subscriptions)
        # Those that we knew have another broker now.
        await self._session.routes.refresh_each(created)
        await self._session.heartbeat()
        self._balance.wake()

    async def _follow(self) -> None:
        if await self._look():
            await self._session.heartbeat()  # brokers take the new subscriptions from it
            self._balance.wake()

    async def _look(self) -> bool:
        """List the topics once; True when the subscriptions have changed. Raises ErucaError."""
        matching = await self._list_matching()
        new = {topic: pattern for topic, pattern in matching.items() if topic not in self._subscriptions}
        for topic, pattern in new.items():
            self._add(topic, pattern, is_new=self._has_looked)
        gone = self._list_gone(matching)
        for topic in gone:
            self._remove(topic)
        self._has_looked = True
        self._balance.set_topics(self._subscriptions)
        return bool(new or gone)

    def _add(self, topic: str, pattern: TopicPattern, *, is_new: bool) -> None:
        session = self._session
        self._on_found(topic, pattern)
        self._subscriptions[topic] = make_subscription(topic, pattern.wanted, session.clock.now_ms())
        self.found[topic] = 0
        if is_new:
            log.info("topic %s matches %s and is consumed from now on", topic, pattern.pattern.pattern)
            # It was created while the group was listening, so all its messages are consumed.
            self._balance.first_seen.setdefault(topic, frozenset())
            session.routes.watch(topic)

    def _remove(self, topic: str) -> None:
        log.info("topic %s is gone and no longer consumed", topic)
        del self.found[topic]
        self._subscriptions.pop(topic, None)
        self._balance.first_seen.pop(topic, None)
        self._session.routes.unwatch(topic)

    def _list_gone(self, matching: dict[str, TopicPattern]) -> list[str]:
        for topic in self.found:
            self.found[topic] = 0 if topic in matching else self.found[topic] + 1
        return [topic for topic, missed in self.found.items() if missed >= _MISSED_MAX]

    async def _list_matching(self) -> dict[str, TopicPattern]:
        topics = await list_topics(self._session.routes)
        if len(topics) > REGISTRATION_TOPICS_MAX:
            raise WireError(f"the name servers list {len(topics)} topics, at most {REGISTRATION_TOPICS_MAX} are read")
        found = {topic: pattern for topic in topics if (pattern := self._match(topic)) is not None}
        if found.keys() - self._subscriptions.keys():
            # Brokers have topics that are named after themselves and after their clusters.
            info = await describe_clusters(self._session.routes)
            for name in (*info.broker_addr_table, *info.cluster_addr_table):
                found.pop(name, None)
        return found

    def _match(self, topic: str) -> TopicPattern | None:
        """Return the first pattern that matches the whole name of a topic; None for system topics."""
        if is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or topic.endswith(_REPLY_SUFFIX):
            return None
        name = unwrap(self._namespace, topic)
        if wrap(self._namespace, name) != topic:
            return None  # of another namespace
        return next((known for known in self._patterns if known.pattern.fullmatch(name)), None)
