"""One valid request for every code of every server.

Requests that change little come first and those that remove things come last, so that one server can answer all of them
in this order.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eruca._wire import headers as h
from eruca._wire.batch import BatchItem
from eruca._wire.bodies import (
    BatchAck,
    BatchAckBody,
    CheckClientBody,
    ConsumerData,
    DataVersion,
    GroupConfig,
    HeartbeatData,
    LockBody,
    MessageQueue,
    ProducerData,
    RegisterBrokerBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigTable,
)
from eruca._wire.catalog import encode_request_body
from eruca._wire.codes import VERSION_ANNOUNCED, RequestCode, ResponseCode
from eruca._wire.command import Command, make_request
from eruca._wire.ext import Header
from eruca._wire.properties import encode_properties
from eruca._wire.record import body_crc
from tests.unit.filterserver import modules

TOPIC, GROUP, REPLIES = "orders", "billing", "DefaultCluster_REPLY_TOPIC"
PRODUCERS, CLIENT, BROKER = "producers", "client-1", "broker-a"
NEW_ACCOUNT = "new-account"
# The handle of a popped message that is not in flight.
HANDLE = f"0 1 60000 0 0 {BROKER} 0 0"


@dataclass(frozen=True)
class Sample:
    """A request and the code of its answer."""

    header: Header | None = None
    body: Any = None
    expected: int = ResponseCode.SUCCESS

    def build(self, code: int) -> Command:
        """Make the request."""
        body = self.body
        data = (
            body if isinstance(body, bytes) else encode_request_body(code, body, self.header, version=VERSION_ANNOUNCED)
        )
        return make_request(code, self.header, data)


Samples = Mapping[RequestCode, Sample]


@dataclass(frozen=True)
class Facts:
    """What the messages in a broker are, for requests that name one."""

    # A message of the topic and a half message of the producers.
    position: int
    message_id: str
    half_position: int
    half_offset: int
    half_id: str


def short(topic: str = TOPIC, **properties: str) -> h.SendMessageV2Header:
    """The header of a send."""
    text = encode_properties(properties).decode()
    return h.SendMessageV2Header(PRODUCERS, topic, "TBW102", 4, 0, 0, 1, 0, properties=text)


def long(topic: str = TOPIC, **properties: str) -> h.SendMessageHeader:
    """The same with long names."""
    text = encode_properties(properties).decode()
    return h.SendMessageHeader(PRODUCERS, topic, "TBW102", 4, 0, 0, 1, 0, properties=text)


def pull() -> h.PullMessageHeader:
    """The header of a pull that has its expression with it."""
    return h.PullMessageHeader(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_message_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_ms=0,
        subscription="*",
        subscription_version=0,
        expression_type="TAG",
    )


def beat(client_id: str = CLIENT) -> HeartbeatData:
    """The heartbeat of a client with both kinds of groups."""
    consumer = ConsumerData(group_name=GROUP, subscription_data_set=[SubscriptionData(topic=TOPIC, sub_string="*")])
    producer = ProducerData(group_name=PRODUCERS)
    return HeartbeatData(client_id=client_id, consumer_data_set=[consumer], producer_data_set=[producer])


def new_topic() -> h.CreateTopicHeader:
    """The header that creates a topic."""
    return h.CreateTopicHeader(topic="new", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6)


def _sample_pops() -> dict[RequestCode, Sample]:
    code = RequestCode
    return {
        code.POP_MESSAGE: Sample(
            h.PopMessageHeader(
                consumer_group=GROUP,
                topic=TOPIC,
                queue_id=0,
                max_message_nums=1,
                invisible_time=60_000,
                poll_time=0,
                born_time=1,
                init_mode=0,
            )
        ),
        # Nothing has these handles: an account without the right must not learn that.
        code.ACK_MESSAGE: Sample(h.AckMessageHeader(GROUP, TOPIC, 0, HANDLE, 0), expected=ResponseCode.NO_MESSAGE),
        code.CHANGE_MESSAGE_INVISIBLETIME: Sample(
            h.ChangeInvisibleTimeHeader(GROUP, TOPIC, 0, HANDLE, 0, 1000), expected=ResponseCode.NO_MESSAGE
        ),
        code.BATCH_ACK_MESSAGE: Sample(
            None, BatchAckBody(acks=[BatchAck(group=GROUP, topic=TOPIC, bits="AQ==")], broker_name=BROKER)
        ),
    }


def sample_broker(facts: Facts) -> Samples:
    """Requests for a broker that has the topic, the group, and a client in it."""
    code = RequestCode
    to_client = {"REPLY_TO_CLIENT": CLIENT}
    queue = MessageQueue(BROKER, 0, TOPIC)
    locks = LockBody(client_id=CLIENT, consumer_group=GROUP, mq_set=[queue])
    directly = h.ConsumeDirectlyHeader(GROUP, client_id=CLIENT, message_id=facts.message_id, broker_name=BROKER)
    return {
        code.SEND_MESSAGE: Sample(long(), b"body"),
        code.SEND_MESSAGE_V2: Sample(short(), b"body"),
        code.SEND_BATCH_MESSAGE: Sample(short(), [BatchItem(flag=0, body=b"body", properties=b"")]),
        code.SEND_REPLY_MESSAGE: Sample(long(REPLIES, **to_client), b"body"),
        code.SEND_REPLY_MESSAGE_V2: Sample(short(REPLIES, **to_client), b"body"),
        code.CONSUMER_SEND_MSG_BACK: Sample(h.SendBackHeader(facts.position, GROUP, 0)),
        code.END_TRANSACTION: Sample(
            h.EndTransactionHeader(PRODUCERS, facts.half_offset, facts.half_position, 8, facts.half_id)
        ),
        code.RESUME_CHECK_HALF_MESSAGE: Sample(h.MessageIdHeader(facts.half_id)),
        code.PULL_MESSAGE: Sample(pull()),
        **_sample_pops(),
        code.QUERY_MESSAGE: Sample(h.QueryMessageHeader(TOPIC, "key", 8, 0, 2**60)),
        code.VIEW_MESSAGE_BY_ID: Sample(h.ViewMessageHeader(facts.position)),
        code.QUERY_CONSUMER_OFFSET: Sample(h.QueryConsumerOffsetHeader(GROUP, TOPIC, 0)),
        code.UPDATE_CONSUMER_OFFSET: Sample(h.UpdateConsumerOffsetHeader(GROUP, TOPIC, 0, 2)),
        code.SEARCH_OFFSET_BY_TIMESTAMP: Sample(h.SearchOffsetHeader(TOPIC, 0, 1)),
        code.GET_MAX_OFFSET: Sample(h.QueueHeader(TOPIC, 0)),
        code.GET_MIN_OFFSET: Sample(h.QueueHeader(TOPIC, 0)),
        code.GET_EARLIEST_MSG_STORETIME: Sample(h.QueueHeader(TOPIC, 0)),
        code.LOCK_BATCH_MQ: Sample(None, locks),
        code.UNLOCK_BATCH_MQ: Sample(None, locks),
        code.HEART_BEAT: Sample(None, beat("client-2")),
        code.CHECK_CLIENT_CONFIG: Sample(
            None, CheckClientBody(client_id=CLIENT, group=GROUP, subscription_data=SubscriptionData(topic=TOPIC))
        ),
        code.GET_CONSUMER_LIST_BY_GROUP: Sample(h.ConsumerGroupHeader(GROUP)),
        code.GET_CONSUMER_RUNNING_INFO: Sample(h.ConsumerRunningInfoHeader(GROUP, CLIENT)),
        code.CONSUME_MESSAGE_DIRECTLY: Sample(directly),
        code.GET_ALL_TOPIC_CONFIG: Sample(),
        code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Sample(),
        code.GET_ALL_CONSUMER_OFFSET: Sample(),
        code.GET_ALL_DELAY_OFFSET: Sample(),
        code.GET_BROKER_CONFIG: Sample(),
        code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Sample(),
        code.GET_BROKER_RUNTIME_INFO: Sample(),
        code.GET_TOPIC_STATS_INFO: Sample(h.TopicHeader(TOPIC)),
        code.GET_CONSUME_STATS: Sample(h.ConsumeStatsHeader(GROUP)),
        code.GET_BROKER_CONSUME_STATS: Sample(h.BrokerConsumeStatsHeader(False)),
        code.GET_CONSUMER_CONNECTION_LIST: Sample(h.ConsumerGroupHeader(GROUP)),
        code.GET_PRODUCER_CONNECTION_LIST: Sample(h.ProducerGroupHeader(PRODUCERS)),
        code.GET_ALL_PRODUCER_INFO: Sample(),
        code.QUERY_TOPIC_CONSUME_BY_WHO: Sample(h.TopicHeader(TOPIC)),
        code.QUERY_CONSUME_TIME_SPAN: Sample(h.TopicGroupHeader(TOPIC, GROUP)),
        code.VIEW_BROKER_STATS_DATA: Sample(h.StatsDataHeader("TOPIC_PUT_NUMS", TOPIC)),
        code.QUERY_CONSUME_QUEUE: Sample(h.QueryConsumeQueueHeader(TOPIC, 0, 0, 1)),
        code.QUERY_CORRECTION_OFFSET: Sample(h.CorrectionOffsetHeader(compare_group=GROUP, topic=TOPIC)),
        code.INVOKE_BROKER_TO_RESET_OFFSET: Sample(h.ResetOffsetHeader(TOPIC, GROUP, -1)),
        code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Sample(h.ConsumerStatusHeader(TOPIC, GROUP)),
        code.REPLICATION_STATE: Sample(h.ReplicationStateHeader()),
        code.REGISTER_FILTER_SERVER: Sample(h.RegisterFilterServerHeader("127.0.0.1:10000")),
        # What changes the broker.
        code.UPDATE_AND_CREATE_TOPIC: Sample(new_topic()),
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Sample(None, GroupConfig(group_name="new")),
        code.CLONE_GROUP_OFFSET: Sample(h.CloneGroupOffsetHeader(GROUP, "clone", TOPIC)),
        code.UPDATE_BROKER_CONFIG: Sample(None, {"fileReservedTime": "70"}),
        code.CLEAN_EXPIRED_CONSUMEQUEUE: Sample(),
        code.CLEAN_UNUSED_TOPIC: Sample(),
        code.DELETE_EXPIRED_COMMITLOG: Sample(),
        code.UPDATE_AND_CREATE_ACL_CONFIG: Sample(h.UpdateAccountHeader(NEW_ACCOUNT, "a-new-secret", admin=False)),
        code.GET_BROKER_CLUSTER_ACL_INFO: Sample(),
        code.LIST_ACCOUNTS: Sample(),
        code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Sample(h.WhiteAddressesHeader("10.1.1.1,10.1.1.*")),
        # What removes something.
        code.DELETE_ACL_CONFIG: Sample(h.AccessKeyHeader(NEW_ACCOUNT)),
        code.UNREGISTER_CLIENT: Sample(h.UnregisterClientHeader(CLIENT, PRODUCERS, GROUP)),
        code.DELETE_SUBSCRIPTIONGROUP: Sample(h.DeleteGroupHeader("new")),
        code.DELETE_TOPIC_IN_BROKER: Sample(h.TopicHeader("new")),
        code.FORGET_MEMBER: Sample(h.ForgetMemberHeader("127.0.0.1:1")),
        code.CHANGE_ROLE: Sample(h.ChangeRoleHeader("FENCED")),
    }


ADDRESS = "127.0.0.1:10911"


def sample_nameserver() -> Samples:
    """Requests for a name server."""
    code = RequestCode
    topics = TopicConfigTable(data_version=DataVersion(1, 1), topic_config_table={TOPIC: TopicConfig(topic_name=TOPIC)})
    broker = h.BrokerHeader(BROKER, ADDRESS, "DefaultCluster", 0)
    return {
        code.REGISTER_BROKER: Sample(
            h.RegisterBrokerHeader(BROKER, ADDRESS, "DefaultCluster", "127.0.0.1:10912", 0),
            RegisterBrokerBody(topic_config_serialize_wrapper=topics),
        ),
        code.QUERY_DATA_VERSION: Sample(broker, DataVersion(1, 1)),
        code.GET_ROUTEINFO_BY_TOPIC: Sample(h.RouteHeader(TOPIC)),
        code.GET_BROKER_CLUSTER_INFO: Sample(),
        code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Sample(),
        code.GET_TOPICS_BY_CLUSTER: Sample(h.ClusterHeader("DefaultCluster")),
        code.GET_SYSTEM_TOPIC_LIST_FROM_NS: Sample(),
        code.GET_UNIT_TOPIC_LIST: Sample(),
        code.GET_HAS_UNIT_SUB_TOPIC_LIST: Sample(),
        code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Sample(),
        code.PUT_KV_CONFIG: Sample(h.PutKVConfigHeader("space", "key", "value")),
        code.GET_KV_CONFIG: Sample(h.KVConfigHeader("space", "key")),
        code.GET_KVLIST_BY_NAMESPACE: Sample(h.NamespaceHeader("space")),
        code.GET_NAMESRV_CONFIG: Sample(),
        code.UPDATE_NAMESRV_CONFIG: Sample(None, {"orderMessageEnable": "true"}),
        code.WIPE_WRITE_PERM_OF_BROKER: Sample(h.BrokerNameHeader(BROKER)),
        code.ADD_WRITE_PERM_OF_BROKER: Sample(h.BrokerNameHeader(BROKER)),
        code.DELETE_KV_CONFIG: Sample(h.KVConfigHeader("space", "key")),
        code.DELETE_TOPIC_IN_NAMESRV: Sample(h.DeleteTopicInNameServerHeader(TOPIC)),
        code.UNREGISTER_BROKER: Sample(broker),
    }


def sample_filterserver() -> Samples:
    """Requests for a filter server."""
    module = base64.b64encode(modules.EVERYTHING)
    return {
        RequestCode.REGISTER_MESSAGE_FILTER_CLASS: Sample(
            h.RegisterFilterClassHeader(GROUP, TOPIC, modules.NAME, body_crc(module)), module
        ),
        RequestCode.PULL_MESSAGE: Sample(pull()),
    }
