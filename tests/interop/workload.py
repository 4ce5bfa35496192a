"""Messages of every kind, appended to a store and remembered, and how each of them looks to a reader."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from eruca._ground.config import StoreOptions
from eruca._store.messagestore import MessageStore
from eruca._store.queues.dispatch import has_queue_entry
from eruca._store.tables.tables import Tables
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import ConsumerOffsets, DelayOffsets, GroupConfigTable, TopicConfigTable
from eruca._wire.bodies.topics import GroupConfig, TopicConfig
from eruca._wire.compression import compress
from eruca._wire.host import pack_host
from eruca._wire.ids import UniqueIds, encode_offset_id
from eruca._wire.names import SCHEDULE_TOPIC
from eruca._wire.properties import (
    CLUSTER,
    DELAY,
    KEYS,
    MAX_OFFSET,
    MIN_OFFSET,
    ORIGIN_MESSAGE_ID,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TAGS,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
    encode_properties,
)
from eruca._wire.record import Record, body_crc, decode_record, record_size, user_body
from eruca._wire.sysflag import (
    BORN_HOST_V6,
    COMPRESSED,
    COMPRESSION_LEGACY_ZLIB,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    MULTI_TAGS,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

QUEUES: Final = 4
GROUP: Final = "InteropReader"
LONG_TOPIC: Final = "L" * 127
RETRY_GROUP_TOPIC: Final = f"%RETRY%{GROUP}"
EMPTY_TOPIC: Final = "NothingYet"
TOPICS: Final = (
    "Single",
    "Batch",
    "Compressed",
    "Keyed",
    "IPv6",
    "Big",
    "Empty",
    "Properties",
    "Transaction",
    "Roll",
    "Delayed",
    LONG_TOPIC,
    RETRY_GROUP_TOPIC,
    EMPTY_TOPIC,
)
# What the tables say before Java comes: committed offsets of two queues, and how far delivery of level 3 is.
COMMITTED: Final = {0: 3, 1: 7}
DELIVERED: Final = {3: 2}
PENDING_LEVEL: Final = 18
# Between two messages; large enough to tell store times apart, and half of it rounds to the earlier one.
TICK_MS: Final = 50
BORN_HOST: Final = pack_host("10.1.2.3", 45_678)
BODY_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass
class Workload:
    """One store, the messages appended to it in order, and the clock that gives their store times."""

    store: MessageStore
    clock: VirtualClock
    port: int
    messages: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store_host = pack_host("127.0.0.1", self.port)
        self.store_host_v6 = pack_host("::1", self.port)
        self._ids = UniqueIds("10.1.2.3", 4242, self.clock, salt=7)
        self._random = random.Random(20_261_115)

    def text(self, size: int) -> bytes:
        """Letters that compress a little."""
        return bytes(self._random.choices(b"abcdefghijklmnop", k=size))

    def noise(self, size: int) -> bytes:
        """Bytes that do not compress."""
        return self._random.randbytes(size)

    def make(self, topic: str, queue_id: int = 0, body: bytes = b"", **properties: str) -> Record:
        """A message as a broker hands it to its store after a plain send."""
        named = {UNIQ_KEY: self._ids.create(), CLUSTER: "DefaultCluster", **properties}
        return Record(
            topic,
            queue_id,
            body=body,
            properties=encode_properties(named),
            born_timestamp=self.clock.now_ms() - 7,
            born_host=BORN_HOST,
            store_host=self.store_host,
        )

    def append(self, message: Record) -> Record:
        """Append one message and let time pass."""
        self.messages.append(self.store.append(message))
        self.clock.advance(TICK_MS)
        return message

    def append_batch(self, messages: list[Record]) -> None:
        """Append messages after one another, all stored at one time."""
        self.messages += self.store.append_batch(messages)
        self.clock.advance(TICK_MS)

    def of_topic(self, topic: str) -> list[Record]:
        """What was appended to a topic and has a place in a queue, by queue and offset."""
        shown = [m for m in self.messages if m.topic == topic and has_queue_entry(m.sys_flag)]
        return sorted(shown, key=lambda message: (message.queue_id, message.queue_offset))


def make_options(segment_bytes: int, *, transient: bool = False) -> StoreOptions:
    """Sizes so small that everything rolls: log, queues and index."""
    return StoreOptions(
        commitlog_segment_bytes=segment_bytes,
        consumequeue_segment_bytes=2_000,
        index_slots=100,
        index_entries=400,
        transient_enabled=transient,
    )


def to_java(options: StoreOptions) -> dict[str, object]:
    """The same sizes for the Java broker."""
    return {
        "mappedFileSizeCommitLog": options.commitlog_segment_bytes,
        "mappedFileSizeConsumeQueue": options.consumequeue_segment_bytes,
        "maxHashSlotNum": options.index_slots,
        "maxIndexNum": options.index_entries,
    }


def hash_log(root: Path, end: int) -> str:
    """A digest of the commit log up to a position."""
    digest = hashlib.sha256()
    for path in sorted((root / "commitlog").iterdir()):
        digest.update(path.read_bytes()[: max(0, end - int(path.name))])
    return digest.hexdigest()


# --- the kinds ----------------------------------------------------------------------------------------------------


def append_single(work: Workload) -> None:
    """Plain messages to every queue, to the longest topic name there is, and one that came back for a retry."""
    for number in range(80):
        body = f"消息 {number} héllo 😀".encode() if number % 7 == 0 else work.text(16 + number * 3)
        message = work.make("Single", number % QUEUES, body, TAGS=f"Tag{number % 3}")
        message.flag = (0, 1, -1, 0x7FFFFFFF)[number % 4]
        work.append(message)
    for number in range(5):
        work.append(work.make(LONG_TOPIC, number % QUEUES, work.text(30)))
    first = work.messages[0]
    retried = work.make(
        RETRY_GROUP_TOPIC,
        0,
        first.body,
        **{
            RETRY_TOPIC: first.topic,
            ORIGIN_MESSAGE_ID: encode_offset_id(first.store_host, first.position),
            WAIT: "false",
            DELAY: "3",
            REAL_TOPIC: RETRY_GROUP_TOPIC,
            REAL_QID: "0",
        },
    )
    retried.reconsume_times = 5
    work.append(retried)


def append_batches(work: Workload) -> None:
    """Batches; each message has its own properties followed by those of the batch, repetitions included."""
    shared = encode_properties({CLUSTER: "DefaultCluster", WAIT: "true"})
    for batch in range(5):
        messages = []
        for number in range(100):
            message = work.make("Batch", batch % QUEUES, work.text(20 + number), TAGS="TagBatch", WAIT="true")
            message.properties += b"\x02" + shared
            message.flag = number
            messages.append(message)
        work.append_batch(messages)
    work.append_batch([work.make("Batch", 0, b"a batch of one")])


def append_compressed(work: Workload) -> None:
    """Bodies in every compression a 4.9 client knows."""
    for number, kind in enumerate((COMPRESSION_LEGACY_ZLIB, COMPRESSION_ZLIB, COMPRESSION_LZ4, COMPRESSION_ZSTD)):
        for size in (1, 4097, 40_000):
            message = work.make("Compressed", number, compress(work.text(size), kind))
            message.sys_flag = COMPRESSED | kind
            work.append(message)


def append_keyed(work: Workload) -> None:
    """Messages with one key, several, a common one, and one of another alphabet."""
    for number in range(60):
        keys = (f"K{number}", f"K{number} GROUP{number % 5}", f"键{number}", f"  K{number}   COMMON ")[number % 4]
        work.append(work.make("Keyed", number % 2, work.text(10), **{KEYS: keys}))


def append_ipv6(work: Workload) -> None:
    """Hosts of both families in all four combinations."""
    born_v6 = pack_host("2001:db8::42", 50_000)
    for number in range(12):
        message = work.make("IPv6", number % QUEUES, work.text(50), **{KEYS: f"V6_{number}"})
        if number & 1:
            message.born_host = born_v6
            message.sys_flag |= BORN_HOST_V6
        if number & 2:
            message.store_host = work.store_host_v6
            message.sys_flag |= STORE_HOST_V6
        work.append(message)


def append_big(work: Workload) -> None:
    """Half a segment, and the largest body that one segment (or one message) can hold."""
    segment = work.store.options.commitlog_segment_bytes
    for number in range(4):
        message = work.make("Big", number % 2)
        room = segment - 8 - record_size(0, len(message.topic), len(message.properties), 0)
        message.body = work.noise(min(room if number % 2 else segment // 2, BODY_BYTES_MAX))
        work.append(message)


def append_empty(work: Workload) -> None:
    """Messages without body, and without anything but a topic."""
    for number in range(4):
        work.append(work.make("Empty", number % 2))
    work.append(Record("Empty", 2, store_host=work.store_host))
    work.append(Record("Empty", 3, body=b"x"))


def append_properties(work: Workload) -> None:
    """Properties of every kind and shape, well formed or not."""
    odd = {
        "plain": "value",
        "蓝": "色 😀",
        "with spaces ": " and = & \t signs",
        "long": "v" * 5_000,
        PGROUP: "group",
        TRAN_MSG: "true",
        RECONSUME_TIME: "2",
        "TRACE_ON": "true",
        "MSG_REGION": "DefaultRegion",
    }
    work.append(work.make("Properties", 0, b"all at once", **odd))
    for name, value in odd.items():
        work.append(work.make("Properties", 1, b"one by one", **{name: value}))
    shapes = [
        b"",
        b"a\x01b\x02",
        b"a\x01b\x02a\x01c",
        b"a\x01b\x02\x02c\x01d",
        b"nothing\x02a\x01b",
        b"a\x01\x02b\x01c",
    ]
    shapes += [b"\x01v\x02a\x01b", b"a\x01b=c", b"TAGS\x01T\x02KEYS\x01k1 k2"]
    for raw in shapes:
        message = work.make("Properties", 2, b"a shape")
        message.properties = raw
        work.append(message)
    longest = work.make("Properties", 3, b"as long as it may be")
    longest.properties += b"\x02fill\x01"
    longest.properties += b"f" * (32_767 - len(longest.properties))
    work.append(longest)
    tagged = work.make("Properties", 3, b"several tags", TAGS="A||B")
    tagged.sys_flag = MULTI_TAGS
    work.append(tagged)


def append_transactions(work: Workload) -> None:
    """Committed transactions, between prepared and rolled-back records, which have no place in a queue."""
    for number in range(12):
        prepared = work.make("Transaction", number % 2, b"prepared", **{TRAN_MSG: "true", PGROUP: "producers"})
        prepared.sys_flag = TRANSACTION_PREPARED
        work.append(prepared)
        decided = work.make("Transaction", number % 2, b"decided", **{TRAN_MSG: "true", PGROUP: "producers"})
        decided.sys_flag = TRANSACTION_COMMIT if number % 3 else TRANSACTION_ROLLBACK
        decided.prepared_position = prepared.position
        work.append(decided)


def append_rolls(work: Workload) -> None:
    """Segments that end with as little room as possible, and with a little more."""
    for rest in (8, 9, 50, 99, 8):
        _fill_segment(work, rest)
        work.append(work.make("Roll", 1, b"first in its segment"))
    for number in range(250):
        work.append(work.make("Roll", 2, work.text(100 + number % 50)))


def _fill_segment(work: Workload, rest: int) -> None:
    """Append until exactly `rest` bytes of a segment are left."""
    log, segment = work.store.log, work.store.options.commitlog_segment_bytes
    while True:
        message = work.make("Roll", 0)
        body = segment - log.tail % segment - rest - record_size(0, 4, len(message.properties), 0)
        exact = 0 <= body <= BODY_BYTES_MAX
        message.body = work.text(body if exact else 1_000 if body < 0 else BODY_BYTES_MAX // 2)
        work.append(message)
        if exact:
            return


def append_delayed(work: Workload, now_ms: int) -> None:
    """Delayed messages as a broker stores them: due long ago, due in a moment, and not for two hours."""
    for number in range(30):
        _append_delayed(work, (1, 3, PENDING_LEVEL)[number % 3], number)
    # Level 2 is five seconds: still ahead when the broker starts to look.
    work.clock.set_ms(now_ms)
    for number in range(30, 35):
        _append_delayed(work, 2, number)


def _append_delayed(work: Workload, level: int, number: int) -> None:
    real_queue = level % QUEUES
    wrapped = {WAIT: "true", DELAY: str(level), REAL_TOPIC: "Delayed", REAL_QID: str(real_queue), KEYS: f"D{number}"}
    work.append(work.make(SCHEDULE_TOPIC, level - 1, f"delayed {number}".encode(), **wrapped))


Kind = Callable[[Workload], None]
KINDS: Final[tuple[Kind, ...]] = (
    append_single,
    append_keyed,
    append_batches,
    append_compressed,
    append_ipv6,
    append_big,
    append_empty,
    append_properties,
    append_transactions,
    append_rolls,
)


def append_all(work: Workload, now_ms: int, between: Callable[[], None]) -> None:
    """Append messages of every kind; `between` is called after each kind."""
    for kind in KINDS:
        kind(work)
        between()
    append_delayed(work, now_ms)


def write_tables(tables: Tables, delivered: Mapping[int, int] = DELIVERED) -> None:
    """The tables a broker of ours would leave: our topics, one group, its offsets, and how far delivery is."""
    topics = {
        name: TopicConfig(topic_name=name, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6) for name in TOPICS
    }
    tables.topics.save(TopicConfigTable(topic_config_table=topics))
    groups = {GROUP: GroupConfig(group_name=GROUP, retry_max_times=3)}
    tables.groups.save(GroupConfigTable(subscription_group_table=groups))
    tables.consumer_offsets.save(ConsumerOffsets(offset_table={f"Single@{GROUP}": dict(COMMITTED)}))
    tables.delay_offsets.save(DelayOffsets(offset_table=dict(delivered)))


# --- how a message looks ------------------------------------------------------------------------------------------


def describe(message: Record) -> dict[str, Any]:
    """The row that `StoreClient.java` writes for a message."""
    properties = message.read_properties()
    offset_id = encode_offset_id(message.store_host, message.position)
    body = user_body(message)
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.position,
        "storeSize": message.size,
        "msgId": properties.get(UNIQ_KEY, offset_id),
        "offsetMsgId": offset_id,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCRC": body_crc(message.body),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_position,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host.hex(),
        "storeHost": message.store_host.hex(),
        "tags": properties.get(TAGS),
        "keys": properties.get(KEYS),
        "properties": {name: value for name, value in properties.items() if name not in (MIN_OFFSET, MAX_OFFSET)},
        "bodyLen": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
    }


def iterate_queue(store: MessageStore, topic: str, queue_id: int) -> Iterator[Record]:
    """Every message of a queue as our own store reads it."""
    queue = store.queues.get(topic, queue_id)
    offset, end = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
    while offset < end:
        result = store.reader.read(topic, queue_id, offset)
        for view in result.slices:
            yield decode_record(view)
        assert result.next_offset > offset
        offset = result.next_offset


def read_all(store: MessageStore, topics: tuple[str, ...]) -> list[dict[str, Any]]:
    """Every message of the topics as our own store reads it, in the order of a dump."""
    queues = sorted((queue.topic, queue.queue_id) for queue in store.queues)
    return [
        describe(message)
        for topic in topics
        for name, queue_id in queues
        if name == topic
        for message in iterate_queue(store, topic, queue_id)
    ]
