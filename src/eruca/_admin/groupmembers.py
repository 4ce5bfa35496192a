"""The members of consumer groups: who is connected, what they subscribe to, and what each is doing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import Problem
from eruca._admin.targets import BrokerRow, ask_each, gather_bounded
from eruca._wire.bodies import ConsumerConnection, ConsumerRunningInfo, SubscriptionData
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import ConsumerGroupHeader, ConsumerRunningInfoHeader
from eruca._wire.names import RETRY_PREFIX
from eruca._wire.versions import name_version
from eruca.errors import ErucaError, NetError, RequestRefused

#: A broker waits for a client for 10 s when it relays a request.
RELAY_MS: Final = 12_000
# Each of these requests waits for a client that may be busy.
_RELAYED_AT_ONCE: Final = 16

_STARTS: Final[Mapping[str, str]] = {
    "CONSUME_FROM_FIRST_OFFSET": "earliest",
    "CONSUME_FROM_TIMESTAMP": "timestamp",
}
_KINDS: Final[Mapping[str, str]] = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull"}


class Subscribed(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription of a group or of one member."""

    topic: str
    # The expression, and its kind: TAG or SQL92.
    expression: str
    kind: str = "TAG"


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A connected member of a group."""

    client_id: str
    # Its address as a broker sees it.
    address: str
    language: str
    # The release of its client: `4.9.7`.
    version: str
    # The brokers it is connected to.
    brokers: list[str]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription that is not the same in all members of a group; messages are lost or wait because of it."""

    topic: str
    # The subscription of each member by client id; None: the member is not subscribed.
    by_member: dict[str, Subscribed | None]


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a group, and what its last heartbeats said about it."""

    members: list[GroupMember] = []
    subscriptions: list[Subscribed] = []
    model: str = ""
    kind: str = ""
    start: str = ""
    problems: list[Problem] = []


async def read_membership(connection: Connection, group: str, rows: Sequence[BrokerRow]) -> Membership:
    """Ask brokers who is in a group; nobody, if none knows it."""

    async def ask(row: BrokerRow) -> ConsumerConnection | None:
        header = ConsumerGroupHeader(consumer_group=group)
        try:
            _, body = await connection.ask(row.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except RequestRefused as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None
            raise
        return body if isinstance(body, ConsumerConnection) else None

    found, problems = await ask_each(rows, ask)
    bodies = [(row, body) for row, body in found if body is not None]
    last = bodies[-1][1] if bodies else ConsumerConnection()
    subscriptions = {data.topic: _describe(data) for _, body in bodies for data in body.subscription_table.values()}
    return Membership(
        members=_join_members(bodies),
        subscriptions=[subscriptions[topic] for topic in sorted(subscriptions)],
        model=last.message_model.lower() if last.message_model else "",
        kind=_KINDS[last.consume_type] if last.consume_type else "",
        start=_STARTS.get(last.consume_from_where, "latest") if last.consume_from_where else "",
        problems=problems,
    )


def _join_members(bodies: Iterable[tuple[BrokerRow, ConsumerConnection]]) -> list[GroupMember]:
    """Return each member once, also if it is connected to several brokers."""
    # Two clients with one id are two members: that is a fault, which must be visible. A client has the same host on
    # each broker, and another port.
    members: dict[tuple[str, str, int], GroupMember] = {}
    for row, body in bodies:
        seen: Counter[tuple[str, str]] = Counter()
        for each in body.connection_set:
            place = (each.client_id, each.client_addr.rpartition(":")[0])
            seen[place] += 1
            key = (*place, seen[place])
            if key in members:
                brokers = [*members[key].brokers, row.where]
                members[key] = msgspec.structs.replace(members[key], brokers=brokers)
            else:
                members[key] = GroupMember(
                    client_id=each.client_id,
                    address=each.client_addr,
                    language=each.language,
                    version=name_version(each.version),
                    brokers=[row.where],
                )
    return sorted(members.values(), key=lambda member: (member.client_id, member.address))


def _describe(data: SubscriptionData) -> Subscribed:
    return Subscribed(topic=data.topic, expression=data.sub_string or "*", kind=data.expression_type)


# --- what each is doing -----------------------------------------------------------------------------------------------


async def read_running(
    connection: Connection, rows: Sequence[BrokerRow], group: str, client_id: str, *, stack: bool = False
) -> ConsumerRunningInfo:
    """Ask a member, through one of the brokers it is connected to. Raises ErucaError if none can reach it."""
    header = ConsumerRunningInfoHeader(consumer_group=group, client_id=client_id, jstack_enable=stack)
    failure: ErucaError = NetError(f"no broker to reach {client_id} through")
    for row in rows:
        try:
            _, body = await connection.ask(
                row.address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout_ms=RELAY_MS
            )
        except ErucaError as error:
            failure = error
            continue
        if isinstance(body, ConsumerRunningInfo):
            return body
        failure = NetError(f"{client_id} answered without its state")
    raise failure


async def read_all_running(
    connection: Connection, rows: Sequence[BrokerRow], group: str, members: Sequence[GroupMember]
) -> tuple[dict[str, ConsumerRunningInfo], list[Problem]]:
    """Ask members what they are doing; returns the answers by client id."""
    by_name = {row.where: row for row in rows}

    async def ask(member: GroupMember) -> ConsumerRunningInfo:
        own = [by_name[name] for name in member.brokers if name in by_name]
        return await read_running(connection, own, group, member.client_id)

    found: dict[str, ConsumerRunningInfo] = {}
    problems = []
    answers = await gather_bounded(members, ask, at_once=_RELAYED_AT_ONCE)
    for member, answer in zip(members, answers, strict=True):
        if isinstance(answer, ErucaError):
            problems.append(Problem(where=member.client_id, address=member.address, error=str(answer.args[0])))
        else:
            found[member.client_id] = answer
    return found, problems


def find_differences(running: Mapping[str, ConsumerRunningInfo]) -> list[Difference]:
    """Return the subscriptions in which members differ."""
    own = {name: {data.topic: _describe(data) for data in info.subscription_set} for name, info in running.items()}
    topics = sorted({topic for table in own.values() for topic in table if not topic.startswith(RETRY_PREFIX)})
    rows = [Difference(topic=topic, by_member={name: own[name].get(topic) for name in sorted(own)}) for topic in topics]
    return [row for row in rows if len(set(row.by_member.values())) > 1]


def list_subscriptions(info: ConsumerRunningInfo) -> list[Subscribed]:
    """Return the subscriptions of one member."""
    return sorted((_describe(data) for data in info.subscription_set), key=lambda row: row.topic)
