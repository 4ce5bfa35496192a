"""Bodies as values: JSON, and Avro or Protobuf for topics whose schemas are configured; otherwise text or bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from eruca._ground.limits import CONSOLE_BODY_DEPTH_MAX
from eruca._ground.nesting import nests_deeper
from eruca._schemas.bodies import Decode, describe


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """A body as a value."""

    # json, avro, protobuf, text or bytes.
    kind: str
    # Maps, lists and scalars; None if it is neither JSON nor has a schema.
    value: Any = None
    # Why it does not match the schema of its topic.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Schema:
    """How the bodies of some topics are decoded."""

    kind: str
    decode: Decode
    # It may ask a registry, so it must not run on the event loop.
    is_slow: bool = False


class Decoder:
    """Decodes bodies by their topic."""

    def __init__(self, schemas: Mapping[str, Schema] | None = None) -> None:
        # By the beginning of the name of a topic.
        self._schemas = dict(schemas or {})

    def find(self, topic: str) -> Schema | None:
        """Return the schema of a topic; None if its bodies are JSON, text or bytes."""
        prefix = max((each for each in self._schemas if topic.startswith(each)), key=len, default=None)
        return None if prefix is None else self._schemas[prefix]

    def decode(self, topic: str, body: bytes) -> Decoded:
        """Return the value of a body."""
        schema = self.find(topic)
        if schema is None:
            return decode_json(body)
        try:
            return Decoded(kind=schema.kind, value=_check_depth(schema.decode(body)))
        except Exception as error:  # libraries raise what they like for bytes that they cannot read
            return msgspec.structs.replace(decode_json(body), reason=f"{schema.kind}: {describe(error)}")


def decode_json(body: bytes) -> Decoded:
    """Return the value of a body that is a JSON object or array, or whether it is text."""
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            return Decoded(kind="json", value=_check_depth(msgspec.json.decode(body)))
        except (ValueError, RecursionError):
            pass  # it only begins like one, or nobody could read it
    try:
        body.decode()
    except UnicodeDecodeError:
        return Decoded(kind="bytes")
    return Decoded(kind="text")


def _check_depth(value: Any) -> Any:
    """Return a value. Raises ValueError if it is nested so deeply that looking into it would fail."""
    if nests_deeper(value, CONSOLE_BODY_DEPTH_MAX):
        raise ValueError(f"nested deeper than {CONSOLE_BODY_DEPTH_MAX} levels")
    return value
