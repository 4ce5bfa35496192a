"""Bodies about clients: heartbeats, locks, connections, and requests from brokers."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

import msgspec

from eruca._ground.limits import BODY_BYTES_AT_ONCE
from eruca._wire.bodies.shared import (
    JsonBody,
    MessageQueue,
    QueueKey,
    decode_json,
    encode_json,
    kept,
    kept_dict,
    kept_list,
)
from eruca._wire.codes import Language
from eruca._wire.ext import Int32, Int64


class _NamedLikeJava(StrEnum):
    @classmethod
    def _missing_(cls, value: object) -> _NamedLikeJava | None:
        # Some clients in other languages use different capitals.
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None

    @classmethod
    def from_number(cls, value: Self | int) -> Self:
        """Look up what the C++ client sends: the place in the enum, which Java also accepts."""
        if isinstance(value, cls):
            return value
        members = list(cls)
        if not isinstance(value, int) or not 0 <= value < len(members):
            raise ValueError(f"{cls.__name__} has no number {value}")
        return members[value]


class ConsumeType(_NamedLikeJava):
    """Who drives the consumer: the application (pull) or the client library (push)."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"


class MessageModel(_NamedLikeJava):
    """Each message goes to one member of the group, or to all."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(_NamedLikeJava):
    """Where a group without an offset starts. Three are deprecated and mean the last offset."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


if TYPE_CHECKING:
    _AnyFromWhere: TypeAlias = ConsumeFromWhere
    _AnyType: TypeAlias = ConsumeType
    _AnyModel: TypeAlias = MessageModel
else:
    # What a decoder accepts; `ConsumerData` converts the numbers to names.
    _AnyFromWhere = ConsumeFromWhere | int
    _AnyType = ConsumeType | int
    _AnyModel = MessageModel | int


class SubscriptionData(JsonBody, kw_only=True):
    """A group's subscription to a topic. `code_set` has Java's hash of each tag; both sets are empty for "*"."""

    class_filter_mode: bool = kept(False)
    code_set: list[Int32] = kept_list()
    expression_type: str = kept("TAG")
    filter_class_source: str | None = None
    sub_string: str | None = None
    sub_version: Int64 = kept(0)
    tags_set: list[str] = kept_list()
    topic: str


class ConsumerData(JsonBody, kw_only=True):
    """One consumer group of a client."""

    consume_from_where: _AnyFromWhere = kept(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
    consume_type: _AnyType = kept(ConsumeType.CONSUME_PASSIVELY)
    # Eruca's own: the broker is to tell this client which topics are created (90104). Others ignore it.
    eruca_new_topics: bool | None = None
    group_name: str
    message_model: _AnyModel = kept(MessageModel.CLUSTERING)
    subscription_data_set: list[SubscriptionData] = kept_list()
    unit_mode: bool = kept(False)

    def __post_init__(self) -> None:
        self.consume_from_where = ConsumeFromWhere.from_number(self.consume_from_where)
        self.consume_type = ConsumeType.from_number(self.consume_type)
        self.message_model = MessageModel.from_number(self.message_model)


class ProducerData(JsonBody, kw_only=True):
    """One producer group of a client."""

    group_name: str


class HeartbeatData(JsonBody, kw_only=True):
    """A client reports that it is alive and its groups (34)."""

    client_id: str = msgspec.field(name="clientID")
    consumer_data_set: list[ConsumerData] = kept_list()
    producer_data_set: list[ProducerData] = kept_list()


class _RawHeartbeat(JsonBody, kw_only=True):
    """A heartbeat whose consumer groups are not read yet."""

    client_id: str = msgspec.field(name="clientID")
    consumer_data_set: list[msgspec.Raw] = kept_list()
    producer_data_set: list[ProducerData] = kept_list()


def decode_heartbeat(data: bytes) -> HeartbeatData:
    """Read a heartbeat. A large one is read group by group, so that a thread reading it lets others run."""
    if len(data) <= BODY_BYTES_AT_ONCE:
        return decode_json(HeartbeatData, data)
    raw = decode_json(_RawHeartbeat, data)
    consumers = [decode_json(ConsumerData, bytes(item)) for item in raw.consumer_data_set]
    return HeartbeatData(client_id=raw.client_id, consumer_data_set=consumers, producer_data_set=raw.producer_data_set)


class CheckClientBody(JsonBody, kw_only=True):
    """A client asks whether the broker can parse its expression (46)."""

    client_id: str
    group: str
    subscription_data: SubscriptionData


class LockBody(JsonBody, kw_only=True):
    """A client requests to lock (41) or unlock (42) queues for ordered consuming."""

    client_id: str
    consumer_group: str
    # Eruca's own: how long a lock is to last without being renewed.
    eruca_lock_ms: Int64 | None = None
    mq_set: list[MessageQueue] = kept_list()


class BatchAck(JsonBody, kw_only=True):
    """Messages of one delivery to acknowledge; the names on the wire have one or two letters."""

    # A bit set in base64: bit n is the message n behind the first one.
    bits: str = kept("", "b")
    group: str = kept("", "c")
    invisible_time: Int64 = kept(0, "it")
    pop_time: Int64 = kept(0, "pt")
    queue_id: Int32 = kept(0, "q")
    # 0: the topic; 1 and 2: its retry topic.
    retry: str = kept("0", "r")
    revive_queue_id: Int32 = kept(0, "rq")
    start_offset: Int64 = kept(0, "so")
    topic: str = kept("", "t")


class BatchAckBody(JsonBody, kw_only=True):
    """Acknowledge messages of several deliveries (200151)."""

    acks: list[BatchAck] = kept_list()
    broker_name: str | None = None


class LockedBody(JsonBody, kw_only=True):
    """The queues that were locked (answer to 41)."""

    # Eruca's own, if the client asked for a time: how long they stay locked.
    eruca_lock_ms: Int64 | None = None
    locked: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=lambda: [])


