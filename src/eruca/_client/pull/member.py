"""A pull consumer as its session and its messages see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eruca._client.group.observing import ConsumeObserver
from eruca._client.group.redelivery import DELIVERIES_MAX, Redelivery
from eruca._client.group.running import describe_member, describe_running
from eruca._client.group.settings import GroupSettings
from eruca._client.group.subscriptions import Subscription, TopicPattern
from eruca._client.later import Later
from eruca._client.message import Message
from eruca._client.produce.outgoing import Receipt
from eruca._client.pull.holdings import PullInbox
from eruca._client.pull.membership import PullMembership
from eruca._client.session.session import Session
from eruca._ground.durations import Duration
from eruca._wire.bodies import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeType,
    MessageQueue,
)
from eruca._wire.record import Record
from eruca.errors import ClientClosed


class PullMember:
    """The internals of a PullConsumer, which is the class that users see."""

    def __init__(
        self, group: str, settings: GroupSettings, subscriptions: dict[str, Subscription], patterns: list[TopicPattern]
    ) -> None:
        self.group = group
        self.settings = settings
        self.subscriptions = subscriptions
        self.patterns = patterns
        self.started_ms = 0
        # While the consumer is started.
        self.membership: PullMembership | None = None
        self._observer = ConsumeObserver(group)
        self._redelivery: Redelivery | None = None

    @property
    def is_subscribed(self) -> bool:
        """Whether the queues come from the group, and not from `assign`."""
        return bool(self.subscriptions or self.patterns)

    def require_started(self) -> PullMembership:
        """Return the membership of a started consumer. Raises ClientClosed."""
        if self.membership is None:
            raise ClientClosed(
                "the consumer is not started", hint="use `async with PullConsumer(...)`, or await start()"
            )
        self.membership.session.check_loop()
        return self.membership

    @property
    def session(self) -> Session:
        """The session of a started consumer. Raises ClientClosed."""
        return self.require_started().session

    @property
    def inboxes(self) -> dict[MessageQueue, PullInbox]:
        """The state of each queue that is ours; empty when the consumer is not started."""
        return {} if self.membership is None else self.membership.holdings.inboxes

    # -- called by messages ------------------------------------------------------------------------------------------

    async def ack(self, message: Message) -> None:
        """Do nothing: the next poll, or `commit`, marks messages as done."""

    async def retry(self, message: Message, later: Later) -> None:
        """Have a message delivered to the group again, or make it a dead letter. Raises ErucaError."""
        await self._find_redelivery().send_back(message.record, message.queue, later)

    async def reply(
        self,
        message: Message,
        body: bytes,
        tags: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
        timeout: Duration | None,
    ) -> Receipt:
        """Reply to a message. Raises ErucaError."""
        return await self._find_redelivery().replies.send(message, body, tags, keys, properties, timeout)

    def _find_redelivery(self) -> Redelivery:
        """What sends messages back and replies, for the current session. Raises ClientClosed."""
        session = self.session
        if self._redelivery is None or self._redelivery.session is not session:
            retry = self.settings.retry
            most = retry.max_deliveries or DELIVERIES_MAX
            self._redelivery = Redelivery(session, self.group, most, backoff=retry.backoff)
        return self._redelivery

    # -- called by the session ---------------------------------------------------------------------------------------

    def describe(self) -> ConsumerData:
        """Return what heartbeats report about this consumer."""
        kind = ConsumeType.CONSUME_ACTIVELY
        subscriptions = self.subscriptions.values()
        return describe_member(self.group, kind, self.settings, subscriptions, has_patterns=bool(self.patterns))

    def wake(self) -> None:
        """Rebalance now."""
        if self.membership is not None:
            self.membership.wake()

    def list_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offset of each of our queues of a topic."""
        return {queue: inbox.position for queue, inbox in self.inboxes.items() if queue.topic == topic}

    def note_created(self, topics: list[str]) -> None:
        """Consume those of the new topics that match."""
        if self.membership is not None:
            self.membership.note_created(topics)

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Drop what was fetched and continue at the new offsets: an operator reset the group."""
        if self.membership is not None:
            await self.membership.reset(topic, offsets)

    async def consume_directly(self, record: Record, broker: str) -> ConsumeDirectlyResult:
        """Refuse: there is no handler to process a message."""
        return ConsumeDirectlyResult(
            consume_result=ConsumeResult.CR_THROW_EXCEPTION, remark="a pull consumer has no handler"
        )

    def describe_running(self, stacks: bool) -> ConsumerRunningInfo:
        """Return what the console shows about this consumer."""
        return describe_running(
            self.session,
            self.group,
            ConsumeType.CONSUME_ACTIVELY,
            self.settings,
            self.subscriptions.values(),
            self.inboxes,
            self._observer,
            started_ms=self.started_ms,
            stacks=stacks,
        )
