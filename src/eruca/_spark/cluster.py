"""A blocking view of a cluster: planners and tasks of Spark are plain functions in separate processes.

The client is asynchronous, so each `Cluster` has an event loop that runs only during a call. There is no thread; data
that arrives between calls waits in the sockets. An `Access` holds how to reach a cluster and is sent to the tasks.
Secrets are not part of it: each process reads them from its environment or its file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from eruca._admin.connection import Connection
from eruca._client.group.starting import find_offset_since
from eruca._client.options import ClientOptions
from eruca._client.session.calls import Calls
from eruca._client.session.route import Route
from eruca._ground.backoff import Backoff
from eruca._ground.durations import Duration
from eruca._net.tls import Tls, make_client_context
from eruca._spark.optiontable import SourceOption, read_count, read_duration_ms, read_flag, read_text
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import TOOLS_CONSUMER_GROUP
from eruca.errors import ConfigError, NetError, NoRoute

_Result = TypeVar("_Result")
_Item = TypeVar("_Item")

# Pauses between two attempts when a server does not answer.
RETRIES = Backoff(0.2, 5.0, jitter=0.2)

ACCESS_OPTIONS = (
    SourceOption("nameServer", read_text, "", "addresses of the name servers, host:port, separated by `;`"),
    SourceOption(
        "accessFile",
        read_text,
        "",
        "a YAML or JSON file with accessKey and secretKey, on every node; the default is the environment",
    ),
    SourceOption("tls", read_flag, False, "connect to the servers over TLS; the options below imply it"),
    SourceOption(
        "tlsCaFile",
        read_text,
        "",
        "PEM file with the CA certificates that sign those of the servers, on every node; the default is the system's",
    ),
    SourceOption(
        "tlsCertFile",
        read_text,
        "",
        "PEM file with the certificate to present to the servers, on every node; its content is never sent",
    ),
    SourceOption(
        "tlsKeyFile",
        read_text,
        "",
        "PEM file with the private key of that certificate, on every node; the default is the certificate's file",
    ),
    SourceOption("tlsVerify", read_flag, True, "false accepts any certificate of a server, also that of an impostor"),
    SourceOption("requestTimeout", read_duration_ms, 5000, "timeout of one request, for example 5s"),
    SourceOption("retries", read_count(0), 6, "how often a failed request is tried again"),
)


_TLS_FILES = {"ca": "tlsCaFile", "certificate": "tlsCertFile", "key": "tlsKeyFile"}


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a cluster."""

    nameserver: str
    access_file: str = ""
    # None: as the environment of each process says.
    tls: Tls | None = None
    # How long one request may take.
    timeout: Duration = 5.0
    # How often a failed request is tried again.
    retries: int = 6


def choose_access(values: Mapping[str, Any]) -> Access:
    """Read the options of a source or sink. Raises ConfigError if no name server is given."""
    if not values["nameServer"]:
        raise ConfigError("option nameServer is missing", hint='for example .option("nameServer", "127.0.0.1:9876")')
    access = Access(
        values["nameServer"],
        values["accessFile"],
        read_tls(values),
        values["requestTimeout"] / 1000,
        values["retries"],
    )
    make_client_options(access)  # a wrong file fails here, not in a task
    if access.tls is not None:
        make_client_context(access.tls)
    return access


def make_client_options(access: Access) -> ClientOptions:
    """Return the options of a client in this process. Raises ConfigError if a file cannot be read."""
    options = ClientOptions(nameservers=access.nameserver, call_timeout=access.timeout)
    if access.access_file:
        # Every worker of Spark loads this module, and nearly none reads YAML.
        from eruca._client.accountfile import read_account_file

        keys = read_account_file(Path(access.access_file))
        options = replace(
            options,
            access_key=keys.access_key,
            secret_key=keys.secret_key,
            security_token=keys.security_token,
        )
    return options if access.tls is None else replace(options, tls=access.tls)


def read_tls(values: Mapping[str, Any]) -> Tls | None:
    """Read the options of TLS; None if there are none."""
    files = {field: values.get(name, "") for field, name in _TLS_FILES.items()}
    verify = values.get("tlsVerify", True)
    return Tls(**files, verify=verify) if values.get("tls") or any(files.values()) or not verify else None


def describe_tls(tls: Tls | None) -> dict[str, Any]:
    """Return the options that `read_tls` reads: files are only named."""
    if tls is None:
        return {}
    files = {name: str(getattr(tls, field)) for field, name in _TLS_FILES.items()}
    return {"tls": True, **files, "tlsVerify": tls.verify}


def describe_access(access: Access) -> dict[str, Any]:
    """Return how to reach a cluster, to be stored beside offsets. Files are only named."""
    described = {"nameServer": access.nameserver, **describe_tls(access.tls)}
    return described | ({"accessFile": access.access_file} if access.access_file else {})


