"""What a filter server can be told."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._filterserver.sandbox import SandboxLimits
from eruca._ground import limits
from eruca._ground.config import option


@dataclass(frozen=True, slots=True)
class FilterServerOptions:
    """Where a filter server is, which broker it serves, and what the code of clients may use."""

    broker: str = option("127.0.0.1:10911", "connectWhichBroker", "the broker it serves, host:port")
    host: str = option("127.0.0.1", "filterServerIP", "the address clients are told to connect to")
    bind: str = option("", "bindAddress", "the address to listen on; empty: as filterServerIP")
    port: int = option(0, "listenPort", "port to listen on; 0 lets the system choose", low=0, high=65535)
    uploads: bool = option(
        True, "clientUploadFilterClassEnable", "take WebAssembly modules of clients; false: only installed classes"
    )
    plugins: str = option(
        "", "filterPluginPath", "directory of Python filter classes that you installed; empty: there are none"
    )
    workers: int = option(4, "filterWorkerThreads", "pulls that are filtered at the same time", low=2, high=64)
    fuel: int = option(
        limits.FILTER_FUEL, "filterFuel", "instructions a module may spend on one message", low=1000, high=2**62
    )
    memory_bytes: int = option(
        limits.FILTER_MEMORY_BYTES_MAX,
        "filterMemorySize",
        "memory a module may have; messages larger than half of it are not shown to it",
        unit="bytes",
        low=65_536,
        high=2**31,
    )
    time_ms: int = option(
        limits.FILTER_TIME_MS_MAX, "filterTimeout", "time a module may spend on one pull", unit="ms", low=20
    )
    module_bytes: int = option(
        limits.FILTER_MODULE_BYTES_MAX, "filterModuleSize", "size of a module", unit="bytes", low=8, high=8 << 20
    )
    register_interval_ms: int = option(
        10_000, "registerFilterServerPeriod", "how often it tells the broker that it is there", unit="ms", low=1
    )
    call_timeout_ms: int = option(
        10_000, "filterCallTimeout", "how long the broker may take for an answer, besides holding it", unit="ms", low=1
    )
    log_level: str = option("INFO", "logLevel", "what is logged: DEBUG, INFO, WARNING or ERROR")

    @property
    def bind_host(self) -> str:
        """Where to listen."""
        return self.bind or self.host

    @property
    def sandbox(self) -> SandboxLimits:
        """What a module may use."""
        return SandboxLimits(
            fuel=self.fuel, memory_bytes=self.memory_bytes, time_ms=self.time_ms, module_bytes=self.module_bytes
        )
