"""Bodies of messages from objects and back, for `Producer(serializer=...)` and `Consumer(deserializer=...)`.

A serializer is any callable that takes an object and returns bytes. A deserializer is any callable that takes the bytes
of a body and returns an object. The functions here return the usual ones.

>>> producer = Producer("127.0.0.1:9876", group="shop", serializer=json_serializer())
>>> await producer.send("orders", Order(id=7, lines=[...]))
>>> consumer = Consumer("127.0.0.1:9876", group="billing", subscribe="orders", deserializer=json_deserializer(Order))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import msgspec

from eruca._ground.badjson import BAD_JSON
from eruca.errors import SerializationError

__all__ = [
    "Deserializer",
    "Serializer",
    "json_deserializer",
    "json_serializer",
    "msgpack_deserializer",
    "msgpack_serializer",
    "text_deserializer",
    "text_serializer",
]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Given = TypeVar("Given", default=Any)
    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    Given, T = TypeVar("Given"), TypeVar("T")

#: Turns an object into the bytes of a body.
Serializer: TypeAlias = Callable[[Given], bytes]
#: Turns the bytes of a body into an object.
Deserializer: TypeAlias = Callable[[bytes], T]

# What objects and documents raise that do not fit; a ValidationError of Pydantic is a ValueError.
_NOT_WRITABLE = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)
_NOT_READABLE = (*BAD_JSON, TypeError, ValueError, RecursionError)


def json_serializer() -> Serializer:
    """Return a serializer that writes JSON.

    It takes what msgspec takes (dict, list, str, numbers, dataclasses, attrs classes, msgspec structs, datetime, UUID,
    Decimal, enums, ...) and Pydantic models, at any depth. It raises SerializationError for anything else.
    """
    encode = msgspec.json.Encoder(enc_hook=_dump_model).encode

    def serialize(value: Any) -> bytes:
        try:
            if hasattr(value, "model_dump_json"):
                return bytes(value.model_dump_json(), "utf-8")
            return encode(value)
        except _NOT_WRITABLE as error:
            raise _explain_value(value, "JSON", error) from error

    return serialize


@overload
def json_deserializer() -> Deserializer[Any]: ...
@overload
def json_deserializer(type: type[T]) -> Deserializer[T]: ...
@overload
def json_deserializer(type: Any) -> Deserializer[Any]: ...
def json_deserializer(type: Any = Any) -> Deserializer[Any]:
    """Return a deserializer that reads JSON.

    With a `type` (a dataclass, an attrs class, a msgspec struct, a Pydantic model, a TypedDict, `list[Order]`, ...), it
    checks that the document fits and returns that type. Without one it returns dicts, lists, texts and numbers. It
    raises SerializationError for a body that is not JSON or does not fit.
    """
    validate = getattr(type, "model_validate_json", None)
    decode = validate if validate is not None else _make_decoder(msgspec.json.Decoder, type)
    return _make_deserializer(decode, "JSON", type)


def msgpack_serializer() -> Serializer:
    """Return a serializer that writes MessagePack; it takes the same objects as `json_serializer`."""
    encode = msgspec.msgpack.Encoder(enc_hook=_dump_model).encode

    def serialize(value: Any) -> bytes:
        try:
            return encode(value)
        except _NOT_WRITABLE as error:
            raise _explain_value(value, "MessagePack", error) from error

    return serialize


@overload
def msgpack_deserializer() -> Deserializer[Any]: ...
@overload
def msgpack_deserializer(type: type[T]) -> Deserializer[T]: ...
@overload
def msgpack_deserializer(type: Any) -> Deserializer[Any]: ...
def msgpack_deserializer(type: Any = Any) -> Deserializer[Any]:
    """Return a deserializer that reads MessagePack; `type` is as for `json_deserializer`."""
    return _make_deserializer(_make_decoder(msgspec.msgpack.Decoder, type), "MessagePack", type)


def text_serializer(encoding: str = "utf-8") -> Callable[[str], bytes]:
    """Return a serializer of texts. It raises SerializationError for what is not a str or cannot be encoded."""

    def serialize(value: str) -> bytes:
        if not isinstance(value, str):
            raise SerializationError(f"a body must be a str here, not {type(value).__name__}: {value!r:.80}")
        try:
            return value.encode(encoding)
        except UnicodeError as error:
            raise _explain_value(value, f"{encoding} text", error) from error

    return serialize


def text_deserializer(encoding: str = "utf-8") -> Deserializer[str]:
    """Return a deserializer of texts. It raises SerializationError for a body that is not text in this encoding."""

    def deserialize(body: bytes) -> str:
        try:
            return body.decode(encoding)
        except UnicodeError as error:
            raise SerializationError(f"the body is not {encoding} text: {error}") from error

    return deserialize


def _make_decoder(decoder: Any, type: Any) -> Callable[[bytes], Any]:
    """The `decode` of a msgspec decoder. Raises TypeError for a type that msgspec cannot read."""
    decode: Callable[[bytes], Any] = decoder(type, dec_hook=_load_model).decode
    return decode


def _make_deserializer(decode: Callable[[bytes], Any], form: str, type: Any) -> Deserializer[Any]:
    what = form if type is Any else f"{form} of {getattr(type, '__name__', type)}"

    def deserialize(body: bytes) -> Any:
        try:
            return decode(body)
        except _NOT_READABLE as error:
            raise SerializationError(f"the body is not {what}: {error}") from error

    return deserialize


def _dump_model(value: Any) -> Any:
    """Turn a Pydantic model inside of something else into what msgspec can write."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"objects of type {type(value).__name__} are not supported")


def _load_model(wanted: Any, found: Any) -> Any:
    """Turn what msgspec has read into a Pydantic model inside of something else."""
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(found)
    raise TypeError(f"objects of type {wanted.__name__} are not supported")


def _explain_value(value: Any, form: str, error: Exception) -> SerializationError:
    return SerializationError(f"{type(value).__name__} cannot be written as {form}: {error}")
