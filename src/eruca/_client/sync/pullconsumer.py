"""`eruca.sync.PullConsumer`.

Written by `make generate` from `eruca._client.pull.consumer` and
`eruca._client.sync.pulling`; do not edit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from eruca._client.group.lag import Lag
from eruca._client.group.settings import Flow, Offsets, Rebalance, Retry, Start
from eruca._client.group.subscriptions import Filter, Subscribe
from eruca._client.options import ClientOptions
from eruca._client.pull.consumer import PullConsumer as AsyncPullConsumer
from eruca._client.pull.membership import OnQueues
from eruca._client.sync.base import Message, find_twin
from eruca._client.sync.pulling import PlainPullConsumer, PullResult
from eruca._ground.durations import Duration
from eruca._wire.bodies import MessageQueue
from eruca.serializers import Deserializer


class PullConsumer(PlainPullConsumer):
    """A consumer that returns messages on request.

    As a member of a group, which shares the queues of its topics among its members:

    >>> with PullConsumer("127.0.0.1:9876", group="billing", subscribe="orders") as consumer:
    ...     for message in consumer.poll(timeout=1.0, max_messages=100): ...

    Or for queues of your choice, without being a member:

    >>> with PullConsumer("127.0.0.1:9876", group="audit", auto_commit=False) as consumer:
    ...     consumer.assign(consumer.list_queues("orders"))
    ...     consumer.seek_to_time(consumer.assignment[0], yesterday)
    ...     for message in consumer: ...

    With `auto_commit` the messages of a poll count as done with the next poll, or with a clean close, and are committed
    every `Offsets(interval=...)`; a crash, or an exception that leaves `with`, repeats them. So one task polls.
    `commit` commits what was handed out so far, or the offsets it is given. Messages are fetched ahead from the first
    `poll` on; `pull` asks a broker directly and needs neither.

    One thread polls. A plain `Rebalance(on_change=...)` is called in a thread and may block; functions of `watch` are
    called in the loop of the plain clients and must not.
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
        flow: Flow = Flow(hold=20.0),
        retry: Retry = Retry(),
        rebalance: Rebalance = Rebalance(),
        offsets: Offsets = Offsets(interval=5.0),
        deserializer: Deserializer[Any] | None = None,
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
                rebalance=self._plain_rebalance(rebalance),
                offsets=offsets,
                deserializer=deserializer,
                watch=watch,
                options=options,
            )
        )

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer has now: its share in the group, or those assigned with `assign`."""
        return self._call(lambda: self._twin.assignment)

    def owns(self, queue: MessageQueue) -> bool:
        """Return whether this consumer has a queue now."""
        return self._call(lambda: self._twin.owns(queue))

    def assign(self, queues: Iterable[MessageQueue], *, tags: Filter = "*") -> None:
        """Consume exactly these queues from now on, without being a member of the group. Raises ErucaError.

        Each starts at the committed offset of the group, or at `start`; a queue assigned before keeps its position.
        """
        self._run(self._twin.assign(list(queues), tags=tags))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Return no messages of these queues (default: all) until `resume`.

        This also holds for queues assigned later, and for a queue that is taken away and comes back.
        """
        self._call(lambda: self._twin.pause(queues if queues is None else list(queues)))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Undo `pause`."""
        self._call(lambda: self._twin.resume(queues if queues is None else list(queues)))

    @property
    def paused(self) -> list[MessageQueue]:
        """Those of our queues that are paused."""
        return self._call(lambda: self._twin.paused)

    def list_queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of a topic, no matter which member has them. Raises NoRoute."""
        return self._run(self._twin.list_queues(topic))

    def poll(self, timeout: Duration | None = 5.0, max_messages: int | None = None) -> list[Message]:
        """Return the next messages of our queues, at most `max_messages`; an empty list when none arrive in time.

        Messages already fetched are returned at once; `timeout=None` waits without limit. The messages of earlier polls
        count as done.
        """
        return [
            Message(message, self)
            for message in self._run(self._twin.poll(timeout, max_messages), self._find_patience(timeout))
        ]

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        tags: Filter = "*",
        max_messages: int = 32,
        hold: Duration = 0,
        timeout: Duration = 10.0,
    ) -> PullResult:
        """Ask the broker of any queue once for messages, starting at an offset. Raises ErucaError.

        If there is none, the broker waits for one for at most `hold`. Our position does not change.
        """
        return self._plain_pull(queue, offset, tags=tags, max_messages=max_messages, hold=hold, timeout=timeout)

    def send_back(self, message: Message, delay_level: int = 0, *, delay: Duration | None = None) -> None:
        """Have a message delivered to the group again after a delay, or a delay level; below 0: as a dead letter.

        It arrives in the retry topic of the group (`%RETRY%` followed by the name of the group), which is subscribed to
        or assigned like any other topic.
        """
        self._run(self._twin.send_back(find_twin("message", message), delay_level, delay=delay))

    def view(self, offset_id: str) -> Message:
        """Return the message with an offset id (`Message.offset_id`).

        Raises RequestRefused when there is none, and NoRoute when the id names no broker of this cluster.
        """
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
        """Return the messages of a topic with a key, or with `unique` the one with a message id, oldest first."""
        return [
            Message(message, self)
            for message in self._run(self._twin.query(topic, key, begin, end, max_messages, unique=unique))
        ]

    def lag(self) -> Lag:
        """Return how many messages were not handed out yet, in total and for each of our queues. Raises ErucaError."""
        return self._run(self._twin.lag())

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that `poll` returns from one of our queues. Raises QueueNotOurs."""
        return self._call(lambda: self._twin.position(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset of one of our queues. Raises OffsetLost, QueueNotOurs."""
        self._run(self._twin.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> int:
        """Continue at the first message that one of our queues still has; returns its offset."""
        return self._run(self._twin.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> int:
        """Continue with messages that arrive in one of our queues from now on; returns the offset."""
        return self._run(self._twin.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, time: datetime) -> int:
        """Continue at the first message of one of our queues stored at a time or later; returns its offset."""
        return self._run(self._twin.seek_to_time(queue, time))

    def begin_offset(self, queue: MessageQueue) -> int:
        """Return the first offset that a queue still has."""
        return self._run(self._twin.begin_offset(queue))

    def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset after the last message of a queue."""
        return self._run(self._twin.end_offset(queue))

    def offset_at(self, queue: MessageQueue, time: datetime) -> int:
        """Return the offset of the first message of a queue stored at a time or later; its end if there is none."""
        return self._run(self._twin.offset_at(queue, time))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset at which the group continues after a restart; None when it has never committed."""
        return self._run(self._twin.committed(queue))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what was handed out so far, or these offsets, and wait until the broker has it. Raises ErucaError."""
        self._run(self._twin.commit(offsets))
