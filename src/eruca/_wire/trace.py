"""Message trace: what a producer or consumer did with a message, as records in the body of a trace message.

A record is text. Fields end with 0x01, the record with 0x02, and unknown values are written as `null`.

Pub             | Pub | time | region | group | topic | message id | tags | keys | store host | body bytes | cost ms
                | kind | offset message id | success [| client host, in some older records]
SubBefore       | SubBefore | time | region | group | request id | message id | retries | keys
SubAfter        | SubAfter | request id | message id | cost ms | success | keys | outcome | time | group
EndTransaction  | EndTransaction | time | region | group | topic | message id | tags | keys | store host | kind
                | transaction id | state | from check

Older clients wrote less: a Pub without the offset message id, a SubAfter that ends with the keys or the outcome. There
is no escaping; tags, keys and names cannot contain the separators because message properties use the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Final, TypeAlias

import msgspec

from eruca._wire.properties import split_keys

_FIELD_END: Final = "\x01"
_RECORD_END: Final = b"\x02"
_NULL: Final = "null"


class TracedKind(IntEnum):
    """The kind of a traced message; 5.x clients write larger numbers too."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3


class TracedOutcome(IntEnum):
    """The result of a listener."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


class PubTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A message was sent, or one batch: then the message id is a comma-joined list."""

    time_ms: int
    region: str | None
    group: str
    topic: str
    message_id: str
    tags: str | None = None
    keys: str | None = None
    store_host: str | None
    body_bytes: int
    cost_ms: int
    kind: int = TracedKind.NORMAL
    offset_message_id: str | None
    success: bool = True
    #: Read from older records; none of ours has it.
    client_host: str | None = None


class SubBeforeTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A listener is about to receive a message. All messages of one call share the request id."""

    time_ms: int
    region: str | None
    group: str
    request_id: str
    message_id: str
    retries: int
    keys: str | None = None


class SubAfterTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A listener is done with a message; the request id is that of the SubBefore."""

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str | None = None
    outcome: int = TracedOutcome.SUCCESS
    #: The time and the group are missing from older records.
    time_ms: int | None
    group: str | None


class EndTransactionTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about a half message was sent to the broker."""

    time_ms: int
    region: str | None
    group: str
    topic: str
    message_id: str
    tags: str | None = None
    keys: str | None = None
    store_host: str | None
    kind: int = TracedKind.COMMIT
    transaction_id: str | None
    #: `COMMIT_MESSAGE`, `ROLLBACK_MESSAGE` or `UNKNOW`, as Java spells it.
    state: str
    from_check: bool


# Each declares its fields in the order in which they are written.
TraceRecord: TypeAlias = PubTrace | SubBeforeTrace | SubAfterTrace | EndTransactionTrace

_LONG_MAX: Final = 2**63 - 1
_NAMES: Final[Mapping[type[TraceRecord], str]] = {
    PubTrace: "Pub",
    SubBeforeTrace: "SubBefore",
    SubAfterTrace: "SubAfter",
    EndTransactionTrace: "EndTransaction",
}


# --- writing ------------------------------------------------------------------------------------------------------


def encode_trace(record: TraceRecord) -> bytes:
    """Write one record, with its end; a body is a sequence of such records."""
    fields = msgspec.structs.astuple(record)
    if isinstance(record, PubTrace) and record.client_host is None:
        fields = fields[:-1]
    elif isinstance(record, SubAfterTrace) and record.time_ms is None:
        fields = fields[:-2]
    return _FIELD_END.join([_NAMES[type(record)], *map(_write, fields)]).encode() + _RECORD_END


def _write(value: str | int | None) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{value:d}"


def list_trace_keys(record: TraceRecord) -> list[str]:
    """The keys under which a record's trace message is found: the message's id, and its own keys.

    A batch is found by the id its sender was given, all ids joined, as in Java; and by each id too.
    """
    ids = [record.message_id]
    if "," in record.message_id:
        ids += record.message_id.split(",")
    return ids + split_keys(record.keys or "")


# --- reading ------------------------------------------------------------------------------------------------------


def decode_traces(body: bytes) -> list[TraceRecord]:
    """Read the records of a trace message's body.

    Unknown kinds are left out, and so are records that are too short or have a field that is not a number: what one
    client wrote badly must not hide what the others did.
    """
    return list(_decode(body))


def _decode(body: bytes) -> Iterator[TraceRecord]:
    for record in body.split(_RECORD_END):
        for fields in _part(record.decode("utf-8", "replace").split(_FIELD_END)):
            try:
                yield _READERS[fields[0]](fields)
            except (KeyError, IndexError, ValueError):
                continue


def _part(fields: list[str]) -> Iterator[list[str]]:
    """Split joined records: on its cloud channel Java 4.9 leaves out the end of a SubAfter, and its last two fields."""
    while fields[0] == "SubAfter" and len(fields) > 7 and fields[7] in _READERS:
        yield fields[:7]
        fields = fields[7:]
    yield fields


def _read_pub(fields: list[str]) -> PubTrace:
    # Without the offset message id, success is one field earlier.
    short = len(fields) == 13
    return PubTrace(
        time_ms=_read_number(fields[1]),
        region=_read(fields[2]),
        group=fields[3],
        topic=fields[4],
        message_id=fields[5],
        tags=_read(fields[6]),
        keys=_read(fields[7]),
        store_host=_read(fields[8]),
        body_bytes=_read_number(fields[9]),
        cost_ms=_read_number(fields[10]),
        kind=_read_number(fields[11]),
        offset_message_id=None if short else _read(fields[12]),
        success=_read_bool(fields[12 if short else 13]),
        client_host=_read(fields[14]) if len(fields) > 14 else None,
    )


def _read_sub_before(fields: list[str]) -> SubBeforeTrace:
    return SubBeforeTrace(
        time_ms=_read_number(fields[1]),
        region=_read(fields[2]),
        group=fields[3],
        request_id=fields[4],
        message_id=fields[5],
        retries=_read_number(fields[6]),
        keys=_read(fields[7]),
    )


def _read_sub_after(fields: list[str]) -> SubAfterTrace:
    whole = len(fields) > 8
    return SubAfterTrace(
        request_id=fields[1],
        message_id=fields[2],
        cost_ms=_read_number(fields[3]),
        success=_read_bool(fields[4]),
        keys=_read(fields[5]),
        outcome=_read_number(fields[6]) if len(fields) > 6 else TracedOutcome.SUCCESS,
        time_ms=_read_number(fields[7]) if whole else None,
        group=fields[8] if whole else None,
    )


def _read_end_transaction(fields: list[str]) -> EndTransactionTrace:
    return EndTransactionTrace(
        time_ms=_read_number(fields[1]),
        region=_read(fields[2]),
        group=fields[3],
        topic=fields[4],
        message_id=fields[5],
        tags=_read(fields[6]),
        keys=_read(fields[7]),
        store_host=_read(fields[8]),
        kind=_read_number(fields[9]),
        transaction_id=_read(fields[10]),
        state=fields[11],
        from_check=_read_bool(fields[12]),
    )


def _read(field: str) -> str | None:
    return None if field == _NULL else field


def _read_number(field: str) -> int:
    """Return a number that Java could have written. Raises ValueError."""
    number = int(field)
    if not -_LONG_MAX - 1 <= number <= _LONG_MAX:
        raise ValueError(f"{field[:40]!r} is not a long")
    return number


def _read_bool(field: str) -> bool:
    return field.lower() == "true"


_READERS: Final[Mapping[str, Callable[[list[str]], TraceRecord]]] = {
    "Pub": _read_pub,
    "SubBefore": _read_sub_before,
    "SubAfter": _read_sub_after,
    "EndTransaction": _read_end_transaction,
}
