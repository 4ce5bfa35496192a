"""`Messages` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.messages` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from eruca._admin.messages import Consumed, QueueRows
from eruca._admin.messages import Messages as AsyncMessages
from eruca._admin.results import LIMIT, Listed
from eruca._admin.storedmessages import StoredMessage
from eruca._admin.sync.base import PlainPart
from eruca._admin.tracing import TraceRow, Track
from eruca._client.produce.outgoing import Receipt
from eruca._ground.durations import Duration


class Messages(PlainPart[AsyncMessages]):
    """Finds, reads, sends and follows messages: `admin.messages`."""

    def view(self, offset_id: str) -> StoredMessage:
        """Return the message with an offset id, the id that names broker and position. Raises RequestRefused."""
        return self._run(self._twin.view(offset_id))

    def find(self, topic: str, message_id: str, *, limit: int = 32) -> Listed[StoredMessage]:
        """Return the messages of a topic with the id their producer chose: one, or several after a retry."""
        return self._run(self._twin.find(topic, message_id, limit=limit))

    def find_by_key(
        self, topic: str, key: str, *, since: datetime | None = None, until: datetime | None = None, limit: int = 64
    ) -> Listed[StoredMessage]:
        """Return the messages of a topic with a key, oldest first; the newest if there are more than `limit`."""
        return self._run(self._twin.find_by_key(topic, key, since=since, until=until, limit=limit))

    def at(self, topic: str, broker: str, queue: int, offset: int) -> StoredMessage:
        """Return the message at an offset of a queue. Raises NoRoute if there is none."""
        return self._run(self._twin.at(topic, broker, queue, offset))

    def entries(
        self, topic: str, broker: str, queue: int, offset: int, *, count: int = 10, group: str | None = None
    ) -> QueueRows:
        """Return entries of a consume queue, for a look at the files of a broker."""
        return self._run(self._twin.entries(topic, broker, queue, offset, count=count, group=group))

    def offset_at(self, topic: str, broker: str, queue: int, at: datetime) -> int:
        """Return the offset of the first message of a queue that was stored at a time or later; its end without one."""
        return self._run(self._twin.offset_at(topic, broker, queue, at))

    def read(
        self,
        topic: str,
        *,
        broker: str | None = None,
        queue: int | None = None,
        offset: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tags: str = "*",
        key: str | None = None,
        group: str | None = None,
        newest_first: bool = False,
        resume: Mapping[str, int] | None = None,
        limit: int | None = LIMIT,
    ) -> Iterator[StoredMessage]:
        """Yield the messages of a topic up to the present ends of its queues, in the order of storing. Raises NoRoute.

        `since` and `until` are times of storing; both ends are included. `offset` needs `broker` and `queue`. With
        `group`, brokers count the messages as read by this group, whose offsets stay as they are. `newest_first` reads
        backwards. `resume` continues an earlier read: the offset of the last message it returned of each queue,
        `{"broker-a:0": 41}`.
        """
        return self._iterate(
            self._twin.read(
                topic,
                broker=broker,
                queue=queue,
                offset=offset,
                since=since,
                until=until,
                tags=tags,
                key=key,
                group=group,
                newest_first=newest_first,
                resume=resume,
                limit=limit,
            )
        )

    def tail(
        self,
        topic: str,
        *,
        broker: str | None = None,
        queue: int | None = None,
        offset: int | None = None,
        last: int = 0,
        tags: str = "*",
        key: str | None = None,
        limit: int | None = None,
    ) -> Iterator[StoredMessage]:
        """Yield the messages that arrive in a topic, for ever or up to `limit`, and first the `last` of each queue."""
        return self._iterate(
            self._twin.tail(
                topic, broker=broker, queue=queue, offset=offset, last=last, tags=tags, key=key, limit=limit
            )
        )

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        broker: str | None = None,
        queue: int | None = None,
        shard: str | None = None,
        delay: Duration | None = None,
        timer: Duration | datetime | None = None,
        trace: bool = False,
        auto_create: bool = False,
        dry_run: bool = False,
    ) -> Receipt | None:
        """Send a message, to any queue or to a certain one, for a test; None with `dry_run`.

        It creates no topic, unless `auto_create` is set and brokers allow it. `shard` chooses the queue, `delay` is one
        of the delay levels and `timer` any delay or a time, as for a producer.
        """
        return self._run(
            self._twin.send(
                topic,
                body,
                tags=tags,
                keys=keys,
                properties=properties,
                broker=broker,
                queue=queue,
                shard=shard,
                delay=delay,
                timer=timer,
                trace=trace,
                auto_create=auto_create,
                dry_run=dry_run,
            )
        )

    def consume_directly(
        self, offset_id: str, group: str, client_id: str | None = None, *, dry_run: bool = False
    ) -> Consumed | None:
        """Have a client of a group, by default any, consume a message now, whatever its offset. None with `dry_run`.

        Raises NoRoute if no such client is connected to the broker of the message.
        """
        return self._run(self._twin.consume_directly(offset_id, group, client_id, dry_run=dry_run))

    def tracks(self, offset_id: str, *, limit: int = LIMIT) -> Listed[Track]:
        """Return what the groups of its topic did with a message."""
        return self._run(self._twin.tracks(offset_id, limit=limit))

    def trace(self, message_id: str, *, trace_topic: str | None = None, limit: int = 64) -> Listed[TraceRow]:
        """Return the steps of a message, which its clients traced, by message id or by key; oldest first.

        `limit` is the number of trace messages that are read.
        """
        return self._run(self._twin.trace(message_id, trace_topic=trace_topic, limit=limit))
