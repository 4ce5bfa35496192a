"""The options of a broker, apart from those of its store."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any, Final

from eruca._broker.limitoptions import BrokerLimitOptions
from eruca._ground.config import option
from eruca._ground.limits import (
    FILTER_SERVERS_MAX,
    MOMENT_MS_MAX,
    PULL_COUNT_MAX,
    PULL_TRANSFER_BYTES_MAX,
    TIMER_DELAY_SECONDS_MAX,
    TOPIC_QUEUES_MAX,
)
from eruca._observe.logs import LOG_LEVEL_DOC, LogLevel
from eruca._wire.names import TRACE_TOPIC

# The fast port, which does not accept pulls, is this far below the service port.
FAST_PORT_BELOW: Final = 2
# The port for slaves is this far above the service port.
HA_PORT_ABOVE: Final = 1


class BrokerRole(enum.Enum):
    """Whether a broker accepts messages or copies them."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class ReadConfirmed(enum.Enum):
    """Whether readers get only messages that no change of the master can take back."""

    AUTO = "auto"
    ALWAYS = "true"
    NEVER = "false"


@dataclass(frozen=True, slots=True)
class BrokerOptions(BrokerLimitOptions):
    """Identity, ports, rules and intervals of one broker as configured; `Standing` has the current state."""

    cluster: str = option("DefaultCluster", "brokerClusterName", "the cluster the broker belongs to")
    name: str = option("broker-a", "brokerName", "a master and its slaves share one name")
    broker_id: int = option(0, "brokerId", "0 for the master, greater than 0 for a slave", low=-1)
    role: BrokerRole = option(BrokerRole.ASYNC_MASTER, "brokerRole", "master or slave")
    host: str = option("127.0.0.1", "brokerIP1", "the address that clients connect to: an IP address or a host name")
    ha_host: str = option("", "brokerIP2", "the address that slaves connect to; empty: same as brokerIP1")
    bind: str = option("", "bindAddress", "the address to listen on; empty: same as brokerIP1")
    port: int = option(10911, "listenPort", "the port; the fast port is two below", low=0, high=65535)
    nameservers: str = option("", "namesrvAddr", "name servers, host:port separated by `;`")
    nameserver_domain: str = option(
        "", "rmqAddressServerDomain", "HTTP address server that lists the name servers; used when namesrvAddr is empty"
    )
    fetch_nameservers: bool = option(
        False, "fetchNamesrvAddrByAddressServer", "get the name servers from the address server"
    )
    permission: int = option(6, "brokerPermission", "4 read, 2 write", low=0, high=7, mutable=True)
    topic_queue_nums: int = option(
        8,
        "defaultTopicQueueNums",
        "queues of the template TBW102, which is created at the first start; as in Java, a topic created by a send has "
        "as many as its producer requests (4 unless its own defaultTopicQueueNums differs), and at most this many",
        low=1,
        high=TOPIC_QUEUES_MAX,
        mutable=True,
    )
    auto_create_topic: bool = option(True, "autoCreateTopicEnable", "create unknown topics on the first send")
    auto_create_group: bool = option(
        True, "autoCreateSubscriptionGroup", "create unknown groups when they start consuming", mutable=True
    )
    cluster_topic: bool = option(True, "clusterTopicEnable", "a topic named like the cluster is a template")
    broker_topic: bool = option(True, "brokerTopicEnable", "a topic named like the broker is a template")
    trace_topic: bool = option(False, "traceTopicEnable", "create the message trace topic at start")
    trace_topic_name: str = option(TRACE_TOPIC, "msgTraceTopicName", "name of the message trace topic")
    register_interval_ms: int = option(
        30_000,
        "registerNameServerPeriod",
        "how often the broker registers with every name server",
        unit="ms",
        low=1,
        older=10_000,
    )
    register_timeout_ms: int = option(6000, "registerBrokerTimeoutMills", "timeout of a registration", unit="ms", low=1)
    compressed_register: bool = option(False, "compressedRegister", "register with a compressed body")
    offsets_interval_ms: int = option(
        5000, "flushConsumerOffsetInterval", "how often offsets are saved", unit="ms", low=1
    )
    client_timeout_ms: int = option(
        120_000, "channelExpiredTimeout", "a client that sends no heartbeat for this long is removed", unit="ms", low=1
    )
    client_scan_ms: int = option(
        10_000, "scanNotActiveClientInterval", "how often clients are checked for heartbeats", unit="ms", low=1
    )
    idle_seconds: int = option(
        120, "serverChannelMaxIdleTimeSeconds", "a connection that is idle for this long is closed", unit="s", low=1
    )
    long_polling: bool = option(True, "longPollingEnable", "hold a pull until a message arrives", mutable=True)
    short_polling_ms: int = option(
        1000, "shortPollingTimeMills", "how long a pull is held without long polling", unit="ms", mutable=True
    )
    hold_scan_ms: int = option(
        5000, "pullRequestHoldScanInterval", "how often held pulls are checked", unit="ms", low=1
    )
    notify_group_changes: bool = option(
        True, "notifyConsumerIdsChangedEnable", "notify consumers when their group changes", mutable=True
    )
    property_filter: bool = option(
        True, "enablePropertyFilter", "accept SQL92 subscriptions (Java: false)", mutable=True
    )
    filter_servers_max: int = option(
        0,
        "filterServerNums",
        "number of filter servers that may register and appear in routes; start them manually (Java: the broker does)",
        low=0,
        high=FILTER_SERVERS_MAX,
        mutable=True,
    )
    filter_server_timeout_ms: int = option(
        30_000,
        "filterServerExpiredTimeout",
        "a filter server that is silent for this long is removed",
        unit="ms",
        low=1,
    )
    slave_read: bool = option(False, "slaveReadEnable", "redirect slow readers to a slave", mutable=True)
    offset_check_in_slave: bool = option(
        False, "offsetCheckInSlave", "a slave corrects requested offsets as a master does", mutable=True
    )
    memory_ratio_max: int = option(
        40,
        "accessMessageInMemoryMaxRatio",
        "a reader further behind than this share of memory is redirected to a slave (on a slave: 10 less)",
        unit="%",
        low=0,
        high=100,
        mutable=True,
    )
    in_sync_replicas: int = option(
        2, "inSyncReplicas", "copies that a SYNC_MASTER waits for, including its own", low=1, high=16, mutable=True
    )
    slave_timeout_ms: int = option(
        3000, "slaveTimeout", "how long a SYNC_MASTER waits for its slaves", unit="ms", low=1, mutable=True
    )
    behind_bytes_max: int = option(
        256 * 1024 * 1024,
        "haSlaveFallbehindMax",
        "a slave further behind than this is not counted as available",
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
    ha_allow_unauthenticated: bool = option(
        False,
        "haAllowUnauthenticated",
        "where aclEnable=true: copy to slaves and from masters that do not authenticate, such as Java brokers",
    )
    ha_master: str = option("", "haMasterAddress", "HA address of a slave's master; empty: ask the name servers")
    ha_heartbeat_ms: int = option(
        5000, "haSendHeartbeatInterval", "how often a silent replication link sends a heartbeat", unit="ms", low=1
    )
    ha_housekeeping_ms: int = option(
        20_000, "haHousekeepingInterval", "a replication link that is silent for this long is closed", unit="ms", low=1
    )
    ha_transfer_bytes: int = option(
        32_768, "haTransferBatchSize", "maximum size of one chunk of the log sent to a slave", unit="bytes", low=1
    )
    ha_reconnect_ms: int = option(
        1000, "haReconnectInterval", "how long a slave waits before it reconnects to its master", unit="ms", low=1
    )
    ha_copy_oldest: bool = option(
        True, "haCopyOldest", "an empty slave copies the whole log, not only its last segment (Java: the last segment)"
    )
    ha_catch_up_bytes: int = option(
        64 * 1024 * 1024,
        "haCatchUpBytesPerSecond",
        "rate limit for a slave that is far behind, so that producers are not slowed down; 0: unlimited",
        unit="bytes/s",
        low=0,
        mutable=True,
    )
    ha_metadata_ms: int = option(
        1000,
        "haMetadataInterval",
        "how often a slave checks for new topics, groups and offsets (10 s if the master is a Java broker)",
        unit="ms",
        low=1,
    )
    failover: str = option(
        "", "failover", "`etcd`: the members elect their master through etcd; empty: an operator promotes"
    )
    etcd_endpoints: str = option(
        "", "etcdEndpoints", "the etcd endpoints, https://host:port or http://host:port separated by `;`", secret=True
    )
    etcd_user: str = option("", "etcdUser", "the etcd user; empty: etcd has no users")
    etcd_password: str = option("", "etcdPassword", "the password of that user", secret=True)
    etcd_ca: str = option(
        "", "etcdCaFile", "PEM file with the CA certificates that sign those of etcd; empty: the CAs of the system"
    )
    etcd_certificate: str = option("", "etcdCertFile", "PEM file with the certificate that the broker presents to etcd")
    etcd_key: str = option("", "etcdKeyFile", "PEM file with its private key; empty: it is in the same file")
    etcd_prefix: str = option("/eruca", "etcdPrefix", "prefix of all keys in etcd")
    failover_lease_s: int = option(
        3, "failoverLeaseSeconds", "a master that does not renew its lease for this long is replaced", unit="s", low=2
    )
    transfer_bytes_memory: int = option(
        262_144,
        "maxTransferBytesOnMessageInMemory",
        "maximum bytes in one pull response",
        unit="bytes",
        low=1,
        high=PULL_TRANSFER_BYTES_MAX,
        mutable=True,
    )
    transfer_count_memory: int = option(
        32,
        "maxTransferCountOnMessageInMemory",
        "maximum messages in one pull response",
        low=1,
        high=PULL_COUNT_MAX,
        mutable=True,
    )
    lock_live_ms: int = option(
        60_000, "rebalanceLockMaxLiveTime", "a queue lock expires this long after its last renewal", unit="ms", low=1
    )
    reject_transactions: bool = option(False, "rejectTransactionMessage", "refuse half messages", mutable=True)
    region: str = option("DefaultRegion", "regionId", "sent to clients with every send response")
    trace_on: bool = option(True, "traceOn", "tell clients that message trace is enabled")
    store_replies: bool = option(
        True, "storeReplyMessageEnable", "store replies in addition to delivering them", mutable=True
    )
    accept_sends_from_ms: int = option(
        0,
        "startAcceptSendRequestTimeStamp",
        "sends before this time are refused",
        unit="ms",
        high=MOMENT_MS_MAX,
        mutable=True,
    )
    asks_clients: bool = option(
        True,
        "metricsAskClients",
        "while metrics are collected, ask consumers every minute how fast they are, as rocketmq-exporter does",
        mutable=True,
    )
    query_count_max: int = option(
        32, "defaultQueryMaxNum", "maximum messages that a query by unique id returns", low=1, high=PULL_COUNT_MAX
    )
    schedule_interval_ms: int = option(
        100, "scheduleMessageInterval", "how often due delayed messages are delivered", unit="ms", low=1
    )
    delay_offsets_interval_ms: int = option(
        1000,
        "flushDelayOffsetInterval",
        "how often the progress of delayed delivery is saved; later deliveries repeat after a crash (Java: 10000)",
        unit="ms",
        low=1,
    )
    timer_enabled: bool = option(
        True, "timerWheelEnable", "deliver messages at the time given in their properties (not in 4.9)", mutable=True
    )
    timer_delay_seconds_max: int = option(
        TIMER_DELAY_SECONDS_MAX,
        "timerMaxDelaySec",
        "the longest such delay; the default is 40 days",
        unit="s",
        low=1,
        mutable=True,
    )
    transaction_check_interval_ms: int = option(
        60_000,
        "transactionCheckInterval",
        "how often producers are asked about undecided half messages",
        unit="ms",
        low=1,
    )
    transaction_timeout_ms: int = option(
        6000, "transactionTimeOut", "age of a half message before the first check", unit="ms"
    )
    transaction_check_max: int = option(15, "transactionCheckMax", "maximum number of checks of a half message")
    store_root: str = option("eruca-data/store", "storePathRootDir", "the store directory")
    commitlog_path: str = option("", "storePathCommitLog", "the commit log's directory; empty: commitlog in the store")
    log_level: LogLevel = option(LogLevel.INFO, "logLevel", LOG_LEVEL_DOC, mutable=True)

    @property
    def bind_host(self) -> str:
        """The address to listen on."""
        return self.bind or self.host

    @property
    def reads_confirmed(self) -> bool:
        """Whether readers get only messages that no change of the master can take back."""
        if self.read_confirmed is ReadConfirmed.AUTO:
            return self.failover == "etcd"
        return self.read_confirmed is ReadConfirmed.ALWAYS


class LiveOptions:
    """The options in force. To read a mutable option, use `now` each time."""

    __slots__ = ("now",)

    def __init__(self, options: BrokerOptions) -> None:
        self.now = options

    def change(self, **values: Any) -> None:
        """Change the values of options."""
        self.now = replace(self.now, **values)