class ConsumerIds(JsonBody, kw_only=True):
    """The clients in a consumer group (answer to 38)."""

    consumer_id_list: list[str] = kept_list()


class Connection(JsonBody, kw_only=True):
    """One client's connection."""

    client_addr: str
    client_id: str
    language: Language = kept(Language.JAVA)
    version: Int32 = kept(0)


class ConsumerConnection(JsonBody, kw_only=True):
    """The members of a consumer group and their subscriptions (answer to 203)."""

    connection_set: list[Connection] = kept_list()
    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    subscription_table: dict[str, SubscriptionData] = kept_dict()


class ProducerConnection(JsonBody, kw_only=True):
    """The members of a producer group (answer to 204)."""

    connection_set: list[Connection] = kept_list()


class ProducerInfo(JsonBody, kw_only=True):
    """One producer of the table below."""

    client_id: str
    language: Language = kept(Language.JAVA)
    last_update_timestamp: Int64 = kept(0)
    remote_ip: str | None = msgspec.field(default=None, name="remoteIP")  # "/ip:port"
    version: Int32 = kept(0)


class ProducerTable(JsonBody, kw_only=True):
    """Every producer by group (answer to 328)."""

    data: dict[str, list[ProducerInfo]] = kept_dict()


class ConsumerStatusBody(JsonBody, kw_only=True):
    """Offsets held by clients: of one client (answer to 221), by client id (answer to 223)."""

    has_odd_keys: ClassVar[bool] = True
    has_queue_keys: ClassVar[bool] = True

    consumer_table: dict[str, dict[QueueKey, Int64]] = kept_dict()
    message_queue_table: dict[QueueKey, Int64] = kept_dict()


class ResetOffsetBody(JsonBody, kw_only=True):
    """The new offsets of a reset (220, answer to 222)."""

    has_odd_keys: ClassVar[bool] = True
    has_queue_keys: ClassVar[bool] = True

    offset_table: dict[QueueKey, Int64] = kept_dict()


class QueueOffset(JsonBody, kw_only=True):
    """One entry of the list form below."""

    broker_name: str
    offset: Int64
    queue_id: Int32
    topic: str


class ResetOffsetList(JsonBody, kw_only=True):
    """The new offsets of a reset in the form C++ clients read (220)."""

    offset_table: list[QueueOffset] = kept_list()


def decode_reset_offsets(data: bytes) -> ResetOffsetBody:
    """Read the offsets of a reset in either form. Raises BodyError."""
    if data.replace(b" ", b"").startswith(b'{"offsetTable":['):
        entries = decode_json(ResetOffsetList, data).offset_table
        return ResetOffsetBody(
            offset_table={MessageQueue(item.broker_name, item.queue_id, item.topic): item.offset for item in entries}
        )
    return decode_json(ResetOffsetBody, data)


def encode_reset_offsets(body: ResetOffsetBody, *, as_list: bool = False) -> bytes:
    """Write the offsets of a reset, as a list when the requester is a C++ client."""
    if not as_list:
        return encode_json(body)
    return encode_json(
        ResetOffsetList(
            offset_table=[
                QueueOffset(broker_name=queue.broker_name, offset=offset, queue_id=queue.queue_id, topic=queue.topic)
                for queue, offset in body.offset_table.items()
            ]
        )
    )


class AccountInfo(JsonBody, kw_only=True):
    """One account as tools see it. It has no field for the secret, which Java's broker sends (54): it is not read."""

    access_key: str
    admin: bool = kept(False)
    default_group_perm: str | None = None
    default_topic_perm: str | None = None
    group_perms: list[str] | None = None
    topic_perms: list[str] | None = None
    white_remote_address: str | None = None


class AccountList(JsonBody, kw_only=True):
    """The accounts of a broker, and the addresses that need none (answer to 90103, and to 54 of Java's)."""

    global_white_addrs: list[str] = kept_list()
    plain_access_configs: list[AccountInfo] = kept_list()


class ConsumeResult(_NamedLikeJava):
    """The result of consuming a message directly."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeDirectlyResult(JsonBody, kw_only=True):
    """The answer to 309."""

    auto_commit: bool = kept(True)
    consume_result: ConsumeResult | None = None
    order: bool = kept(False)
    remark: str | None = None
    spent_time_ms: Int64 = msgspec.field(name="spentTimeMills", default_factory=lambda: 0)
