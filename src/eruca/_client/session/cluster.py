"""Questions about the whole cluster: every name server is asked, because they may not know the same brokers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from eruca._client.session.calls import explain_refusal
from eruca._client.session.route import merge_brokers
from eruca._client.session.routes import Routes
from eruca._wire.bodies import ClusterInfo, TopicList
from eruca._wire.catalog import decode_answer
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.ext import Header
from eruca._wire.frame import make_request
from eruca._wire.headers import ClusterHeader, EmptyHeader
from eruca._wire.ids import OffsetId
from eruca.errors import NoRoute


async def ask_cluster(routes: Routes, code: RequestCode, header: Header | None = None) -> list[object]:
    """Ask every name server a question; return the typed bodies of the answers. Raises ErucaError if all refuse."""
    answers = await routes.ask_every_nameserver(lambda: make_request(code, header or EmptyHeader()))
    taken = [answer for _, answer in answers if answer.code == ResponseCode.SUCCESS]
    if not taken:
        server, answer = answers[0]
        raise explain_refusal(answer, f"name server {server}")
    return [decode_answer(code, answer)[1] for answer in taken]


async def list_topics(routes: Routes, cluster: str | None = None) -> list[str]:
    """Return the names of all topics that any name server knows, or of those of a cluster."""
    if cluster is None:
        bodies = await ask_cluster(routes, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    else:
        bodies = await ask_cluster(routes, RequestCode.GET_TOPICS_BY_CLUSTER, ClusterHeader(cluster=cluster))
    return sorted({topic for body in bodies if isinstance(body, TopicList) for topic in body.topic_list})


async def describe_clusters(routes: Routes) -> ClusterInfo:
    """Return all brokers that any name server knows, with the addresses of their members, and the cluster of each."""
    bodies = await ask_cluster(routes, RequestCode.GET_BROKER_CLUSTER_INFO)
    return merge_clusters([body for body in bodies if isinstance(body, ClusterInfo)])


def merge_clusters(answers: Sequence[ClusterInfo]) -> ClusterInfo:
    """Return what any of the answers contains. Where they differ, the first one counts."""
    if len(answers) == 1:
        return answers[0]
    brokers = merge_brokers([broker for info in answers for broker in info.broker_addr_table.values()])
    clusters: dict[str, list[str]] = {}
    for info in answers:
        for cluster, names in info.cluster_addr_table.items():
            known = clusters.setdefault(cluster, [])
            known += [name for name in names if name not in known]
    return ClusterInfo(
        broker_addr_table={broker.broker_name: broker for broker in brokers}, cluster_addr_table=clusters
    )


async def find_named_broker(routes: Routes, where: OffsetId) -> tuple[str, str]:
    """Return the name and the address of the broker that an offset id names. Raises NoRoute.

    Ids come from anywhere: a log, a ticket, a property of a message. One that names a stranger must not make us connect
    to it and send it signed requests.
    """
    for name, address in _list_addresses(routes.list_brokers()):
        if await _is_at(address, where):
            return name, address
    table = (await describe_clusters(routes)).broker_addr_table
    for name, address in _list_addresses({name: broker.broker_addrs for name, broker in table.items()}):
        if await _is_at(address, where):
            return name, address
    raise NoRoute(
        f"the id names a broker at {where.ip}, port {where.port}, and this cluster has none there",
        hint="is the id complete, and is it of this cluster?",
    )


def _list_addresses(brokers: dict[str, dict[int, str]]) -> Iterator[tuple[str, str]]:
    for name, by_id in brokers.items():
        for address in by_id.values():
            yield name, address


async def _is_at(address: str, where: OffsetId) -> bool:
    """Whether the address of a broker is the one in an id, which has no names, only numbers."""
    host, _, port = address.rpartition(":")
    if port != str(where.port):
        return False
    wanted, host = ip_address(where.ip), host.strip("[]")
    try:
        return ip_address(host) == wanted
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, where.port, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(ip_address(str(entry[4][0]).partition("%")[0]) == wanted for entry in found)
