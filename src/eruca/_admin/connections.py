"""The connections of many groups: which clients of which versions, and what the groups are subscribed to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.groupmembers import Membership, Subscribed, join_memberships, read_connected
from eruca._admin.results import Problem
from eruca._admin.targets import BrokerRow, gather_bounded, make_problem
from eruca._wire.bodies import ConsumerConnection
from eruca._wire.versions import name_version
from eruca.errors import ErucaError


class Connected(msgspec.Struct, frozen=True, kw_only=True):
    """One connection of a member to one broker. The same client id twice on one broker is a fault."""

    client_id: str
    # Its address as the broker sees it.
    address: str
    broker: str
    language: str
    # The release of its client: `4.9.7`.
    version: str


class GroupConnections(msgspec.Struct, frozen=True, kw_only=True):
    """A group that has members."""

    group: str
    connections: list[Connected]
    subscriptions: list[Subscribed] = []
    # As `Group` has them.
    model: str = ""
    kind: str = ""
    start: str = ""


async def read_connections(
    connection: Connection, groups: Sequence[str], rows: Sequence[BrokerRow]
) -> tuple[list[GroupConnections], list[Problem]]:
    """Return the groups that have members, in their order; a broker that fails is one problem, however many groups."""

    async def ask(pair: tuple[str, BrokerRow]) -> ConsumerConnection | None:
        group, row = pair
        return await read_connected(connection, group, row)

    pairs = [(group, row) for group in groups for row in rows]
    bodies: dict[str, list[tuple[BrokerRow, ConsumerConnection]]] = {}
    problems: dict[str, Problem] = {}
    for (group, row), answer in zip(pairs, await gather_bounded(pairs, ask), strict=True):
        if isinstance(answer, ErucaError):
            problems.setdefault(row.address, make_problem(row, answer))
        elif answer is not None:
            bodies.setdefault(group, []).append((row, answer))
    return [_describe(group, found) for group, found in bodies.items()], list(problems.values())


def _describe(group: str, bodies: Sequence[tuple[BrokerRow, ConsumerConnection]]) -> GroupConnections:
    whole: Membership = join_memberships(bodies)
    return GroupConnections(
        group=group,
        connections=[
            Connected(
                client_id=each.client_id,
                address=each.client_addr,
                broker=row.where,
                language=each.language,
                version=name_version(each.version),
            )
            for row, body in bodies
            for each in body.connection_set
        ],
        subscriptions=whole.subscriptions,
        model=whole.model,
        kind=whole.kind,
        start=whole.start,
    )
