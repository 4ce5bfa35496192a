"""Events for operators: a group requested an offset that does not exist.

Consumers correct their offset after the first such answer. One that repeats the request, and needs no right to publish
for it, must not fill the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from eruca._broker.administering.stats import Stats
from eruca._broker.options import LiveOptions
from eruca._broker.standing import Standing
from eruca._ground.clock import Clock
from eruca._store.messagestore import MessageStore
from eruca._store.reading.slices import ReadResult
from eruca._wire import fastjson
from eruca._wire.headers import PullMessageHeader
from eruca._wire.names import OFFSET_MOVED_TOPIC
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record
from eruca.errors import StoreError

# A group and queue have at most one event in this time.
QUIET_SECONDS: Final = 10.0
# Of this many groups and queues; for others there is no event until the time of one of these is over.
RECENT_MAX: Final = 4096

# Group, topic and queue.
_Key: TypeAlias = tuple[str, str, int]


@dataclass(eq=False)
class OffsetMovedEvents:
    """Stores the events, which are best effort only."""

    _options: LiveOptions
    _standing: Standing
    _clock: Clock
    _store: MessageStore
    _stats: Stats
    # When the last events were stored; the oldest comes first.
    _recent: dict[_Key, float] = field(default_factory=dict)

    def tell(self, header: PullMessageHeader, result: ReadResult) -> None:
        """Store an event, unless there was one for the same group and queue a moment ago."""
        if not self._is_due((header.consumer_group, header.topic, header.queue_id)):
            return
        event = {
            "consumerGroup": header.consumer_group,
            "messageQueue": {
                "brokerName": self._options.now.name,
                "queueId": header.queue_id,
                "topic": header.topic,
            },
            "offsetNew": result.next_offset,
            "offsetRequest": header.queue_offset,
        }
        group = header.consumer_group
        try:
            note = self._store.append(
                Record(
                    topic=OFFSET_MOVED_TOPIC,
                    body=fastjson.write(event),
                    properties=encode_properties({"KEYS": group, "DELAY": "0", "TAGS": group}),
                    born_timestamp=self._clock.now_ms(),
                    born_host=self._standing.store_host,
                    store_host=self._standing.store_host,
                )
            )
        except StoreError:
            return
        self._stats.on_own(note.size)

    def _is_due(self, key: _Key) -> bool:
        now, recent = self._clock.monotonic(), self._recent
        while recent and now - next(iter(recent.values())) >= QUIET_SECONDS:
            del recent[next(iter(recent))]
        if key in recent or len(recent) >= RECENT_MAX:
            return False
        recent[key] = now
        return True
