"""The connections of many groups: which clients of which versions, and what the groups are subscribed to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.groupmembers import Subscribed, join_memberships, read_connected
from eruca._admin.results import Problem
from eruca._admin.targets import Answering, BrokerRow, ask_each, gather_bounded
from eruca._wire.bodies import ConsumerConnection
from eruca._wire.versions import name_version


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

    brokers = Answering(rows)

    async def ask(group: str) -> GroupConnections | None:
        found, problems = await ask_each(brokers.rows, lambda row: read_connected(connection, group, row))
        brokers.note(problems)
        bodies = [(row, body) for row, body in found if body is not None]
        return _describe(group, bodies) if bodies else None

    answers = await gather_bounded(groups, ask)
    return [each for each in answers if isinstance(each, GroupConnections)], brokers.problems


def _describe(group: str, bodies: Sequence[tuple[BrokerRow, ConsumerConnection]]) -> GroupConnections:
    whole = join_memberships(bodies)
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
