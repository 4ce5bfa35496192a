"""The options of a filter server."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._filterserver.sandbox import SandboxLimits
from eruca._ground import limits
from eruca._ground.config import option
from eruca._net.limitoptions import LimitOptions


@dataclass(frozen=True, slots=True)
class FilterServerOptions(LimitOptions):
    """Where a filter server listens, which broker it serves, and what code of clients may use."""

    broker: str = option("127.0.0.1:10911", "connectWhichBroker", "the broker to serve, host:port")
    host: str = option("127.0.0.1", "filterServerIP", "the address that clients connect to")
    bind: str = option("", "bindAddress", "the address to listen on; empty: same as filterServerIP")
    port: int = option(0, "listenPort", "the port to listen on; 0: chosen by the system", low=0, high=65535)
    uploads: bool = option(
        True, "clientUploadFilterClassEnable", "accept WebAssembly modules from clients; false: only installed classes"
    )
    plugins: str = option("", "filterPluginPath", "directory of installed Python filter classes; empty: none")
    workers: int = option(4, "filterWorkerThreads", "number of pulls filtered in parallel", low=2, high=64)
    fuel: int = option(
        limits.FILTER_FUEL,
        "filterFuel",
        "maximum instructions that a module may spend on one message",
        low=1000,
        high=2**62,
    )
    memory_bytes: int = option(
        limits.FILTER_MEMORY_BYTES_MAX,
        "filterMemorySize",
        "maximum memory of a module; messages larger than half of it are not passed to the module",
        unit="bytes",
        low=65_536,
        high=2**31,
    )
    time_ms: int = option(
        limits.FILTER_TIME_MS_MAX,
        "filterTimeout",
        "maximum time that a module may spend on one pull",
        unit="ms",
        low=20,
    )
    module_bytes: int = option(
        limits.FILTER_MODULE_BYTES_MAX,
        "filterModuleSize",
        "maximum size of a module",
        unit="bytes",
        low=8,
        high=8 << 20,
    )
    waiting_bytes_max: int = option(
        limits.FILTER_WAITING_BYTES_MAX,
        "filterMaxWaitingBytes",
        "maximum size of all messages that are being filtered or wait for it; above it, pulls are refused",
        unit="bytes",
        low=limits.FRAME_BYTES_MAX,
        high=2**40,
    )
    register_interval_ms: int = option(
        10_000, "registerFilterServerPeriod", "how often it registers with the broker", unit="ms", low=1
    )
    call_timeout_ms: int = option(
        10_000,
        "filterCallTimeout",
        "timeout of the broker's response, in addition to the time a pull is held",
        unit="ms",
        low=1,
    )
    log_level: str = option("INFO", "logLevel", "log level: DEBUG, INFO, WARNING or ERROR")

    @property
    def bind_host(self) -> str:
        """The address to listen on."""
        return self.bind or self.host

    @property
    def sandbox(self) -> SandboxLimits:
        """The limits of a module."""
        return SandboxLimits(
            fuel=self.fuel, memory_bytes=self.memory_bytes, time_ms=self.time_ms, module_bytes=self.module_bytes
        )
