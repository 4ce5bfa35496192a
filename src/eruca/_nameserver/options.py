"""The options of a name server: every key of 4.9's namesrv.conf, and which of them can change while it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_type_hints

from eruca._ground import limits
from eruca._ground.config import check_bounds, info_of, option, parse_value, show_value, write_value
from eruca._ground.limits import IDLE_SECONDS_MAX
from eruca._net.limitoptions import LimitOptions
from eruca._observe.logs import LOG_LEVEL_DOC, LogLevel
from eruca._wire.codes import ResponseCode
from eruca.errors import RequestRefused

_THREADS = "accepted, without effect: one event loop does the work"
_BUFFERS = "accepted, without effect: chosen by the system, within the limits of this server"
_CALLS = "accepted, without effect: a name server makes no calls"


@dataclass(frozen=True, slots=True)
class NameServerOptions(LimitOptions):
    """The options of a name server."""

    bind_address: str = option(
        "127.0.0.1",
        "bindAddress",
        "the address to listen on; an address that other machines can reach needs accounts or --insecure",
    )
    listen_port: int = option(9876, "listenPort", "the port to listen on; 0: chosen by the system", low=0, high=65_535)
    kv_config_path: str = option("eruca-data/namesrv/kvConfig.json", "kvConfigPath", "file of the key-value config")
    config_store_path: str = option(
        "eruca-data/namesrv/namesrv.properties", "configStorePath", "file that changed options are written to"
    )
    log_level: LogLevel = option(LogLevel.INFO, "logLevel", LOG_LEVEL_DOC, mutable=True)
    order_message_enable: bool = option(
        False, "orderMessageEnable", "add the queues of ordered topics to their routes", mutable=True
    )
    broker_expiry_ms: int = option(
        120_000,
        "brokerChannelExpiredTime",
        "a broker that is silent for this long is removed",
        unit="ms",
        low=1,
        mutable=True,
    )
    scan_interval_ms: int = option(
        10_000, "scanNotActiveBrokerInterval", "how often silent brokers are removed", unit="ms", low=1, mutable=True
    )
    kv_log_interval_ms: int = option(
        600_000, "printKVConfigInterval", "how often the key-value config is logged", unit="ms", low=1, mutable=True
    )
    idle_seconds: int = option(
        IDLE_SECONDS_MAX,
        "serverChannelMaxIdleTimeSeconds",
        "a connection that is silent for this long is closed",
        unit="s",
        low=1,
        mutable=True,
    )
    brokers_max: int = option(
        limits.ROUTE_NAMES_MAX,
        "maxBrokers",
        "maximum number of broker names, of broker addresses and of clusters; further ones are refused",
        low=1,
        high=limits.TABLE_ENTRIES_CEILING,
        mutable=True,
    )
    route_entries_max: int = option(
        limits.ROUTE_ENTRIES_MAX,
        "maxRouteEntries",
        "maximum number of entries of a topic on a broker; further ones are ignored",
        low=1,
        high=limits.TABLE_ENTRIES_CEILING,
        mutable=True,
    )
    registrations_bytes_max: int = option(
        limits.REGISTRATIONS_BYTES_MAX,
        "maxRegistrationBytes",
        "maximum memory for registrations of brokers; above it the largest connection of the account or address with "
        "the most is closed",
        unit="bytes",
        low=1024 * 1024,
    )
    kv_bytes_max: int = option(
        limits.KV_BYTES_MAX,
        "maxKVConfigBytes",
        "maximum size of the key-value config; further values are refused",
        unit="bytes",
        low=1,
        high=limits.KV_BYTES_CEILING,
        mutable=True,
    )
    config_black_list: str = option(
        "configBlackList;configStorePath;kvConfigPath",
        "configBlackList",
        "keys that may not be changed while it runs, separated by `;`, in addition to those that never may",
    )
    rocketmq_home: str = option("", "rocketmqHome", "accepted, without effect: there is no installation directory")
    product_env_name: str = option("center", "productEnvName", "accepted, without effect: see clusterTest")
    cluster_test: bool = option(
        False, "clusterTest", "accepted, without effect: routes of other environments are not looked up"
    )
    server_worker_threads: int = option(8, "serverWorkerThreads", _THREADS, unit="threads")
    server_callback_threads: int = option(0, "serverCallbackExecutorThreads", _THREADS, unit="threads")
    server_selector_threads: int = option(3, "serverSelectorThreads", _THREADS, unit="threads")
    server_oneway_calls_max: int = option(256, "serverOnewaySemaphoreValue", _CALLS, unit="calls")
    server_async_calls_max: int = option(64, "serverAsyncSemaphoreValue", _CALLS, unit="calls")
    server_send_buffer_bytes: int = option(0, "serverSocketSndBufSize", _BUFFERS, unit="bytes")
    server_receive_buffer_bytes: int = option(0, "serverSocketRcvBufSize", _BUFFERS, unit="bytes")
    write_buffer_high_bytes: int = option(0, "writeBufferHighWaterMark", _BUFFERS, unit="bytes")
    write_buffer_low_bytes: int = option(0, "writeBufferLowWaterMark", _BUFFERS, unit="bytes")
    server_backlog: int = option(1024, "serverSocketBacklog", "accepted, without effect: always 1,024")
    server_pooled_buffers: bool = option(True, "serverPooledByteBufAllocatorEnable", _BUFFERS)
    use_epoll: bool = option(False, "useEpollNativeSelector", "accepted, without effect: the event loop chooses")


def to_properties(options: NameServerOptions) -> dict[str, str]:
    """Return every option in the format of Java; a secret is hidden."""
    return {info.java: show_value(write_value(getattr(options, name)), info) for name, info in info_of(options).items()}


def change_options(options: NameServerOptions, changes: Mapping[str, str]) -> NameServerOptions:
    """Return the options with some changed. Refuses invalid values, and options that may not change (code 16).

    Java lists the forbidden keys; here every key not declared mutable is forbidden, so that a new option is safe by
    default.
    """
    hints = get_type_hints(NameServerOptions)
    attributes = {info.java: name for name, info in info_of(options).items() if info.mutable}
    black_list = {key.strip() for key in options.config_black_list.split(";")}
    values = {}
    for key, text in changes.items():
        if key in black_list or key not in attributes:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"Can not update config in black list: {key} cannot be changed while the name server runs; "
                f"these can: {', '.join(sorted(attributes.keys() - black_list))}",
            )
        name = attributes[key]
        values[name] = parse_value(key, text, hints[name])
    changed = dataclasses.replace(options, **values)
    check_bounds(changed)
    return changed
