"""The order of topics: their queues on each broker, which name servers keep as `broker-a:4;broker-b:4`."""

from __future__ import annotations

from collections.abc import Mapping

from eruca._admin.connection import Connection
from eruca._wire.bodies import KVTable
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import KVConfigAnswerHeader, KVConfigHeader, NamespaceHeader, PutKVConfigHeader
from eruca._wire.names import ORDER_TOPICS
from eruca.errors import ConfigError, NetError, RequestRefused


async def read_value(connection: Connection, server: str, namespace: str, key: str) -> str | None:
    """Return a value that a name server keeps; None if it has none."""
    try:
        header, _ = await connection.ask_nameserver(
            server, RequestCode.GET_KV_CONFIG, KVConfigHeader(namespace=namespace, key=key)
        )
    except RequestRefused as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    return header.value if isinstance(header, KVConfigAnswerHeader) else None


async def read_order(connection: Connection, topic: str) -> str:
    """Return the order of a topic, from the first name server that answers; empty if it has none."""
    failure: NetError | None = None
    for server in await connection.list_nameservers():
        try:
            return await read_value(connection, server, ORDER_TOPICS, topic) or ""
        except NetError as error:
            failure = error
    assert failure is not None  # there is at least one name server
    raise failure


async def list_orders(connection: Connection) -> dict[str, str]:
    """Return the order of every topic that has one, as the first name server has it that answers."""
    failure: NetError | None = None
    for server in await connection.list_nameservers():
        try:
            return await list_values(connection, server, ORDER_TOPICS)
        except NetError as error:
            failure = error
    assert failure is not None  # there is at least one name server
    raise failure


async def list_values(connection: Connection, server: str, namespace: str) -> dict[str, str]:
    """Return all values of a namespace on a name server; empty if there is no such namespace."""
    try:
        _, body = await connection.ask_nameserver(
            server, RequestCode.GET_KVLIST_BY_NAMESPACE, NamespaceHeader(namespace=namespace)
        )
    except RequestRefused as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return {}
        raise
    return body.table if isinstance(body, KVTable) else {}


async def write_order(connection: Connection, topic: str, order: str) -> None:
    """Set the order of a topic on all name servers; an empty one is deleted."""
    for server in await connection.list_nameservers():
        if order:
            put = PutKVConfigHeader(namespace=ORDER_TOPICS, key=topic, value=order)
            await connection.ask_nameserver(server, RequestCode.PUT_KV_CONFIG, put)
        else:
            header = KVConfigHeader(namespace=ORDER_TOPICS, key=topic)
            await connection.ask_nameserver(server, RequestCode.DELETE_KV_CONFIG, header)


def split_order(order: str) -> dict[str, int]:
    """Return the number of queues by broker."""
    parts = [part.partition(":") for part in order.split(";") if part]
    return {name: int(count) for name, _, count in parts if name and count.isdecimal()}


def check_order(order: str) -> str:
    """Return an order. Raises ConfigError if it has another form."""
    if join_order(split_order(order)) != order.rstrip(";"):
        raise ConfigError(f"order={order!r}: expected BROKER:QUEUES;BROKER:QUEUES", hint="broker-a:4;broker-b:4")
    return order


def join_order(queues: Mapping[str, int]) -> str:
    """Return the number of queues by broker as text."""
    return ";".join(f"{name}:{count}" for name, count in queues.items())
