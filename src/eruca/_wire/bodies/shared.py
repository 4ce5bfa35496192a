"""What every JSON body has in common: how it is read and written, queues as map keys, data versions."""

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
    """A body is not what its request code promises."""


def kept(value: Value) -> Value:
    """Give a field a default that is written all the same: Java omits nulls, never zeros or false."""
    return msgspec.field(default_factory=lambda: value)


def kept_list() -> list[Any]:
    """Give a list field an empty default that is written all the same."""
    return msgspec.field(default_factory=lambda: [])


def kept_dict() -> dict[Any, Any]:
    """Give a map field an empty default that is written all the same."""
    return msgspec.field(default_factory=lambda: {})


class JsonBody(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Base of bodies that are JSON. Fields are declared in the order of their names on the wire.

    Nearly every field has a default, as Java's beans have: peers of other languages and ages leave some out.
    """

    #: Java writes maps in this body whose keys are not strings, so reading may need the tolerant parser.
    has_odd_keys: ClassVar[bool] = False
    #: Keys of maps in this body are queues; only our own writer can write those.
    has_queue_keys: ClassVar[bool] = False


class _QueueKey:
    """What a decoder is told to expect where a queue is a map key: there it is a string that holds an object."""

    __slots__ = ()


class MessageQueue(msgspec.Struct, _QueueKey, frozen=True, order=True, rename="camel"):
    """One queue: a topic, a broker and a number."""

    broker_name: str
    queue_id: Int32
    topic: str


if TYPE_CHECKING:
    QueueKey: TypeAlias = MessageQueue
else:
    # msgspec has no objects as map keys. It does have types it does not know, which it hands to `_decode_key`.
    QueueKey = _QueueKey


class DataVersion(JsonBody):
    """How new a table is. Two tables are the same when both numbers are."""

    counter: Int64 = kept(0)
    timestamp: Int64 = kept(0)


_DECODERS: Final[dict[type[Any], msgspec.json.Decoder[Any]]] = {}
_encode: Final = msgspec.json.Encoder().encode
_decode_queue: Final = msgspec.json.Decoder(MessageQueue, strict=False).decode


def decode_json(body_type: type[BodyT], data: bytes) -> BodyT:
    """Read a typed body. Raises BodyError that names the type and the field."""
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
        # Java reads a null as "not there"; some clients send them for empty sets.
        if b"null" not in strict:
            raise
    return decoder.decode(_encode(_drop_nulls(fastjson.parse(strict))))


def _decode_key(expected: type[Any], text: Any) -> Any:
    """Read a queue in the place of a map key."""
    if expected is not _QueueKey:
        raise NotImplementedError
    try:
        return _decode_queue(text)
    except msgspec.DecodeError as error:
        # A plain ValueError, because msgspec adds the place to those.
        raise ValueError(f"a map key is not a queue ({error})") from None


def _drop_nulls(value: Any) -> Any:
    # The depth is bounded: fastjson.parse refuses what is deeper.
    if isinstance(value, dict):
        return {key: _drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_drop_nulls(item) for item in value if item is not None]
    return value


def encode_json(body: JsonBody) -> bytes:
    """Write a body so that Java, Go and Node clients read it: compact, integer keys quoted, queues as literals."""
    if body.has_queue_keys:
        return fastjson.write(body)
    return escape_separators(_encode(body))
