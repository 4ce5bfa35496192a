"""The handlers of the name server's request codes. An unknown code gets no response, as in Java."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from eruca._ground.clock import Clock
from eruca._ground.limits import BODY_BYTES_AT_ONCE
from eruca._nameserver.kvconfig import KVConfig
from eruca._nameserver.options import to_properties
from eruca._nameserver.routes import RouteTables
from eruca._nameserver.running import RunningOptions
from eruca._net.answers import InOrder
from eruca._net.apart import run_apart
from eruca._net.budget import Account
from eruca._net.handlers import Authorize, HandlerTable, Reply, Request, encode_apart, encode_reply
from eruca._net.link import Answer, Link
from eruca._net.turns import Slices
from eruca._wire.bodies import RegisterBrokerBody, TopicConfig, TopicList
from eruca._wire.catalog import decode_request
from eruca._wire.codes import VERSION_REGISTER_WITH_FILTER_SERVERS, RequestCode, ResponseCode
from eruca._wire.frame import Command
from eruca._wire.headers import (
    AddWritePermAnswerHeader,
    DataVersionAnswerHeader,
    KVConfigAnswerHeader,
    RegisterBrokerAnswerHeader,
    RegisterBrokerHeader,
    WipeWritePermAnswerHeader,
)
from eruca._wire.names import ORDER_TOPICS
from eruca._wire.record import body_crc
from eruca.errors import RequestRefused

# Memory of one broker and of one topic besides their names, and the note with the weight of a link's brokers.
_BROKER_BYTES: Final = 2048
_TOPIC_BYTES: Final = 512
_WEIGHTS: Final = "registrations"


class NameServerHandlers:
    """Handles the requests of brokers, clients and tools."""

    def __init__(self, routes: RouteTables, kv: KVConfig, running: RunningOptions, clock: Clock) -> None:
        self._routes = routes
        self._kv = kv
        self._running = running
        self._clock = clock
        limit = running.current.registrations_bytes_max
        self.account = Account("registrations", limit, "maxRegistrationBytes")

    def build_table(self, authorize: Authorize | None = None) -> HandlerTable:
        """Build the handler table of a server."""
        routes = self._routes
        table = HandlerTable(authorize)
        # Raw, because the checksum covers the bytes and is checked before they are decoded.
        table.add_raw(RequestCode.REGISTER_BROKER, self.register)
        table.add(RequestCode.UNREGISTER_BROKER, self.unregister)
        table.add(RequestCode.QUERY_DATA_VERSION, self.query_data_version)
        table.add(RequestCode.GET_ROUTEINFO_BY_TOPIC, self.find_route)
        table.add(RequestCode.GET_BROKER_CLUSTER_INFO, lambda request: Reply(body=routes.describe_clusters()))
        table.add(RequestCode.WIPE_WRITE_PERM_OF_BROKER, self.wipe_write_perm)
        table.add(RequestCode.ADD_WRITE_PERM_OF_BROKER, self.add_write_perm)
        table.add(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, lambda request: Reply(body=routes.list_system_topics()))
        for code, find in (
            (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, lambda _: routes.list_topics()),
            (RequestCode.GET_TOPICS_BY_CLUSTER, lambda request: routes.list_cluster_topics(request.header.cluster)),
            (RequestCode.GET_UNIT_TOPIC_LIST, lambda _: routes.list_unit_topics()),
            (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, lambda _: routes.list_unit_subscribed_topics()),
            (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, lambda _: routes.list_unit_subscribed_foreign_topics()),
        ):
            table.add_long(code, partial(_list_topics, find))
        table.add(RequestCode.DELETE_TOPIC_IN_NAMESRV, self.delete_topic)
        table.add(RequestCode.PUT_KV_CONFIG, self.put_kv)
        table.add(RequestCode.GET_KV_CONFIG, self.get_kv)
        table.add(RequestCode.DELETE_KV_CONFIG, self.delete_kv)
        table.add(RequestCode.GET_KVLIST_BY_NAMESPACE, self.list_kv)
        table.add(RequestCode.UPDATE_NAMESRV_CONFIG, self.update_options)
        table.add(RequestCode.GET_NAMESRV_CONFIG, self.show_options)
        return table

    # -- brokers -----------------------------------------------------------------------------------------------------

    def register(self, link: Link, command: Command) -> Answer:
        """Register a broker and its topics (103)."""
        if len(command.body) > BODY_BYTES_AT_ONCE or command.decode_header(RegisterBrokerHeader).compressed:
            return InOrder(self._register_large(link, command))
        read = _read_registration(command)
        return read if isinstance(read, bytes) else self._register(link, command, *read)

    async def _register_large(self, link: Link, command: Command) -> bytes | None:
        """Handle a registration that may have very many topics: decoded in a thread, and applied in slices."""
        read = await run_apart(_read_registration, command)
        if isinstance(read, bytes):
            return read
        if not link.is_open:
            return None  # closed already, so the registration would never be removed
        topics: list[TopicConfig] = []
        answer = self._register(link, command, *read, put_later=topics)
        slices = Slices()
        for topic in topics:
            self._routes.put_queues(read[0].broker_name, topic)
            await slices.rest()
        return answer

    def _register(
        self,
        link: Link,
        command: Command,
        header: RegisterBrokerHeader,
        body: RegisterBrokerBody | None,
        put_later: list[TopicConfig] | None = None,
    ) -> bytes:
        try:
            answer = self._routes.register(
                header,
                body,
                link,
                self._clock.monotonic(),
                with_filter_servers=command.version >= VERSION_REGISTER_WITH_FILTER_SERVERS,
                put_later=put_later,
            )
        except RequestRefused as error:
            known = RegisterBrokerAnswerHeader(eruca_epoch=self._routes.find_epoch(header.broker_name))
            return encode_reply(command, Reply(known, code=error.code, remark=error.remark))
        self._weigh(link, header, body)
        return encode_reply(command, Reply(answer, self._kv.list(ORDER_TOPICS)))

    def _weigh(self, link: Link, header: RegisterBrokerHeader, body: RegisterBrokerBody | None) -> None:
        """Record the weight of a connection's registrations: by broker, because a broker registers repeatedly."""
        texts = (header.broker_name, header.broker_addr, header.cluster_name, header.ha_server_addr)
        weight = _BROKER_BYTES + 2 * sum(map(len, texts))
        if body is not None:
            topics = body.topic_config_serialize_wrapper.topic_config_table
            weight += sum([_TOPIC_BYTES + len(name) for name in topics]) + sum(map(len, body.filter_server_list))
        known: dict[tuple[str, str], int] = link.notes.setdefault(_WEIGHTS, {})
        key = (header.broker_name, header.broker_addr)
        # A topic that is no longer registered stays in the tables: a weight only grows.
        before = known.get(key, 0)
        if weight > before:
            known[key] = weight
            self.account.add(link, weight - before)

    def unregister(self, request: Request) -> Reply:
        """Unregister a broker (104)."""
        self._routes.unregister(request.header)
        return Reply()

    def query_data_version(self, request: Request) -> Reply:
        """Return whether a broker's registration is current (322)."""
        address, now = request.header.broker_addr, self._clock.monotonic()
        changed, known = self._routes.query_data_version(address, request.body, now)
        return Reply(DataVersionAnswerHeader(changed), known)

    # -- topics ------------------------------------------------------------------------------------------------------

    def find_route(self, request: Request) -> Reply:
        """Return the route of a topic (105)."""
        topic = request.header.topic
        route = self._routes.find_route(topic)
        if route is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}\n"
                "See http://rocketmq.apache.org/docs/faq/ for further details.",
            )
        if self._running.current.order_message_enable:
            route.order_topic_conf = self._kv.get(ORDER_TOPICS, topic)
        return Reply(body=route)

    def wipe_write_perm(self, request: Request) -> Reply:
        """Remove the write permission of a broker (205)."""
        return Reply(WipeWritePermAnswerHeader(self._routes.wipe_write_perm(request.header.broker_name)))

    def add_write_perm(self, request: Request) -> Reply:
        """Restore the write permission of a broker (327)."""
        return Reply(AddWritePermAnswerHeader(self._routes.add_write_perm(request.header.broker_name)))

    def delete_topic(self, request: Request) -> Reply:
        """Delete a topic (216)."""
        self._routes.delete_topic(request.header.topic, request.header.cluster_name)
        return Reply()

    # -- key-value config --------------------------------------------------------------------------------------------

    async def put_kv(self, request: Request) -> Reply:
        """Set a value (100)."""
        await self._kv.put(request.header.namespace, request.header.key, request.header.value)
        return Reply()

    def get_kv(self, request: Request) -> Reply:
        """Get a value (101)."""
        namespace, key = request.header.namespace, request.header.key
        value = self._kv.get(namespace, key)
        if value is None:
            remark = f"No config item, Namespace: {namespace} Key: {key}"
            return Reply(KVConfigAnswerHeader(), code=ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return Reply(KVConfigAnswerHeader(value))

    async def delete_kv(self, request: Request) -> Reply:
        """Delete a value (102)."""
        await self._kv.delete(request.header.namespace, request.header.key)
        return Reply()

    def list_kv(self, request: Request) -> Reply:
        """Return all values of a namespace (219)."""
        table = self._kv.list(request.header.namespace)
        if table is None:
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {request.header.namespace}")
        return Reply(body=table)

    # -- options -----------------------------------------------------------------------------------------------------

    async def update_options(self, request: Request) -> Reply:
        """Change options (318)."""
        await self._running.change(request.body or {})
        return Reply()

    def show_options(self, request: Request) -> Reply:
        """Show options (319)."""
        return Reply(body=to_properties(self._running.current))


async def _list_topics(find: Callable[[Request], Iterator[str]], request: Request) -> Reply:
    """List topics (206, 224, 311 to 313), of which there may be very many."""
    topics: list[str] = []
    slices = Slices()
    for topic in find(request):
        topics.append(topic)
        if slices.is_over:
            await slices.rest()
    return Reply(body=await encode_apart(request, TopicList(topic_list=topics)))


def _read_registration(command: Command) -> tuple[RegisterBrokerHeader, RegisterBrokerBody | None] | bytes:
    """Decode the header and body of a registration, or return a refusal if it was corrupted in transit."""
    crc = command.decode_header(RegisterBrokerHeader).body_crc32
    if crc != 0 and crc != body_crc(command.body):
        refusal = Reply(RegisterBrokerAnswerHeader(), code=ResponseCode.SYSTEM_ERROR, remark="crc32 not match")
        return encode_reply(command, refusal)
    header, body = decode_request(command)
    assert isinstance(header, RegisterBrokerHeader)
    return header, body
