"""The catalog of requests: for each code its meaning, sender and receiver, header and body, answer, and the right the
sender needs, and for which topics and groups.

The table is the documentation. A code that is not in it is refused, and a server that has a handler for a code without
a right does not start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from eruca._wire import bodies as b
from eruca._wire import headers as h
from eruca._wire.codecs import (
    BodyCodec,
    HeartbeatCodec,
    JsonCodec,
    OptionsCodec,
    PayloadCodec,
    RecordCodec,
    RecordsCodec,
    RegistrationCodec,
    ResetOffsetsCodec,
    RouteCodec,
    SentBodyCodec,
)
from eruca._wire.codes import VERSION_ANNOUNCED, RequestCode, ResponseCode
from eruca._wire.command import Command, make_request
from eruca._wire.concerns import (
    NOTHING,
    Concerns,
    Names,
    ReadTopic,
    name_popped_topic,
    names_of_batch_ack,
    names_of_check,
    names_of_heartbeat,
    names_of_lock,
)
from eruca._wire.ext import Header


class Right(Enum):
    """The permission the sender of a request needs, when access control is enabled."""

    ACCOUNT = "be known: any account will do"
    PUBLISH = "publish to the topic of the request"
    SUBSCRIBE = "subscribe to the topics and groups of the request"
    INSPECT = "look at the cluster: topics, groups, offsets, statistics, but no secrets"
    ADMIN = "change the cluster, or see its settings and messages"
    UPLOAD = "upload a filter module"
    MEMBER = "look at the log of a broker: as another broker, or as an admin"
    BROKER = "be a broker of this cluster"
    SERVER = "be the broker at the other end of a connection the client opened"
    NOBODY = "nobody may: the code is an unused constant"


class Link(Enum):
    """The sender and the receiver of a request."""

    CLIENT_BROKER = "client to broker"
    BROKER_CLIENT = "broker to client"
    CLIENT_NAMESERVER = "client to name server"
    BROKER_NAMESERVER = "broker to name server"
    ADMIN_BROKER = "tools to broker"
    ADMIN_NAMESERVER = "tools to name server"
    SLAVE_MASTER = "slave to master"
    FILTERSERVER_BROKER = "filter server to broker"
    CLIENT_FILTERSERVER = "client to filter server"


_CB, _BC, _CN, _BN = Link.CLIENT_BROKER, Link.BROKER_CLIENT, Link.CLIENT_NAMESERVER, Link.BROKER_NAMESERVER
_AB, _AN, _SM = Link.ADMIN_BROKER, Link.ADMIN_NAMESERVER, Link.SLAVE_MASTER
_FB, _CF = Link.FILTERSERVER_BROKER, Link.CLIENT_FILTERSERVER


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """One row of the catalog. A header type without fields and a body of None mean that nothing is sent."""

    meaning: str
    links: tuple[Link, ...] = ()
    right: Right
    #: The topics and groups for which the right is needed. PUBLISH needs the permission to publish to each of them,
    #: every other right the permission to subscribe.
    concerns: Concerns = NOTHING
    header: type[Header] = h.EmptyHeader
    body: BodyCodec | None = None
    answer: type[Header] = h.EmptyHeader
    answer_body: BodyCodec | None = None
    #: The answer codes that come with the answer header; the others come with the refusal header.
    answered: frozenset[int] = frozenset({ResponseCode.SUCCESS})
    refusal: type[Header] = h.EmptyHeader


def _row(meaning: str, *links: Link, right: Right, **carried: Any) -> RequestSpec:
    return RequestSpec(meaning=meaning, links=links, right=right, **carried)


def _unused(meaning: str) -> RequestSpec:
    return RequestSpec(meaning=f"{meaning}; unused", right=Right.NOBODY)


# The three "stored, but" codes of a send carry the place of the message, as success does.
_STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
_PULLED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
_QUERIED = frozenset({ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND})
_SENT: Final[dict[str, Any]] = {
    "right": Right.PUBLISH,
    "body": SentBodyCodec(),
    "answer": h.SendMessageAnswerHeader,
    "answered": _STORED,
    "refusal": h.SendRefusedHeader,
}
# Long and one-letter name of the topic, and the topic of the record at a position.
_LONG: Final = {"header": h.SendMessageHeader, "concerns": Concerns(topics=("topic",)), **_SENT}
_SHORT: Final = {"header": h.SendMessageV2Header, "concerns": Concerns(topics=("b",)), **_SENT}
_TOPIC: Final = Concerns(topics=("topic",))
_GROUP: Final = Concerns(groups=("consumerGroup",))
_BOTH: Final = Concerns(topics=("topic",), groups=("consumerGroup",))
_POPPED: Final = Concerns(topics=("topic",), groups=("consumerGroup",), is_popped=True)
_LOCKED: Final = Concerns(in_body=names_of_lock)
_TOPIC_LIST: Final = JsonCodec(b.TopicList)
_KV_TABLE: Final = JsonCodec(b.KVTable)
_OPTIONS: Final = OptionsCodec()
_RECORD: Final = RecordCodec()
_RECORDS: Final = RecordsCodec()

# fmt: off
CATALOG: Final[dict[RequestCode, RequestSpec]] = {
    # --- sending ----------------------------------------------------------------------------------------------------
    RequestCode.SEND_MESSAGE: _row("send a message, long names", _CB, **_LONG),
    RequestCode.SEND_MESSAGE_V2: _row("send a message, one-letter names", _CB, **_SHORT),
    RequestCode.SEND_BATCH_MESSAGE: _row("send a batch", _CB, **_SHORT),
    RequestCode.SEND_REPLY_MESSAGE: _row(
        "send the reply to a request message, long names", _CB, **_LONG),
    RequestCode.SEND_REPLY_MESSAGE_V2: _row(
        "send the reply to a request message, one-letter names", _CB, **_SHORT),
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: _row(
        "bring a reply to the client that asked", _BC,
        right=Right.SERVER, header=h.PushReplyHeader, body=PayloadCodec()),
    RequestCode.CONSUMER_SEND_MSG_BACK: _row(
        "give a message back to be delivered again later", _CB, right=Right.SUBSCRIBE, header=h.SendBackHeader,
        concerns=Concerns(groups=("group",), position="offset")),
    RequestCode.END_TRANSACTION: _row(
        "decide a half message", _CB, right=Right.PUBLISH, header=h.EndTransactionHeader,
        concerns=Concerns(position="position")),
    RequestCode.CHECK_TRANSACTION_STATE: _row(
        "what became of this half message?", _BC, right=Right.SERVER, header=h.CheckTransactionHeader, body=_RECORD),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _row(
        "check a half message again from the start", _AB, right=Right.ADMIN, header=h.MessageIdHeader),

    # --- consuming --------------------------------------------------------------------------------------------------
    RequestCode.PULL_MESSAGE: _row(
        "pull messages of a queue", _CB, _CF, right=Right.SUBSCRIBE, concerns=_BOTH, header=h.PullMessageHeader,
        answer=h.PullMessageAnswerHeader, answer_body=_RECORDS, answered=_PULLED),
    RequestCode.QUERY_MESSAGE: _row(
        "find messages by key", _CB, right=Right.SUBSCRIBE, concerns=_TOPIC, header=h.QueryMessageHeader,
        answer=h.QueryMessageAnswerHeader, answer_body=_RECORDS, answered=_QUERIED),
    RequestCode.VIEW_MESSAGE_BY_ID: _row(
        "fetch the message at a position of the log", _CB, right=Right.SUBSCRIBE, header=h.ViewMessageHeader,
        concerns=Concerns(position="offset"), answer_body=_RECORD),
    RequestCode.QUERY_CONSUMER_OFFSET: _row(
        "the offset of a group in a queue", _CB, right=Right.SUBSCRIBE, header=h.QueryConsumerOffsetHeader,
        concerns=_BOTH, answer=h.CommittedOffsetHeader),
    RequestCode.UPDATE_CONSUMER_OFFSET: _row(
        "commit the offset of a group in a queue", _CB, right=Right.SUBSCRIBE, header=h.UpdateConsumerOffsetHeader,
        concerns=_BOTH),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _row(
        "the offset of a queue at a store time", _CB, right=Right.SUBSCRIBE, header=h.SearchOffsetHeader,
        concerns=_TOPIC, answer=h.OffsetAnswerHeader),
    RequestCode.GET_MAX_OFFSET: _row(
        "the end of a queue", _CB, right=Right.SUBSCRIBE, concerns=_TOPIC, header=h.QueueHeader,
        answer=h.OffsetAnswerHeader),
    RequestCode.GET_MIN_OFFSET: _row(
        "the beginning of a queue", _CB, right=Right.SUBSCRIBE, concerns=_TOPIC, header=h.QueueHeader,
        answer=h.OffsetAnswerHeader),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _row(
        "the store time of the first message of a queue", _CB, right=Right.SUBSCRIBE, concerns=_TOPIC,
        header=h.QueueHeader, answer=h.TimestampAnswerHeader),
    RequestCode.LOCK_BATCH_MQ: _row(
        "lock queues for ordered consuming", _CB, right=Right.SUBSCRIBE, concerns=_LOCKED, body=JsonCodec(b.LockBody),
        answer_body=JsonCodec(b.LockedBody)),
    RequestCode.UNLOCK_BATCH_MQ: _row(
        "unlock queues", _CB, right=Right.SUBSCRIBE, concerns=_LOCKED, body=JsonCodec(b.LockBody)),

    RequestCode.POP_MESSAGE: _row(
        "pop messages of a topic", _CB, right=Right.SUBSCRIBE, concerns=_BOTH, header=h.PopMessageHeader,
        answer=h.PopMessageAnswerHeader, answer_body=_RECORDS),
    RequestCode.ACK_MESSAGE: _row(
        "acknowledge a popped message", _CB, right=Right.SUBSCRIBE, concerns=_POPPED, header=h.AckMessageHeader),
    RequestCode.BATCH_ACK_MESSAGE: _row(
        "acknowledge popped messages", _CB, right=Right.SUBSCRIBE, concerns=Concerns(in_body=names_of_batch_ack),
        body=JsonCodec(b.BatchAckBody)),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _row(
        "make a popped message visible at another time", _CB, right=Right.SUBSCRIBE, concerns=_POPPED,
        header=h.ChangeInvisibleTimeHeader, answer=h.ChangeInvisibleTimeAnswerHeader),

    # --- clients and their groups -----------------------------------------------------------------------------------
    # Any account may send these two, but only for groups that it may consume as.
    RequestCode.HEART_BEAT: _row(
        "a client is alive and in these groups", _CB, right=Right.ACCOUNT, body=HeartbeatCodec(),
        concerns=Concerns(in_body=names_of_heartbeat)),
    RequestCode.UNREGISTER_CLIENT: _row(
        "a client leaves its groups", _CB, right=Right.ACCOUNT, concerns=_GROUP, header=h.UnregisterClientHeader),
    RequestCode.CHECK_CLIENT_CONFIG: _row(
        "can the broker read this expression?", _CB, right=Right.SUBSCRIBE, body=JsonCodec(b.CheckClientBody),
        concerns=Concerns(in_body=names_of_check)),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _row(
        "the clients in a consumer group", _CB, right=Right.SUBSCRIBE, concerns=_GROUP, header=h.ConsumerGroupHeader,
        answer_body=JsonCodec(b.ConsumerIds)),
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: _row(
        "the members of a group changed: rebalance", _BC, right=Right.SERVER, header=h.ConsumerGroupHeader),
    # Eruca's own, for clients that ask for it in their heartbeats.
    RequestCode.TOPICS_CREATED: _row("these topics are new", _BC, right=Right.SERVER, body=_TOPIC_LIST),
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _row(
        "take these offsets", _BC, right=Right.SERVER, header=h.ResetOffsetHeader, body=ResetOffsetsCodec()),
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _row(
        "which offsets do you have?", _BC, right=Right.SERVER, header=h.ConsumerStatusHeader,
        answer_body=JsonCodec(b.ConsumerStatusBody)),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _row(
        "what is a consumer doing?", _AB, _BC, right=Right.ADMIN, header=h.ConsumerRunningInfoHeader,
        answer_body=JsonCodec(b.ConsumerRunningInfo)),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _row(
        "have a client consume one message now", _AB, _BC, right=Right.ADMIN, header=h.ConsumeDirectlyHeader,
        body=_RECORD, answer_body=JsonCodec(b.ConsumeDirectlyResult)),

    # --- name server: routes and brokers ------------------------------------------------------------------------------
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _row(
        "where are the queues of a topic?", _CN, right=Right.ACCOUNT, header=h.RouteHeader, answer_body=RouteCodec()),
    RequestCode.GET_BROKER_CLUSTER_INFO: _row(
        "all brokers and clusters", _CN, right=Right.INSPECT, answer_body=JsonCodec(b.ClusterInfo)),
    RequestCode.REGISTER_BROKER: _row(
        "a broker is alive and has these topics", _BN, right=Right.BROKER, header=h.RegisterBrokerHeader,
        body=RegistrationCodec(), answer=h.RegisterBrokerAnswerHeader, answer_body=_KV_TABLE),
    RequestCode.UNREGISTER_BROKER: _row("a broker leaves", _BN, right=Right.BROKER, header=h.BrokerHeader),
    RequestCode.QUERY_DATA_VERSION: _row(
        "is my registration current?", _BN, right=Right.BROKER, header=h.BrokerHeader, body=JsonCodec(b.DataVersion),
        answer=h.DataVersionAnswerHeader, answer_body=JsonCodec(b.DataVersion)),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _row(
        "take the write permission from a broker", _AN, right=Right.ADMIN, header=h.BrokerNameHeader,
        answer=h.WipeWritePermAnswerHeader),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _row(
        "give the write permission back", _AN, right=Right.ADMIN, header=h.BrokerNameHeader,
        answer=h.AddWritePermAnswerHeader),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _row(
        "all topics", _CN, right=Right.INSPECT, answer_body=_TOPIC_LIST),
    RequestCode.GET_TOPICS_BY_CLUSTER: _row(
        "the topics of a cluster", _CN, right=Right.INSPECT, header=h.ClusterHeader, answer_body=_TOPIC_LIST),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _row(
        "cluster names and broker names", _AN, right=Right.INSPECT, answer_body=_TOPIC_LIST),
    RequestCode.GET_UNIT_TOPIC_LIST: _row("topics of a unit", _AN, right=Right.INSPECT, answer_body=_TOPIC_LIST),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _row(
        "topics subscribed by a unit", _AN, right=Right.INSPECT, answer_body=_TOPIC_LIST),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _row(
        "topics subscribed by a unit and of none", _AN, right=Right.INSPECT, answer_body=_TOPIC_LIST),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _row(
        "forget a topic", _AN, right=Right.ADMIN, header=h.DeleteTopicInNameServerHeader),
    RequestCode.PUT_KV_CONFIG: _row("set a value", _AN, right=Right.ADMIN, header=h.PutKVConfigHeader),
    RequestCode.GET_KV_CONFIG: _row(
        "get a value", _CN, right=Right.INSPECT, header=h.KVConfigHeader, answer=h.KVConfigAnswerHeader),
    RequestCode.DELETE_KV_CONFIG: _row("delete a value", _AN, right=Right.ADMIN, header=h.KVConfigHeader),
    RequestCode.GET_KVLIST_BY_NAMESPACE: _row(
        "all values of a namespace", _CN, right=Right.INSPECT, header=h.NamespaceHeader, answer_body=_KV_TABLE),
    RequestCode.UPDATE_NAMESRV_CONFIG: _row("change options", _AN, right=Right.ADMIN, body=_OPTIONS),
    RequestCode.GET_NAMESRV_CONFIG: _row("show options", _AN, right=Right.ADMIN, answer_body=_OPTIONS),

    # --- broker: topics, groups, options ------------------------------------------------------------------------------
    RequestCode.UPDATE_AND_CREATE_TOPIC: _row(
        "create or change a topic", _AB, _CB, right=Right.ADMIN, header=h.CreateTopicHeader),
    RequestCode.DELETE_TOPIC_IN_BROKER: _row("delete a topic", _AB, right=Right.ADMIN, header=h.TopicHeader),
    RequestCode.GET_ALL_TOPIC_CONFIG: _row(
        "the settings of all topics", _SM, _AB, right=Right.INSPECT, answer_body=JsonCodec(b.TopicConfigTable)),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _row(
        "create or change a group", _AB, right=Right.ADMIN, body=JsonCodec(b.GroupConfig)),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _row(
        "delete a group", _AB, right=Right.ADMIN, header=h.DeleteGroupHeader),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _row(
        "the settings of all groups", _SM, _AB, right=Right.INSPECT, answer_body=JsonCodec(b.GroupConfigTable)),
    RequestCode.GET_ALL_CONSUMER_OFFSET: _row(
        "all committed offsets", _SM, right=Right.INSPECT, answer_body=JsonCodec(b.ConsumerOffsets)),
    RequestCode.GET_ALL_DELAY_OFFSET: _row(
        "how far every delay level is", _SM, right=Right.INSPECT, answer_body=JsonCodec(b.DelayOffsets)),
    RequestCode.UPDATE_BROKER_CONFIG: _row("change options", _AB, right=Right.ADMIN, body=_OPTIONS),
    RequestCode.GET_BROKER_CONFIG: _row(
        "show options", _AB, right=Right.ADMIN, answer=h.BrokerConfigAnswerHeader, answer_body=_OPTIONS),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _row(
        "the broker's own topics", _AB, right=Right.INSPECT, answer_body=_TOPIC_LIST),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _row("delete old queue files", _AB, right=Right.ADMIN),
    RequestCode.CLEAN_UNUSED_TOPIC: _row("delete files of topics that are gone", _AB, right=Right.ADMIN),
    RequestCode.DELETE_EXPIRED_COMMITLOG: _row("delete old log segments", _AB, right=Right.ADMIN),

    # --- broker: statistics -------------------------------------------------------------------------------------------
    RequestCode.GET_BROKER_RUNTIME_INFO: _row(
        "numbers about the broker", _AB, right=Right.INSPECT, answer_body=_KV_TABLE),
    RequestCode.GET_TOPIC_STATS_INFO: _row(
        "the ends of a topic's queues", _AB, right=Right.INSPECT, header=h.TopicHeader,
        answer_body=JsonCodec(b.TopicStatsTable)),
    RequestCode.GET_CONSUME_STATS: _row(
        "how far is a group?", _AB, right=Right.INSPECT, header=h.ConsumeStatsHeader,
        answer_body=JsonCodec(b.ConsumeStats)),
    RequestCode.GET_BROKER_CONSUME_STATS: _row(
        "how far are all groups?", _AB, right=Right.INSPECT, header=h.BrokerConsumeStatsHeader,
        answer_body=JsonCodec(b.ConsumeStatsList)),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _row(
        "who is in a consumer group?", _AB, right=Right.INSPECT, header=h.ConsumerGroupHeader,
        answer_body=JsonCodec(b.ConsumerConnection)),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _row(
        "who is in a producer group?", _AB, right=Right.INSPECT, header=h.ProducerGroupHeader,
        answer_body=JsonCodec(b.ProducerConnection)),
    RequestCode.GET_ALL_PRODUCER_INFO: _row(
        "every producer", _AB, right=Right.INSPECT, answer_body=JsonCodec(b.ProducerTable)),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _row(
        "which groups consume a topic?", _AB, right=Right.INSPECT, header=h.TopicHeader,
        answer_body=JsonCodec(b.GroupList)),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _row(
        "how late is a group?", _AB, right=Right.INSPECT, header=h.TopicGroupHeader,
        answer_body=JsonCodec(b.ConsumeTimeSpans)),
    RequestCode.VIEW_BROKER_STATS_DATA: _row(
        "one counter", _AB, right=Right.INSPECT, header=h.StatsDataHeader, answer_body=JsonCodec(b.BrokerStatsData)),
    RequestCode.QUERY_CONSUME_QUEUE: _row(
        "entries of a consume queue", _AB, right=Right.INSPECT, header=h.QueryConsumeQueueHeader,
        answer_body=JsonCodec(b.QueueEntries)),

    # --- broker: moving offsets ---------------------------------------------------------------------------------------
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _row(
        "reset a group to a time", _AB, right=Right.ADMIN, header=h.ResetOffsetHeader,
        answer_body=ResetOffsetsCodec()),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _row(
        "which offsets do the clients of a group have?", _AB, right=Right.ADMIN, header=h.ConsumerStatusHeader,
        answer_body=JsonCodec(b.ConsumerStatusBody)),
    RequestCode.CLONE_GROUP_OFFSET: _row(
        "give a group the offsets of another", _AB, right=Right.ADMIN, header=h.CloneGroupOffsetHeader),
    RequestCode.QUERY_CORRECTION_OFFSET: _row(
        "compare the offsets of groups", _AB, right=Right.ADMIN, header=h.CorrectionOffsetHeader,
        answer_body=JsonCodec(b.CorrectionOffsets)),

    # --- broker: replication, Eruca's own -----------------------------------------------------------------------------
    RequestCode.REPLICATION_STATE: _row(
        "the epochs, the log and the slaves of a broker", _SM, _AB, right=Right.MEMBER,
        header=h.ReplicationStateHeader,
        answer_body=JsonCodec(b.ReplicationState)),
    RequestCode.CHANGE_ROLE: _row(
        "become the master of your name, or a slave", _AB, right=Right.ADMIN, header=h.ChangeRoleHeader,
        answer_body=JsonCodec(b.ReplicationState)),
    RequestCode.FORGET_MEMBER: _row(
        "forget a member of your name", _AB, right=Right.ADMIN, header=h.ForgetMemberHeader,
        answer_body=JsonCodec(b.ReplicationState)),

    # --- broker: access control ---------------------------------------------------------------------------------------
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: _row(
        "create or change an account", _AB, right=Right.ADMIN, header=h.UpdateAccountHeader),
    RequestCode.DELETE_ACL_CONFIG: _row("delete an account", _AB, right=Right.ADMIN, header=h.AccessKeyHeader),
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: _row(
        "how new are the access control files?", _AB, right=Right.ADMIN, answer=h.AclVersionAnswerHeader),
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _row(
        "set the addresses that need no account", _AB, right=Right.ADMIN, header=h.WhiteAddressesHeader),
    RequestCode.LIST_ACCOUNTS: _row(
        "the accounts, without their secrets", _AB, right=Right.ADMIN, answer_body=JsonCodec(b.AccountList)),
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: _unused("show accounts with their secrets (removed in 4.9.8)"),

    # --- filter server ------------------------------------------------------------------------------------------------
    RequestCode.REGISTER_FILTER_SERVER: _row(
        "a filter server is alive", _FB, right=Right.BROKER, header=h.RegisterFilterServerHeader,
        answer=h.RegisterFilterServerAnswerHeader),
    RequestCode.REGISTER_MESSAGE_FILTER_CLASS: _row(
        "upload a filter class", _CF, right=Right.UPLOAD, concerns=_BOTH, header=h.RegisterFilterClassHeader,
        body=PayloadCodec()),

    # --- constants ----------------------------------------------------------------------------------------------------
    RequestCode.QUERY_BROKER_OFFSET: _unused("the end of a broker's log"),
    RequestCode.GET_TOPIC_CONFIG_LIST: _unused("settings of some topics"),
    RequestCode.GET_TOPIC_NAME_LIST: _unused("names of topics"),
    RequestCode.TRIGGER_DELETE_FILES: _unused("delete old files"),
    RequestCode.SUSPEND_CONSUMER: _unused("suspend a consumer"),
    RequestCode.RESUME_CONSUMER: _unused("resume a consumer"),
    RequestCode.RESET_CONSUMER_OFFSET_IN_CONSUMER: _unused("reset offsets in the consumer"),
    RequestCode.RESET_CONSUMER_OFFSET_IN_BROKER: _unused("reset offsets in the broker"),
    RequestCode.ADJUST_CONSUMER_THREAD_POOL: _unused("change the threads of a consumer"),
    RequestCode.WHO_CONSUME_THE_MESSAGE: _unused("who consumed a message?"),
}
# fmt: on

#: The spec of an unknown code. Its body stays bytes.
UNKNOWN: Final = RequestSpec(meaning="unknown", right=Right.NOBODY)


def find_spec(code: int) -> RequestSpec:
    """Look up a request code; an unknown one is UNKNOWN, which nobody may send."""
    # An int finds its enum member: both are equal and have the same hash.
    return CATALOG.get(code, UNKNOWN)  # type: ignore[call-overload, no-any-return]


def find_names(
    spec: RequestSpec, command: Command, ext: Mapping[str, str], read_topic: ReadTopic | None = None
) -> Names:
    """Find the topics and groups that a request concerns; `ext` are its header fields as texts. Raises WireError.

    `read_topic` reads the log, at servers that have one.
    """
    concerns = spec.concerns
    topics = tuple([ext[field] for field in concerns.topics if field in ext])
    groups = tuple([ext[field] for field in concerns.groups if field in ext])
    if concerns.is_popped and groups:
        topics = tuple([name_popped_topic(groups[0], topic) for topic in topics])
    if concerns.position and read_topic is not None:
        # As the handler reads it: a number can be written in more than one way.
        position = getattr(command.decode_header(spec.header), concerns.position)
        topic = read_topic(position)
        if topic is not None:
            topics = (*topics, topic)
    if concerns.in_body is not None and (body := _decode_body(command, spec.body, None)) is not None:
        named = concerns.in_body(body)
        return Names(topics + named.topics, groups + named.groups)
    return Names(topics, groups)


def decode_request(command: Command) -> tuple[Header | None, Any]:
    """Read a request's typed header and body; None for a missing part. Raises WireError."""
    spec = find_spec(command.code)
    header = _decode_header(command, spec.header)
    return header, _decode_body(command, spec.body, header)


