"""What happened to a message: the steps that clients traced, and what the groups of its topic did with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.groupmembers import Membership, Subscribed, read_membership
from eruca._admin.progress import read_committed
from eruca._admin.storedmessages import StoredMessage
from eruca._admin.targets import BrokerRow
from eruca._ground.times import from_epoch_ms
from eruca._wire.bodies import MessageQueue
from eruca._wire.properties import TAGS
from eruca._wire.trace import (
    EndTransactionTrace,
    PubTrace,
    SubAfterTrace,
    SubBeforeTrace,
    TracedOutcome,
    TraceRecord,
    decode_traces,
    list_trace_keys,
)
from eruca.errors import ErucaError


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """What a group did with a message."""

    group: str
    # `consumed`, `filtered` (it went past it, and its subscription does not match), `waiting`, `broadcast` or `pull`
    # (members keep their own offsets), `unknown` (no offset, or see `reason`).
    outcome: str
    # Whether members are connected.
    online: bool
    # The offset of the group in the queue of the message.
    offset: int | None = None
    reason: str = ""


class TraceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a message, as a client traced it."""

    # `sent`, `transaction ended`, `delivered` or `consumed`.
    step: str
    at: datetime | None
    group: str
    topic: str
    message_id: str
    offset_id: str = ""
    tags: str = ""
    keys: str = ""
    client_host: str = ""
    store_host: str = ""
    # Bytes of the body.
    size: int = 0
    # How long it took; None if the client does not tell.
    seconds: float | None = None
    succeeded: bool | None = None
    # How many times it had been delivered before.
    tries: int = 0
    # The outcome of consuming or of a transaction, as clients name it: SUCCESS, TIME_OUT, COMMIT_MESSAGE, ...
    outcome: str = ""
    # Deliveries and their outcomes have the same.
    request_id: str = ""


# --- steps ------------------------------------------------------------------------------------------------------------


def find_steps(traces: Iterable[StoredMessage], wanted: str) -> list[TraceRow]:
    """Return the steps of one message, by its id or one of its keys, from trace messages; oldest first."""
    rows: list[TraceRow] = []
    for trace in traces:
        for record in decode_traces(trace.body):
            if wanted in list_trace_keys(record):
                rows.append(_describe(record, trace))
    unique = dict.fromkeys(msgspec.json.encode(row) for row in rows)
    by_text = {msgspec.json.encode(row): row for row in rows}
    found = [by_text[text] for text in unique]
    return sorted(found, key=lambda row: (row.at is None, row.at))


def _describe(record: TraceRecord, trace: StoredMessage) -> TraceRow:
    host = trace.born_host.rpartition(":")[0]
    match record:
        case PubTrace():
            return TraceRow(
                step="sent",
                at=from_epoch_ms(record.time_ms),
                group=record.group,
                topic=record.topic,
                message_id=record.message_id,
                offset_id=record.offset_message_id or "",
                tags=record.tags or "",
                keys=record.keys or "",
                client_host=record.client_host or host,
                store_host=record.store_host or "",
                size=record.body_bytes,
                seconds=record.cost_ms / 1000,
                succeeded=record.success,
            )
        case SubBeforeTrace():
            return TraceRow(
                step="delivered",
                at=from_epoch_ms(record.time_ms),
                group=record.group,
                topic="",
                message_id=record.message_id,
                keys=record.keys or "",
                client_host=host,
                tries=record.retries,
                request_id=record.request_id,
            )
        case SubAfterTrace():
            outcomes = {int(each): each.name for each in TracedOutcome}
            return TraceRow(
                step="consumed",
                at=trace.born_at if record.time_ms is None else from_epoch_ms(record.time_ms),
                group=record.group or "",
                topic="",
                message_id=record.message_id,
                keys=record.keys or "",
                client_host=host,
                seconds=record.cost_ms / 1000,
                succeeded=record.success,
                outcome=outcomes.get(record.outcome, str(record.outcome)),
                request_id=record.request_id,
            )
        case EndTransactionTrace():
            return TraceRow(
                step="transaction ended",
                at=from_epoch_ms(record.time_ms),
                group=record.group,
                topic=record.topic,
                message_id=record.message_id,
                tags=record.tags or "",
                keys=record.keys or "",
                client_host=host,
                store_host=record.store_host or "",
                outcome=record.state,
            )


# --- groups -----------------------------------------------------------------------------------------------------------


async def track(connection: Connection, rows: Sequence[BrokerRow], message: StoredMessage, group: str) -> Track:
    """Return what a group did with a message."""
    membership = await read_membership(connection, group, rows)
    online = bool(membership.members)
    if membership.model == "broadcasting":
        return Track(group=group, outcome="broadcast", online=online)
    own = [row for row in rows if row.broker == message.broker]
    try:
        offset = await _find_offset(connection, own, message, group)
    except ErucaError as error:
        return Track(group=group, outcome="unknown", online=online, reason=str(error))
    if offset is None:
        outcome = "pull" if membership.kind == "pull" else "unknown"
        return Track(group=group, outcome=outcome, online=online, reason="it has no offset in the queue")
    if offset <= message.offset:
        return Track(group=group, outcome="waiting", online=online, offset=offset)
    outcome = "filtered" if _is_filtered(membership, message) else "consumed"
    return Track(group=group, outcome=outcome, online=online, offset=offset)


async def _find_offset(
    connection: Connection, rows: Sequence[BrokerRow], message: StoredMessage, group: str
) -> int | None:
    for row in rows:
        committed = await read_committed(connection, row.address, group)
        return committed.get(MessageQueue("", message.queue, message.stored_in))
    return None


def _is_filtered(membership: Membership, message: StoredMessage) -> bool:
    """Whether the tags of the group's subscription leave a message out; other expressions are not evaluated."""
    for subscription in membership.subscriptions:
        if subscription.topic == message.stored_in and subscription.kind == "TAG":
            return not _takes(subscription, message.properties.get(TAGS, ""))
    return False


def _takes(subscription: Subscribed, tag: str) -> bool:
    wanted = {part.strip() for part in subscription.expression.split("||")}
    return "*" in wanted or tag in wanted
