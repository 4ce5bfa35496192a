"""A real name server and broker in a thread of this process: for tests, examples and notebooks."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from eruca.errors import ConfigError, ErucaError

if TYPE_CHECKING:
    from eruca._broker.app import Broker
    from eruca._nameserver.app import NameServer
    from eruca._net.tlsoptions import TlsOptions

Result = TypeVar("Result")

# Files for few messages; small files make the start fast.
_SMALL_STORE = {
    "commitlog_segment_bytes": 8 << 20,
    "consumequeue_segment_bytes": 20_000,
    "index_slots": 5_000,
    "index_entries": 20_000,
}
# A test waits for a condition, not for a broker that counts minutes.
_HURRIED_BROKER = {
    "schedule_interval_ms": 10,
    "transaction_check_interval_ms": 100,
    "transaction_timeout_ms": 100,
    # The default of 15 checks would be used up before a producer that died is back.
    "transaction_check_max": 10_000,
}
_HURRIED_STORE = {"delay_levels": " ".join(["0s"] * 18)}


class EmbeddedBroker:
    """A name server and a broker on free loopback ports, with their files in a temporary directory.

    >>> with EmbeddedBroker() as broker:
    ...     producer = Producer(broker.nameserver)

    `async with` does the same. Both run in a thread with their own event loop, so that tests can start and end loops
    freely. `hurry` makes delays, retries and transaction check-backs happen at once instead of after seconds
    or minutes. `tls` are options of TLS for both, by the names of TlsOptions. Other options by name are those of
    BrokerOptions and StoreOptions. A `directory` is kept.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        hurry: bool = False,
        tls: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._directory = directory
        self._tls = dict(tls or {})
        self._hurry = hurry
        self._options = options
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._broker: Broker | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        # The addresses (`host:port`) of the name server and of the broker.
        self.nameserver = ""
        self.address = ""

    # -- start and stop ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start both and wait until they answer. Raises the error if the start fails."""
        if self._thread is not None:
            return
        if self._directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="eruca-")
        self._stopping = asyncio.Event()
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="eruca-broker", daemon=True)
        self._thread.start()
        try:
            started.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop both, and remove the temporary directory."""
        thread = self._thread
        if thread is None:
            return
        if self._loop is None:
            self._stopping.set()
        else:
            with suppress(RuntimeError):  # the start failed, and the loop is closed already
                self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join()
        self._thread = self._loop = self._broker = None
        self.nameserver = self.address = ""
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    # -- for tests ---------------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic, or change its number of queues; name servers know it when this returns."""
        self._call(lambda: self._create_topic(topic, queues))

    async def _create_topic(self, topic: str, queues: int) -> None:
        from eruca._wire.bodies import TopicConfig
        from eruca._wire.names import READ, WRITE

        broker = self._broker
        assert broker is not None
        broker.topics.put(
            TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=READ | WRITE)
        )
        await broker.registration.register_all()

    def _call(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        if self._loop is None or self._broker is None:
            raise ErucaError("the embedded broker is not started", hint="use `with EmbeddedBroker() as broker:`")
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _run(self, started: Future[None]) -> None:
        with asyncio.Runner(loop_factory=_choose_loop()) as runner:
            try:
                runner.run(self._serve(started))
            except BaseException as error:
                if started.done():
                    raise
                started.set_exception(error)

    async def _serve(self, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        home = Path(self._temporary.name) if self._temporary is not None else self._directory
        assert home is not None
        tls = _make_tls(self._tls)
        nameserver = _make_nameserver(home, tls)
        await nameserver.start()
        try:
            self._broker = broker = self._make_broker(nameserver.address, home, tls)
            await broker.start()
            try:
                self.nameserver, self.address = nameserver.address, broker.standing.address
                started.set_result(None)
                await self._stopping.wait()
            finally:
                await broker.stop()
        finally:
            await nameserver.stop()

    def _make_broker(self, nameserver: str, home: Path, tls: TlsOptions) -> Broker:
        from eruca._broker.app import Broker
        from eruca._broker.options import BrokerOptions
        from eruca._ground.config import StoreOptions

        for_broker: dict[str, Any] = {"port": 0, "nameservers": nameserver, "name": "embedded"}
        for_store: dict[str, Any] = dict(_SMALL_STORE)
        if self._hurry:
            for_broker |= _HURRIED_BROKER
            for_store |= _HURRIED_STORE
        for name, value in self._options.items():
            if name in StoreOptions.__dataclass_fields__:
                for_store[name] = value
            elif name in BrokerOptions.__dataclass_fields__:
                for_broker[name] = value
            else:
                raise ConfigError(
                    f"no broker or store has an option {name}", hint="eruca config list shows the options"
                )
        return Broker(BrokerOptions(**for_broker), StoreOptions(**for_store), home / "store", tls=tls)


def _make_tls(options: Mapping[str, Any]) -> TlsOptions:
    from eruca._net.tlsoptions import TlsOptions

    for name in options:
        if name not in TlsOptions.__dataclass_fields__:
            raise ConfigError(f"TLS has no option {name}", hint=", ".join(TlsOptions.__dataclass_fields__))
    return TlsOptions(**options)


def _make_nameserver(home: Path, tls: TlsOptions) -> NameServer:
    from eruca._nameserver.app import NameServer
    from eruca._nameserver.options import NameServerOptions

    return NameServer(
        NameServerOptions(
            listen_port=0,
            kv_config_path=str(home / "namesrv" / "kvConfig.json"),
            config_store_path=str(home / "namesrv" / "namesrv.properties"),
        ),
        tls=tls,
    )


def _choose_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