def read_access(described: Mapping[str, Any]) -> Access:
    """Undo `describe_access`."""
    return Access(described["nameServer"], access_file=described.get("accessFile", ""), tls=read_tls(described))


class Cluster:
    """A blocking view of a cluster, for one thread."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Requests to servers, routes and the session; pass its coroutines to `run`. Parts of the admin API take it. A
        #: whole `Admin` would load all parts in each worker of Spark.
        self.connection = Connection(options=make_client_options(access))

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Create the event loop; no connection is made yet."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.run_until_complete(self._open())

    def close(self) -> None:
        """Close all connections."""
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run_until_complete(self.connection.close())
            finally:
                loop.close()

    async def _open(self) -> None:
        self.connection.open()  # needs a running loop

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine and wait for its result."""
        self.open()
        assert self._loop is not None
        return self._loop.run_until_complete(work)

    @property
    def calls(self) -> Calls:
        """Typed requests to servers; pass its coroutines to `run`."""
        return self.connection.calls

    async def insist(self, ask: Callable[[], Awaitable[_Result]]) -> _Result:
        """Retry a request while a server does not answer, with increasing pauses."""
        for failures in count(1):
            try:
                return await ask()
            except NoRoute:
                raise
            except NetError:
                if failures > self.access.retries:
                    raise
            await asyncio.sleep(RETRIES.after(failures))
        raise AssertionError("unreachable")

    # -- topics and queues -------------------------------------------------------------------------------------------

    def list_topics(self) -> list[str]:
        """Return the names of all topics."""
        return self.run(self.insist(self.connection.list_topics))

    def find_route(self, topic: str) -> Route | None:
        """Look up the route of a topic; returns None if the topic does not exist."""
        return self.run(self.insist(lambda: self.connection.find_route(topic)))

    def list_queues(self, topics: Iterable[str]) -> dict[str, list[MessageQueue]]:
        """Look up the readable queues of topics; topics that do not exist are left out."""
        routes = {topic: self.find_route(topic) for topic in topics}
        return {topic: list(route.read_queues) for topic, route in routes.items() if route is not None}

    def find_address(self, queue: MessageQueue) -> str:
        """Return the address of the broker of a queue, of its master if there is one. Raises ConnectFailed."""
        routes = self.connection.routes
        if routes.find_address(queue.broker_name) is None:
            self.find_route(queue.topic)
        return routes.require_address(queue.broker_name)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def ask_each(
        self, queues: Collection[MessageQueue], ask: Callable[[str, MessageQueue], Coroutine[Any, Any, _Result]]
    ) -> dict[MessageQueue, _Result]:
        """Ask the broker of each queue, all at the same time, with retries; `ask` gets the address and the queue."""
        return self.gather(queues, lambda queue: self.insist(partial(self.ask_broker, queue, ask)))

    async def ask_broker(self, queue: MessageQueue, ask: Callable[[str, MessageQueue], Awaitable[_Result]]) -> _Result:
        """Ask the broker of a queue once; after a network error its address is looked up for the next attempt."""
        routes = self.connection.routes
        if routes.find_address(queue.broker_name) is None:
            await self.connection.find_route(queue.topic)
        address = routes.require_address(queue.broker_name)
        try:
            return await ask(address, queue)
        except NetError:
            await self.connection.find_route(queue.topic)
            raise

    def gather(
        self, items: Collection[_Item], ask: Callable[[_Item], Coroutine[Any, Any, _Result]]
    ) -> dict[_Item, _Result]:
        """Ask something about each item, all at the same time, and wait for the answers."""

        async def ask_all() -> list[_Result]:
            return list(await asyncio.gather(*[ask(item) for item in items]))

        return dict(zip(items, self.run(ask_all()), strict=True))

    def find_begins(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the first offset that each queue still has."""
        found = self.ask_each(queues, self.calls.find_min_offset)
        return {queue: max(0, offset) for queue, offset in found.items()}

    def find_ends(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offset after the last message of each queue."""
        return self.ask_each(queues, self.calls.find_max_offset)

    def find_since(self, queues: Collection[MessageQueue], time_ms: int) -> dict[MessageQueue, int]:
        """Return the offset of the first message stored at a time or later, in each queue."""
        return self.ask_each(
            queues, lambda address, queue: find_offset_since(self.calls, address, TOOLS_CONSUMER_GROUP, queue, time_ms)
        )

    def read_group(self, group: str, queues: Collection[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Return the committed offset of a group in each queue; None where it has none."""
        return self.ask_each(queues, lambda address, queue: self.calls.read_offset(address, group, queue))

    def commit_group(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets of a group and wait until every broker has acknowledged them."""

        async def commit(address: str, queue: MessageQueue) -> None:
            await self.calls.write_offset(address, group, queue, offsets[queue], wait=True)

        self.ask_each(list(offsets), commit)
