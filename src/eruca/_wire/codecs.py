"""How the body of a command becomes an object and back: one small codec for each kind of body.

A codec also gets the typed header, since some headers determine how the body is written, and the version of the peer:
the sender's when reading, the receiver's when writing.
"""

from __future__ import annotations

from typing import Any, Protocol

from eruca._wire import bodies
from eruca._wire.batch import BatchItem, decode_batch, encode_batch
from eruca._wire.codes import VERSION_ROUTE_STRICT_JSON
from eruca._wire.ext import Header
from eruca._wire.headers import RegisterBrokerHeader, RouteHeader, SendMessageHeader, SendMessageV2Header
from eruca._wire.record import Record, decode_record, decode_records, encode_record


class BodyCodec(Protocol):
    """Reads and writes one kind of body. An empty body is None and never reaches a codec."""

    @property
    def produces(self) -> tuple[type[Any], ...]:
        """The types `decode` may return."""

    def decode(self, data: bytes, header: Header | None, version: int) -> Any:
        """Read a body. Raises WireError."""

    def encode(self, value: Any, header: Header | None, version: int) -> bytes:
        """Write a body. Raises WireError."""


class JsonCodec:
    """A typed JSON body."""

    def __init__(self, body_type: type[bodies.JsonBody]) -> None:
        self._body_type = body_type
        self.produces: tuple[type[Any], ...] = (body_type,)

    def __repr__(self) -> str:
        return self._body_type.__name__

    def decode(self, data: bytes, header: Header | None, version: int) -> bodies.JsonBody:
        """Read the JSON."""
        return bodies.decode_json(self._body_type, data)

    def encode(self, value: bodies.JsonBody, header: Header | None, version: int) -> bytes:
        """Write the JSON."""
        return bodies.encode_json(value)


class RouteCodec:
    """A route: strict JSON for requesters that can read it or ask for it, bare broker ids for older ones."""

    produces: tuple[type[Any], ...] = (bodies.TopicRouteData,)

    def decode(self, data: bytes, header: Header | None, version: int) -> bodies.TopicRouteData:
        """Read either form."""
        return bodies.decode_json(bodies.TopicRouteData, data)

    def encode(self, value: bodies.TopicRouteData, header: Header | None, version: int) -> bytes:
        """Write the form the requester understands; `header` may be its request header."""
        asked = isinstance(header, RouteHeader) and bool(header.accept_standard_json_only)
        return bodies.encode_route(value, strict=asked or version >= VERSION_ROUTE_STRICT_JSON)


class HeartbeatCodec(JsonCodec):
    """A heartbeat: JSON, read in parts when it is large."""

    def __init__(self) -> None:
        super().__init__(bodies.HeartbeatData)

    def decode(self, data: bytes, header: Header | None, version: int) -> bodies.HeartbeatData:
        """Read the JSON."""
        return bodies.decode_heartbeat(data)


class RegistrationCodec:
    """A broker's registration: JSON, compressed when the header says so, without filter servers from old brokers."""

    produces: tuple[type[Any], ...] = (bodies.RegisterBrokerBody,)

    def decode(self, data: bytes, header: Header | None, version: int) -> bodies.RegisterBrokerBody:
        """Read whatever form the header and version announce."""
        return bodies.decode_registration(data, compressed=_is_compressed(header), version=version)

    def encode(self, value: bodies.RegisterBrokerBody, header: Header | None, version: int) -> bytes:
        """Write the form the header announces."""
        return bodies.encode_registration(value, compressed=_is_compressed(header))


def _is_compressed(header: Header | None) -> bool:
    return isinstance(header, RegisterBrokerHeader) and header.compressed


class ResetOffsetsCodec:
    """The offsets of a reset: a map by queue, or the list that C++ clients read."""

    produces: tuple[type[Any], ...] = (bodies.ResetOffsetBody,)

    def decode(self, data: bytes, header: Header | None, version: int) -> bodies.ResetOffsetBody:
        """Read either form."""
        return bodies.decode_reset_offsets(data)

    def encode(self, value: bodies.ResetOffsetBody, header: Header | None, version: int) -> bytes:
        """Write the map; `encode_reset_offsets` writes the list."""
        return bodies.encode_reset_offsets(value)


class OptionsCodec:
    """Options as `name=value` lines."""

    produces: tuple[type[Any], ...] = (dict,)

    def decode(self, data: bytes, header: Header | None, version: int) -> dict[str, str]:
        """Read the lines."""
        return bodies.decode_options(data)

    def encode(self, value: dict[str, str], header: Header | None, version: int) -> bytes:
        """Write the lines."""
        return bodies.encode_options(value)


class RecordsCodec:
    """Consecutive records, as in the commit log."""

    produces: tuple[type[Any], ...] = (list,)

    def decode(self, data: bytes, header: Header | None, version: int) -> list[Record]:
        """Read all of them."""
        return decode_records(data)

    def encode(self, value: list[Record], header: Header | None, version: int) -> bytes:
        """Write all of them."""
        return b"".join(map(encode_record, value))


class RecordCodec:
    """One record."""

    produces: tuple[type[Any], ...] = (Record,)

    def decode(self, data: bytes, header: Header | None, version: int) -> Record:
        """Read it."""
        return decode_record(data)

    def encode(self, value: Record, header: Header | None, version: int) -> bytes:
        """Write it."""
        return encode_record(value)


class PayloadCodec:
    """Application bytes."""

    produces: tuple[type[Any], ...] = (bytes,)

    def decode(self, data: bytes, header: Header | None, version: int) -> bytes:
        """Return them unchanged."""
        return data

    def encode(self, value: bytes, header: Header | None, version: int) -> bytes:
        """Return them unchanged."""
        return value


class SentBodyCodec:
    """The body of a send: a message's own bytes, or the items of a batch if the header says so."""

    produces: tuple[type[Any], ...] = (bytes, list)

    def decode(self, data: bytes, header: Header | None, version: int) -> bytes | list[BatchItem]:
        """Read the batch, or return the bytes unchanged."""
        if isinstance(header, SendMessageHeader | SendMessageV2Header) and header.batch:
            return decode_batch(data)
        return data

    def encode(self, value: bytes | list[BatchItem], header: Header | None, version: int) -> bytes:
        """Write the batch, or return the bytes unchanged."""
        return value if isinstance(value, bytes) else encode_batch(value)
