"""The plain pull consumer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from eruca._client.group.lag import Lag
from eruca._client.group.settings import Flow, Offsets, Rebalance, Retry, Start
from eruca._client.group.subscriptions import Subscribe, Wanted
from eruca._client.message import Decode
from eruca._client.options import ClientOptions
from eruca._client.pull.consumer import PullConsumer as AsyncPullConsumer
from eruca._client.pull.membership import OnQueues
from eruca._client.session.calls import PullStatus
from eruca._client.sync.base import Message, PlainClient, make_listener_plain
from eruca._client.sync.loopthread import LoopThread
from eruca._ground.durations import Duration, to_seconds
from eruca._wire.bodies import MessageQueue


@dataclass(frozen=True, slots=True)
class PullResult:
    """What one pull found, and where the next one begins."""

    status: PullStatus
    messages: list[Message]
    next_offset: int
    min_offset: int
    max_offset: int


class PullConsumer(PlainClient[AsyncPullConsumer]):
    """A consumer that is asked for messages.

    As a member of a group, which shares the queues of its topics among its members:

    >>> with PullConsumer("127.0.0.1:9876", group="billing", subscribe="orders") as consumer:
    ...     for message in consumer.poll(timeout=1.0, max_messages=100): ...

    Or for queues of your choice, without being a member:

    >>> with PullConsumer("127.0.0.1:9876", group="audit", auto_commit=False) as consumer:
    ...     consumer.assign(consumer.list_queues("orders"))
    ...     consumer.seek_to_time(consumer.assignment[0], yesterday)
    ...     for message in consumer: ...

    With `auto_commit` the messages of a poll count as done with the next poll, or with a clean close, and are committed
    every `Offsets(interval=...)`; a crash, or an exception that leaves `with`, repeats them. So one thread polls. The
    arguments are those of the async `eruca.PullConsumer`. A plain `Rebalance(on_change=...)` is called in a thread and
    may block; functions of `watch` are called in the loop of the plain clients and must not.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        group: str,
        subscribe: Subscribe = (),
        start: Start = "latest",
        broadcast: bool = False,
        auto_commit: bool = True,
        poll_batch: int = 10,
        flow: Flow = Flow(hold=20.0),  # noqa: B008
        retry: Retry = Retry(),  # noqa: B008
        rebalance: Rebalance = Rebalance(),  # noqa: B008
        offsets: Offsets = Offsets(interval=5.0),  # noqa: B008
        deserializer: Decode | None = None,
        watch: Mapping[str, OnQueues] = MappingProxyType({}),
        options: ClientOptions | None = None,
    ) -> None:
        super().__init__(
            AsyncPullConsumer(
                nameservers,
                group=group,
                subscribe=subscribe,
                start=start,
                broadcast=broadcast,
                auto_commit=auto_commit,
                poll_batch=poll_batch,
                flow=flow,
                retry=retry,
                rebalance=make_listener_plain(rebalance),
                offsets=offsets,
                deserializer=deserializer,
                watch=watch,
                options=options,
            )
        )

    @property
    def group(self) -> str:
        """The group, as the broker knows it."""
        return self._twin.group

    @classmethod
    def _show(cls, twin: AsyncPullConsumer, thread: LoopThread) -> PullConsumer:
        """A plain face for a consumer that somebody else started, and will close."""
        shown = cls.__new__(cls)
        PlainClient.__init__(shown, twin)
        shown._thread = thread
        shown._is_shown = True
        return shown

    # -- queues ------------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours: in balance with the other members, or as assigned."""
        return self._call(lambda: self._twin.assignment)

    def owns(self, queue: MessageQueue) -> bool:
        """Is a queue ours now?"""
        return self._call(lambda: self._twin.owns(queue))

    def assign(self, queues: Iterable[MessageQueue], *, tags: Wanted = "*") -> None:
        """Have exactly these queues from now on, without being a member of the group. Raises ErucaError.

        Each goes on where the group is, or at `start`; a queue that was assigned before goes on where it is.
        """
        self._run(self._twin.assign(list(queues), tags=tags))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Hand out nothing of these queues (of all) until `resume`."""
        self._call(lambda: self._twin.pause(queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """The opposite of `pause`."""
        self._call(lambda: self._twin.resume(queues))

    @property
    def paused(self) -> list[MessageQueue]:
        """The queues of ours that are paused."""
        return self._call(lambda: self._twin.paused)

    def list_queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read, whoever has them. Raises NoRoute."""
        return self._run(self._twin.list_queues(topic))

    # -- messages ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: Duration | None = 5.0, max_messages: int | None = None) -> list[Message]:
        """The next messages of our queues, at most `max_messages`; none when none come in time.

        What is here is returned at once; `timeout=None` waits as long as it takes. Messages of earlier polls are done.

        >>> while messages := consumer.poll(timeout=1.0, max_messages=100): ...
        """
        found = self._run(
            self._twin.poll(timeout, max_messages), None if timeout is None else to_seconds("timeout", timeout)
        )
        return [Message(message, self) for message in found]

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        if self._thread is None and self._is_closed:
            raise StopIteration
        # One by one, so that what is not yet worked on does not count as done.
        found = self.poll(None, 1)
        if not found:
            raise StopIteration
        return found[0]

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: Wanted = "*",
        max_messages: int = 32,
        hold: Duration = 0,
        timeout: Duration = 10.0,
    ) -> PullResult:
        """Ask the broker of any queue for messages from an offset on, once. Raises ErucaError.

        `hold` lets the broker wait that long for a message when there is none. Our position does not change.

        >>> result = consumer.pull(queue, consumer.begin_offset(queue))
        """
        found = self._run(
            self._twin.pull(queue, offset, tags=tags, max_messages=max_messages, hold=hold, timeout=timeout),
            to_seconds("timeout", timeout) + to_seconds("hold", hold),
        )
        messages = [Message(message, self) for message in found.messages]
        return PullResult(found.status, messages, found.next_offset, found.min_offset, found.max_offset)

    def send_back(self, message: Message, delay_level: int = 0) -> None:
        """Have a message delivered to the group again after a delay level, as retry; below 0 makes it a dead letter."""
        self._run(self._twin.send_back(message.twin, delay_level))

    def view(self, offset_id: str) -> Message:
        """The message with an offset id (`Message.offset_id`). Raises RequestRefused when there is none."""
        return Message(self._run(self._twin.view(offset_id)), self)

    def query(
        self,
        topic: str,
        key: str,
        begin: datetime | None = None,
        end: datetime | None = None,
        max_messages: int = 32,
        *,
        unique: bool = False,
    ) -> list[Message]:
        """The messages of a topic with a key, or with `unique` the one with a message id, the oldest first."""
        found = self._run(self._twin.query(topic, key, begin, end, max_messages, unique=unique))
        return [Message(message, self) for message in found]

    def lag(self) -> Lag:
        """How many messages of our queues were not handed out yet, in all and of each queue. Raises ErucaError."""
        return self._run(self._twin.lag())

    # -- offsets -----------------------------------------------------------------------------------------------------

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message `poll` hands out of a queue of ours. Raises QueueNotOurs."""
        return self._call(lambda: self._twin.position(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at another offset of a queue of ours. Raises OffsetLost, QueueNotOurs."""
        self._run(self._twin.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> int:
        """Go on at the first message a queue of ours still has; returns its offset."""
        return self._run(self._twin.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> int:
        """Go on with what comes to a queue of ours from now on; returns the offset."""
        return self._run(self._twin.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, time: datetime) -> int:
        """Go on at the first message of a queue of ours that was stored at a time or later; returns its offset."""
        return self._run(self._twin.seek_to_time(queue, time))

    def begin_offset(self, queue: MessageQueue) -> int:
        """The first offset a queue still has."""
        return self._run(self._twin.begin_offset(queue))

    def end_offset(self, queue: MessageQueue) -> int:
        """The offset behind the last message of a queue."""
        return self._run(self._twin.end_offset(queue))

    def offset_at(self, queue: MessageQueue, time: datetime) -> int:
        """The offset of the first message of a queue that was stored at a time or later, as its broker finds it."""
        return self._run(self._twin.offset_at(queue, time))

    def committed(self, queue: MessageQueue) -> int | None:
        """Where the group goes on after a restart; None when it has never committed."""
        return self._run(self._twin.committed(queue))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what was handed out so far, or these offsets, and wait until the broker has it. Raises ErucaError."""
        self._run(self._twin.commit(offsets))
