"""Asking a name server for the brokers of a name."""

from __future__ import annotations

from eruca._net.caller import Caller
from eruca._net.handlers import expect_success
from eruca._wire.bodies import ClusterInfo
from eruca._wire.catalog import decode_answer
from eruca._wire.codes import RequestCode
from eruca._wire.frame import make_request
from eruca._wire.headers import EmptyHeader


async def ask_addresses(caller: Caller, nameserver: str, name: str, timeout_ms: int) -> dict[int, str]:
    """Return the addresses of the brokers of a name, by id. Raises ErucaError."""
    command = make_request(RequestCode.GET_BROKER_CLUSTER_INFO, EmptyHeader())
    answer = expect_success(await caller.call(nameserver, command, timeout_ms))
    info = decode_answer(RequestCode.GET_BROKER_CLUSTER_INFO, answer)[1]
    broker = info.broker_addr_table.get(name) if isinstance(info, ClusterInfo) else None
    return {} if broker is None else broker.broker_addrs