def decode_answer(request_code: int, command: Command) -> tuple[Header | None, Any]:
    """Read the typed header and body of the answer to a request; None for a missing part. Raises WireError."""
    spec = find_spec(request_code)
    if command.code in spec.answered:
        header = _decode_header(command, spec.answer)
    elif command.has_ext:
        header = command.decode_header(spec.refusal)
    else:
        header = None
    return header, _decode_body(command, spec.answer_body, header)


def _decode_header(command: Command, header_type: type[Header]) -> Header | None:
    if not command.has_ext and not header_type.__struct_fields__:
        return None
    header = command.decode_header(header_type)  # without ext, this raises an error about the first required field
    return header if command.has_ext else None


def _decode_body(command: Command, codec: BodyCodec | None, header: Header | None) -> Any:
    data = command.body
    if not data:
        return None
    return data if codec is None else codec.decode(data, header, command.version)


def build_request(
    code: int, header: Header | None = None, body: Any = None, *, opaque: int = 0, oneway: bool = False, **envelope: Any
) -> Command:
    """Make a request from typed parts. `envelope` goes to `make_request`: language, version, serialization."""
    version = envelope.get("version", VERSION_ANNOUNCED)
    data = encode_request_body(code, body, header, version=version)
    return make_request(code, header, data, opaque=opaque, oneway=oneway, **envelope)


def encode_request_body(code: int, body: Any, header: Header | None = None, *, version: int) -> bytes:
    """Write the body of a request for a peer of `version`; None means no body. Raises WireError."""
    return _encode_body(find_spec(code).body, body, header, version)


def encode_answer_body(request_code: int, body: Any, header: Header | None = None, *, version: int) -> bytes:
    """Write the body of an answer; `header` and `version` are the request's. Raises WireError."""
    return _encode_body(find_spec(request_code).answer_body, body, header, version)


def _encode_body(codec: BodyCodec | None, body: Any, header: Header | None, version: int) -> bytes:
    if body is None:
        return b""
    if codec is None:
        return bytes(body)
    return codec.encode(body, header, version)
