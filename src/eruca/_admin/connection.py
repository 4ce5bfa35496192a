"""The connection of operators to a cluster: requests to its servers, the list of brokers, and reading any queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eruca._client.message import Message
from eruca._client.options import ClientOptions, choose_options
from eruca._client.pull.queuereading import QueueReader
from eruca._client.session.calls import Calls, explain_refusal
from eruca._client.session.cluster import describe_clusters, list_topics
from eruca._client.session.route import Route
from eruca._client.session.routes import Routes
from eruca._client.session.session import Session
from eruca._ground.durations import to_ms
from eruca._wire.bodies import ClusterInfo, MessageQueue, QueueEntries
from eruca._wire.catalog import build_request, decode_answer
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.ext import Header
from eruca._wire.headers import EmptyHeader, QueryConsumeQueueHeader
from eruca._wire.names import MASTER_ID, TOOLS_CONSUMER_GROUP, TOOLS_PRODUCER_GROUP
from eruca._wire.record import Record
from eruca.errors import ClientClosed, ConnectFailed, NetError, NoRoute

if TYPE_CHECKING:
    from eruca._client.produce.producer import Producer

_READ_COUNT = 32
# How many times a broker is asked that returns nothing although the queue has more, and the pause between.
_SILENT_MAX = 10
_SILENT_PAUSE_S = 0.1


class Connection:
    """Sends the requests of an `Admin`: to name servers and brokers, over the connections of one client session."""

    def __init__(self, nameservers: str | Sequence[str] | None = None, options: ClientOptions | None = None) -> None:
        # Names are those that brokers use: nothing is put before them.
        self.options = replace(choose_options(nameservers, options), namespace="")
        self._session: Session | None = None
        # By whether they trace messages.
        self._producers: dict[bool, Producer] = {}
        self._opening = asyncio.Lock()

    def open(self) -> None:
        """Take a session; no connection is made yet. Safe to call twice."""
        if self._session is None:
            self._session = Session.acquire(self.options)

    async def close(self) -> None:
        """Release the session. Safe to call twice."""
        producers, self._producers = self._producers, {}
        for producer in producers.values():
            await producer.close()
        session, self._session = self._session, None
        if session is not None:
            await session.release()

    async def open_producer(self, *, trace: bool) -> Producer:
        """Return the producer that sends test messages, with message trace or without; it is closed with the rest."""
        # Loaded here because few users of a connection send, and each worker of Spark loads this module.
        from eruca._client.produce.producer import Producer

        async with self._opening:
            if trace not in self._producers:
                producer = Producer(group=TOOLS_PRODUCER_GROUP, options=self.options, trace=trace)
                await producer.start()
                self._producers[trace] = producer
        return self._producers[trace]

    @property
    def session(self) -> Session:
        """The session it uses. Raises ClientClosed before it is started."""
        if self._session is None:
            raise ClientClosed("the admin is not started", hint="use `async with Admin(...)`")
        return self._session

    @property
    def calls(self) -> Calls:
        """Requests to servers, one method each."""
        return self.session.calls

    @property
    def routes(self) -> Routes:
        """The routes of topics."""
        return self.session.routes

    @property
    def reader(self) -> QueueReader:
        """Reads single queues."""
        return QueueReader(self.session, TOOLS_CONSUMER_GROUP)

    # -- the cluster -------------------------------------------------------------------------------------------------

    async def describe_clusters(self) -> ClusterInfo:
        """Return all brokers that any name server knows, with the addresses of their members and their clusters."""
        return await describe_clusters(self.routes)

    async def list_masters(self) -> dict[str, str]:
        """Return the address of every master by broker name."""
        return {
            name: broker.broker_addrs[MASTER_ID]
            for name, broker in sorted((await self.describe_clusters()).broker_addr_table.items())
            if MASTER_ID in broker.broker_addrs
        }

    async def list_clusters(self) -> dict[str, list[str]]:
        """Return the broker names of every cluster."""
        return dict((await self.describe_clusters()).cluster_addr_table)

    async def list_topics(self, cluster: str | None = None) -> list[str]:
        """Return the names of all topics that any name server knows, or of those of a cluster."""
        return await list_topics(self.routes, cluster)

    async def get_route(self, topic: str) -> Route:
        """Return the route of a topic, fetched now unless it is known. Raises NoRoute."""
        known = self.routes.peek(topic)
        return await self.require_route(topic) if known is None or known.is_template else known

    async def require_route(self, topic: str) -> Route:
        """Return the route of a topic, from all name servers. Raises NoRoute if none of them knows it."""
        return await self.routes.refresh_everywhere(topic)

    async def find_route(self, topic: str) -> Route | None:
        """Return the route of a topic; None if there is no such topic."""
        try:
            return await self.require_route(topic)
        except NoRoute:
            return None

    def find_master(self, broker: str) -> str:
        """Return the address of a master. The route of one of its topics must be loaded. Raises ConnectFailed."""
        address = self.routes.find_address(broker, only_this=True)
        if address is None:
            raise explain_no_master(broker)
        return address

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: object = None,
        timeout_ms: int | None = None,
    ) -> tuple[Any, Any]:
        """Send a request to a server and return header and body of its answer. Raises RequestRefused."""
        return await self.calls.ask(address, build_request(code, header or EmptyHeader(), body), timeout_ms)

    # -- name servers ------------------------------------------------------------------------------------------------

    async def list_nameservers(self) -> list[str]:
        """Return the addresses of all name servers. Raises NetError if none is configured."""
        return await self.routes.list_nameservers()

    async def ask_nameserver(
        self, address: str, code: RequestCode, header: Header | None = None, body: object = None
    ) -> tuple[Any, Any]:
        """Send a request to one name server and return header and body of its answer. Raises RequestRefused."""
        answer = await self.calls.call(address, build_request(code, header or EmptyHeader(), body))
        if answer.code != ResponseCode.SUCCESS:
            raise explain_refusal(answer, f"name server {address}")
        return decode_answer(code, answer)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def read_queue(
        self,
        queue: MessageQueue,
        offset: int | None = None,
        end: int | None = None,
        wanted: str = "*",
        *,
        group: str | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Yield the messages of a queue with the wanted tags, from an offset (default: its first) to its current end.

        With `end`, up to this offset. With `group`, in the name of this group.
        """
        reader = self.reader if group is None else QueueReader(self.session, group)
        at = max(0, await reader.find_begin(queue) if offset is None else offset)
        end = await reader.find_end(queue) if end is None else end
        silent = 0
        while at < end:
            pulled = await reader.pull(
                queue,
                at,
                wanted=wanted,
                count=_READ_COUNT,
                hold_ms=0,
                timeout_ms=to_ms("call_timeout", self.options.call_timeout),
            )
            for message in pulled.messages:
                if message.offset >= end:
                    return
                yield message
            if pulled.next_offset > at:
                at, silent = pulled.next_offset, 0
                continue
            # A list or an export must not end in the middle of a queue without an error.
            silent += 1
            if silent >= _SILENT_MAX:
                raise NetError(
                    f"broker {queue.broker_name} returns no messages of {queue.topic}, queue {queue.queue_id}, from"
                    f" offset {at}, although the queue ends at {end}",
                    hint="see the log of the broker; try again in a moment",
                )
            await asyncio.sleep(_SILENT_PAUSE_S)

    async def read_unlisted(
        self, address: str, queue: MessageQueue, offset: int | None = None
    ) -> AsyncIterator[Record]:
        """Yield the records of a queue whose topic is not in the topic table, and which therefore cannot be pulled.

        The entries of the consume queue are requested, then each record by its position.
        """
        end = await self.calls.find_max_offset(address, queue)
        # The first offset of a queue that was never written to may be below 0.
        at = max(0, offset or 0, await self.calls.find_min_offset(address, queue))
        while at < end:
            header = QueryConsumeQueueHeader(
                topic=queue.topic, queue_id=queue.queue_id, index=at, count=min(_READ_COUNT, end - at)
            )
            _, body = await self.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
            positions = [entry.position for entry in body.queue_data] if isinstance(body, QueueEntries) else []
            if not positions:
                return  # deleted in the meantime
            for record in await asyncio.gather(*[self.calls.view_message(address, position) for position in positions]):
                yield record
            at += len(positions)


def explain_no_master(broker: str) -> ConnectFailed:
    """Return the error for a broker that has no master."""
    return ConnectFailed(f"broker {broker} has no master now", hint="only a master can do this; start it")
