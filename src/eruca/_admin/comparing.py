"""What some name servers know and others do not."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import Problem
from eruca._admin.targets import gather_bounded
from eruca._wire.bodies import ClusterInfo, TopicList
from eruca._wire.codes import RequestCode
from eruca._wire.headers import EmptyHeader
from eruca.errors import ErucaError


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """A broker or a topic that not all name servers know."""

    # `broker` or `topic`.
    kind: str
    # The topic, or `broker-a:0 10.0.0.1:10911`.
    name: str
    # The addresses of name servers.
    known_to: list[str]
    missing_on: list[str]


async def compare_name_servers(connection: Connection) -> tuple[list[Disagreement], list[Problem]]:
    """Ask each name server for its brokers and topics; return what not all have that answer."""
    servers = await connection.list_nameservers()

    async def ask(server: str) -> set[tuple[str, str]]:
        _, clusters = await connection.ask_nameserver(server, RequestCode.GET_BROKER_CLUSTER_INFO, EmptyHeader())
        _, topics = await connection.ask_nameserver(
            server, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, EmptyHeader()
        )
        return list_known(clusters, topics)

    answers = await gather_bounded(servers, ask)
    known: dict[str, set[tuple[str, str]]] = {}
    problems = []
    for server, answer in zip(servers, answers, strict=True):
        if isinstance(answer, ErucaError):
            problems.append(Problem(where=server, address=server, error=str(answer.args[0]), hint=answer.hint))
        else:
            known[server] = answer
    return find_disagreements(known), problems


def list_known(clusters: object, topics: object) -> set[tuple[str, str]]:
    """Return what a name server knows: kinds and names."""
    table = clusters.broker_addr_table if isinstance(clusters, ClusterInfo) else {}
    found = {
        ("broker", f"{name}:{number} {address}")
        for name, broker in table.items()
        for number, address in broker.broker_addrs.items()
    }
    return found | {("topic", name) for name in (topics.topic_list if isinstance(topics, TopicList) else ())}


def find_disagreements(known: Mapping[str, set[tuple[str, str]]]) -> list[Disagreement]:
    """Return what some servers know and others do not, brokers first; `known` is by server."""
    everything = set().union(*known.values())
    return [
        Disagreement(
            kind=kind,
            name=name,
            known_to=[server for server in known if (kind, name) in known[server]],
            missing_on=[server for server in known if (kind, name) not in known[server]],
        )
        for kind, name in sorted(everything)
        if any((kind, name) not in each for each in known.values())
    ]
