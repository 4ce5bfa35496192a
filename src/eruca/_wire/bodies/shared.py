"""What all JSON bodies have in common: how they are read and written, queues as map keys, data versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar

import msgspec

from eruca._wire import fastjson
from eruca._wire.command import escape_separators
from eruca._wire.ext import Int32, Int64
from eruca.errors import WireError

Value = TypeVar("Value")
BodyT = TypeVar("BodyT", bound="JsonBody")


class BodyError(WireError):
    """A body is not of the type its request code requires."""


def kept(value: Value, name: str | None = None) -> Value:
    """Declare a default that is written anyway: Java omits nulls, never zeros or false."""
    return msgspec.field(default_factory=lambda: value, name=name)


def kept_list() -> list[Any]:
    """Declare an empty list as a default that is written anyway."""
    return msgspec.field(default_factory=lambda: [])


def kept_dict() -> dict[Any, Any]:
    """Declare an empty map as a default that is written anyway."""
    return msgspec.field(default_factory=lambda: {})


class JsonBody(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Base of JSON bodies. Fields are declared in the order of their names on the wire.

    Nearly every field has a default, as Java's beans have: peers in other languages and older ones omit some.
    """

    #: Java writes maps with keys that are not strings in this body, so reading may need the tolerant parser.
    has_odd_keys: ClassVar[bool] = False
    #: Maps in this body have queues as keys; only our own writer can write those.
    has_queue_keys: ClassVar[bool] = False


class _QueueKey:
    """The type a decoder expects where a queue is a map key: a string that holds an object."""

    __slots__ = ()


class MessageQueue(msgspec.Struct, _QueueKey, frozen=True, order=True, rename="camel"):
    """One queue: a topic, a broker and a number."""

    broker_name: str
    queue_id: Int32
    topic: str


if TYPE_CHECKING:
    QueueKey: TypeAlias = MessageQueue
else:
    # msgspec has no objects as map keys. It passes types it does not know to `_decode_key`.
    QueueKey = _QueueKey


class DataVersion(JsonBody):
    """The version of a table. Two tables are the same when both numbers are equal."""

    counter: Int64 = kept(0)
    timestamp: Int64 = kept(0)


_DECODERS: Final[dict[type[Any], msgspec.json.Decoder[Any]]] = {}
_encode: Final = msgspec.json.Encoder().encode
_decode_queue: Final = msgspec.json.Decoder(MessageQueue, strict=False).decode


def decode_json(body_type: type[BodyT], data: bytes) -> BodyT:
    """Read a typed body. Raises BodyError with the type and the field."""
    decoder = _DECODERS.get(body_type)
    if decoder is None:
        decoder = _DECODERS[body_type] = msgspec.json.Decoder(body_type, strict=False, dec_hook=_decode_key)
    try:
        body: BodyT = _decode_body(decoder, data, body_type.has_odd_keys)
        return body
    except (ValueError, RecursionError, fastjson.FastjsonError) as error:
        raise BodyError(f"{body_type.__name__}: {error}") from None


def _decode_body(decoder: msgspec.json.Decoder[Any], data: bytes, has_odd_keys: bool) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        pass  # JSON, but not of this shape
    except msgspec.DecodeError:
        if not has_odd_keys:
            raise
    strict = fastjson.rewrite_to_strict(data) if has_odd_keys else data
    try:
        return decoder.decode(strict)
    except msgspec.ValidationError:
        # Java treats null as absent; some clients send it for empty sets.
        if b"null" not in strict:
            raise
    return decoder.decode(_encode(_drop_nulls(fastjson.parse(strict))))


def _decode_key(expected: type[Any], text: Any) -> Any:
    """Read a queue that is a map key."""
    if expected is not _QueueKey:
        raise NotImplementedError
    try:
        return _decode_queue(text)
    except msgspec.DecodeError as error:
        # A plain ValueError, because msgspec adds the place to it.
        raise ValueError(f"a map key is not a queue ({error})") from None


def _drop_nulls(value: Any) -> Any:
    # The depth is bounded: fastjson.parse refuses deeper nesting.
    if isinstance(value, dict):
        return {key: _drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_drop_nulls(item) for item in value if item is not None]
    return value


def encode_json(body: JsonBody) -> bytes:
    """Write a body that Java, Go and Node clients can read: compact, integer keys quoted, queues as literals."""
    if body.has_queue_keys:
        return fastjson.write(body)
    return escape_separators(_encode(body))
