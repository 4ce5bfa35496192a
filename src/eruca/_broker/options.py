"""What a broker can be told, besides what its store can."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any, Final

from eruca._ground.config import option
from eruca._ground.limits import (
    FILTER_SERVERS_MAX,
    MOMENT_MS_MAX,
    PULL_COUNT_MAX,
    PULL_TRANSFER_BYTES_MAX,
    TOPIC_QUEUES_MAX,
)
from eruca._wire.names import TRACE_TOPIC

# How far the fast port, which takes no pulls, is below the service port.
FAST_PORT_BELOW: Final = 2
# How far the port for slaves is above the service port.
HA_PORT_ABOVE: Final = 1


class BrokerRole(enum.Enum):
    """Whether a broker takes messages or copies them."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class ReadConfirmed(enum.Enum):
    """Whether readers get only what no change of the master can take back."""

    AUTO = "auto"
    ALWAYS = "true"
    NEVER = "false"


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Identity, ports, rules and intervals of one broker, as it is told them; `Standing` is what becomes of them."""

    cluster: str = option("DefaultCluster", "brokerClusterName", "the cluster the broker belongs to")
    name: str = option("broker-a", "brokerName", "brokers of one name are one master and its slaves")
    broker_id: int = option(0, "brokerId", "0 for the master, above for a slave", low=-1)
    role: BrokerRole = option(BrokerRole.ASYNC_MASTER, "brokerRole", "master or slave")
    host: str = option("127.0.0.1", "brokerIP1", "the address clients are told to connect to")
    ha_host: str = option("", "brokerIP2", "the address slaves are told to connect to; empty: as brokerIP1")
    bind: str = option("", "bindAddress", "the address to listen on; empty: as brokerIP1")
    port: int = option(10911, "listenPort", "the port; the fast port is two below", low=0, high=65535)
    nameservers: str = option("", "namesrvAddr", "name servers, host:port separated by `;`")
    nameserver_domain: str = option(
        "", "rmqAddressServerDomain", "HTTP address server that tells the name servers, asked when namesrvAddr is empty"
    )
    fetch_nameservers: bool = option(
        False, "fetchNamesrvAddrByAddressServer", "ask the address server for the name servers"
    )
    permission: int = option(6, "brokerPermission", "4 read, 2 write", low=0, high=7, mutable=True)
    topic_queue_nums: int = option(
        8,
        "defaultTopicQueueNums",
        "queues of the template TBW102, which is made at the first start; as in Java, a topic made by a send has as "
        "many as its producer asks for (4 unless its own defaultTopicQueueNums says otherwise), and at most these",
        low=1,
        high=TOPIC_QUEUES_MAX,
        mutable=True,
    )
    auto_create_topic: bool = option(True, "autoCreateTopicEnable", "make an unknown topic when it is sent to")
    auto_create_group: bool = option(
        True, "autoCreateSubscriptionGroup", "make an unknown group when it consumes", mutable=True
    )
    cluster_topic: bool = option(True, "clusterTopicEnable", "a topic named as the cluster is a template")
    broker_topic: bool = option(True, "brokerTopicEnable", "a topic named as the broker is a template")
    trace_topic: bool = option(False, "traceTopicEnable", "make the message trace topic at start")
    trace_topic_name: str = option(TRACE_TOPIC, "msgTraceTopicName", "name of the message trace topic")
    register_interval_ms: int = option(
        30_000,
        "registerNameServerPeriod",
        "how often the broker registers with every name server",
        unit="ms",
        low=1,
        older=10_000,
    )
    register_timeout_ms: int = option(
        6000, "registerBrokerTimeoutMills", "how long a registration may take", unit="ms", low=1
    )
    compressed_register: bool = option(False, "compressedRegister", "register with a compressed body")
    offsets_interval_ms: int = option(
        5000, "flushConsumerOffsetInterval", "how often offsets are saved", unit="ms", low=1
    )
    client_timeout_ms: int = option(
        120_000, "channelExpiredTimeout", "a client without heartbeat this long is forgotten", unit="ms", low=1
    )
    client_scan_ms: int = option(
        10_000, "scanNotActiveClientInterval", "how often that is looked for", unit="ms", low=1
    )
    idle_seconds: int = option(
        120, "serverChannelMaxIdleTimeSeconds", "a connection without a byte this long is closed", unit="s", low=1
    )
    long_polling: bool = option(True, "longPollingEnable", "hold a pull until a message comes", mutable=True)
    short_polling_ms: int = option(
        1000, "shortPollingTimeMills", "how long a pull is held without long polling", unit="ms", mutable=True
    )
    hold_scan_ms: int = option(
        5000, "pullRequestHoldScanInterval", "held pulls are looked at this often", unit="ms", low=1
    )
    notify_group_changes: bool = option(
        True, "notifyConsumerIdsChangedEnable", "tell consumers when their group changes", mutable=True
    )
    property_filter: bool = option(True, "enablePropertyFilter", "take SQL92 subscriptions (Java: false)", mutable=True)
    filter_servers_max: int = option(
        0,
        "filterServerNums",
        "filter servers that may register here and get into the routes; each is started by hand (Java: by the broker)",
        low=0,
        high=FILTER_SERVERS_MAX,
        mutable=True,
    )
    filter_server_timeout_ms: int = option(
        30_000, "filterServerExpiredTimeout", "silence after which a filter server is gone", unit="ms", low=1
    )
    slave_read: bool = option(False, "slaveReadEnable", "send slow readers to a slave", mutable=True)
    offset_check_in_slave: bool = option(
        False, "offsetCheckInSlave", "a slave corrects the offsets it is asked for as a master does", mutable=True
    )
    memory_ratio_max: int = option(
        40,
        "accessMessageInMemoryMaxRatio",
        "a reader further behind than so much of the memory is sent to a slave (a slave takes 10 less)",
        unit="%",
        low=0,
        high=100,
        mutable=True,
    )
    in_sync_replicas: int = option(
        2, "inSyncReplicas", "copies, this broker's too, that a SYNC_MASTER waits for", low=1, high=16, mutable=True
    )
    slave_timeout_ms: int = option(
        3000, "slaveTimeout", "how long a SYNC_MASTER waits for its slaves", unit="ms", low=1, mutable=True
    )
    behind_bytes_max: int = option(
        256 * 1024 * 1024,
        "haSlaveFallbehindMax",
        "a slave further behind does not count as one",
        unit="bytes",
        low=0,
        mutable=True,
    )
    read_confirmed: ReadConfirmed = option(
        ReadConfirmed.AUTO,
        "readConfirmedOnly",
        "readers of a SYNC_MASTER and its slaves get a message only when no change of the master can take it back: "
        "`true`, `false` (as in Java), or `auto`: where failover=etcd",
        mutable=True,
    )
    ha_master: str = option("", "haMasterAddress", "where a slave finds its master's log; empty: name servers tell it")
    ha_heartbeat_ms: int = option(
        5000, "haSendHeartbeatInterval", "a replication link is never silent for longer", unit="ms", low=1
    )
    ha_housekeeping_ms: int = option(
        20_000, "haHousekeepingInterval", "a replication link that is silent for so long is closed", unit="ms", low=1
    )
    ha_transfer_bytes: int = option(
        32_768, "haTransferBatchSize", "most bytes of one piece of the log on its way to a slave", unit="bytes", low=1
    )
    ha_reconnect_ms: int = option(
        1000, "haReconnectInterval", "how long a slave waits before it tries its master again", unit="ms", low=1
    )
    ha_copy_oldest: bool = option(
        True, "haCopyOldest", "an empty slave gets the whole log and not only its last segment (Java: the last segment)"
    )
    ha_catch_up_bytes: int = option(
        64 * 1024 * 1024,
        "haCatchUpBytesPerSecond",
        "how fast a slave that is far behind is fed, so that producers do not notice; 0: as fast as it takes it",
        unit="bytes/s",
        low=0,
        mutable=True,
    )
    ha_metadata_ms: int = option(
        1000,
        "haMetadataInterval",
        "how often a slave looks for new topics, groups and offsets (10 s where the master is a Java broker)",
        unit="ms",
        low=1,
    )
    failover: str = option("", "failover", "`etcd`: the members elect their master there; empty: an operator promotes")
    etcd_endpoints: str = option("", "etcdEndpoints", "where etcd is, http://host:port separated by `;`", secret=True)
    etcd_prefix: str = option("/eruca", "etcdPrefix", "the keys of this system in etcd begin so")
    failover_lease_s: int = option(
        3, "failoverLeaseSeconds", "a master that etcd has not heard of for so long is replaced", unit="s", low=2
    )
    transfer_bytes_memory: int = option(
        262_144,
        "maxTransferBytesOnMessageInMemory",
        "bytes of one pull answer",
        unit="bytes",
        low=1,
        high=PULL_TRANSFER_BYTES_MAX,
        mutable=True,
    )
    transfer_count_memory: int = option(
        32, "maxTransferCountOnMessageInMemory", "messages of one pull answer", low=1, high=PULL_COUNT_MAX, mutable=True
    )
    lock_live_ms: int = option(
        60_000, "rebalanceLockMaxLiveTime", "a queue lock ends this long after its renewal", unit="ms", low=1
    )
    reject_transactions: bool = option(False, "rejectTransactionMessage", "refuse half messages", mutable=True)
    region: str = option("DefaultRegion", "regionId", "told to clients with every send")
    trace_on: bool = option(True, "traceOn", "tell clients that message trace is welcome")
    store_replies: bool = option(True, "storeReplyMessageEnable", "keep replies besides bringing them", mutable=True)
    accept_sends_from_ms: int = option(
        0,
        "startAcceptSendRequestTimeStamp",
        "sends before this time are refused",
        unit="ms",
        high=MOMENT_MS_MAX,
        mutable=True,
    )
    query_count_max: int = option(
        32, "defaultQueryMaxNum", "messages a query by unique id may find", low=1, high=PULL_COUNT_MAX
    )
    schedule_interval_ms: int = option(
        100, "scheduleMessageInterval", "how often due delayed messages are looked for", unit="ms", low=1
    )
    delay_offsets_interval_ms: int = option(
        1000,
        "flushDelayOffsetInterval",
        "how often it is saved how far delayed delivery is; what came since comes again after a crash (Java: 10000)",
        unit="ms",
        low=1,
    )
    timer_enabled: bool = option(
        True, "timerWheelEnable", "delay messages by any time their properties say (not in 4.9)", mutable=True
    )
    timer_delay_seconds_max: int = option(
        3_456_000, "timerMaxDelaySec", "the longest such delay: 40 days", unit="s", low=1, mutable=True
    )
    transaction_check_interval_ms: int = option(
        60_000, "transactionCheckInterval", "how often undecided half messages are asked about", unit="ms", low=1
    )
    transaction_timeout_ms: int = option(6000, "transactionTimeOut", "a half message is left alone so long", unit="ms")
    transaction_check_max: int = option(15, "transactionCheckMax", "a half message is asked about so often")
    store_root: str = option("eruca-data/store", "storePathRootDir", "the store directory")
    commitlog_path: str = option("", "storePathCommitLog", "the commit log's directory; empty: commitlog in the store")
    message_log_level: str = option("INFO", "logLevel", "what is logged: DEBUG, INFO, WARNING or ERROR")

    @property
    def bind_host(self) -> str:
        """Where to listen."""
        return self.bind or self.host

    @property
    def reads_confirmed(self) -> bool:
        """Do readers get only what no change of the master can take back?"""
        if self.read_confirmed is ReadConfirmed.AUTO:
            return self.failover == "etcd"
        return self.read_confirmed is ReadConfirmed.ALWAYS


class LiveOptions:
    """The options in force. Whoever reads one that is marked as mutable asks for `now` each time."""

    __slots__ = ("now",)

    def __init__(self, options: BrokerOptions) -> None:
        self.now = options

    def change(self, **values: Any) -> None:
        """Let options have other values from now on."""
        self.now = replace(self.now, **values)
