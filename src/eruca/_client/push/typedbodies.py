"""Handlers with a typed body: the annotation of the parameter is the type that JSON bodies are decoded to."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, get_args, get_type_hints

import msgspec

from eruca._client.message import Decode, Message, decode_body
from eruca.errors import ConfigError
from eruca.serializers import json_deserializer


class DataclassBody(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class ModelBody(Protocol):
    """A Pydantic model."""

    @classmethod
    def model_validate_json(cls, json_data: bytes, /) -> Any:
        """Decode and validate a document."""


# What a handler may take instead of a Message.
Body = TypeVar("Body", bound=DataclassBody | ModelBody | msgspec.Struct)

_MARKS = ("__dataclass_fields__", "__struct_fields__", "model_validate_json", "__attrs_attrs__")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_Function: TypeAlias = Callable[..., Any]


def find_body_type(topic: str, function: _Function, batch: int) -> Any:
    """Return the type of the body that a handler takes, or None when it takes messages. Raises ConfigError."""
    parameters = _list_parameters(function)
    if not parameters:
        return None
    found = _resolve(topic, function, parameters[0])
    if batch > 1 and any(_is_body_type(kind) for kind in (found, *get_args(found))):
        raise ConfigError(
            f"the handler of {topic} takes {found}: with batch={batch} it must take list[Message]",
            hint="decode message.body in the handler, or use batch=1",
        )
    return found if _is_body_type(found) else None


def takes_message(function: _Function) -> bool:
    """Return whether a handler with a typed body has a second parameter, which is for the message."""
    required = [parameter for parameter in _list_parameters(function) if parameter.default is parameter.empty]
    return len(required) > 1


def make_typed(topic: str, function: _Function, batch: int, *, is_async: bool) -> _Function:
    """Return a function that takes a message and calls a handler with the decoded body.

    A handler that takes messages is returned unchanged. A body that cannot be decoded raises SerializationError, as
    `message.value` does; it counts as a failure of the handler.
    """
    kind = find_body_type(topic, function, batch)
    if kind is None:
        return function
    try:
        decode: Decode = json_deserializer(kind)
    except TypeError as error:
        raise ConfigError(
            f"the handler of {topic} takes {kind.__name__}, which JSON cannot be decoded to: {error}"
        ) from None
    with_message = takes_message(function)

    def call(message: Message) -> Any:
        body = decode_body(message, decode)
        return function(body, message) if with_message else function(body)

    async def call_async(message: Message) -> Any:
        return await call(message)

    return functools.wraps(function)(call_async if is_async else call)


def _list_parameters(function: _Function) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # it is written in C, or hides its signature
        return []
    return [parameter for parameter in parameters if parameter.kind in _POSITIONAL]


def _resolve(topic: str, function: _Function, parameter: inspect.Parameter) -> Any:
    """Return the annotation of a parameter as an object, even if it is given as text. Raises ConfigError."""
    text = parameter.annotation
    if not isinstance(text, str):
        return text
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"body": text}), _find_globals(function))["body"]
    except Exception as error:
        if "Message" in text:  # imported for type checkers only
            return Message
        raise ConfigError(
            f"the handler of {topic}: the annotation {text!r} of {parameter.name} cannot be resolved: {error}",
            hint="define or import the class at the top level of the module of the handler",
        ) from None


def _find_globals(function: Any) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not hasattr(function, "__globals__") and not inspect.ismethod(function):
        function = type(function).__call__
    names: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    return names


def _is_body_type(kind: Any) -> bool:
    return isinstance(kind, type) and any(hasattr(kind, mark) for mark in _MARKS)
