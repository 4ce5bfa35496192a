"""Bodies as values: JSON, and Avro or Protobuf for topics whose schemas are configured; otherwise text or bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

Decode: TypeAlias = Callable[[bytes], Any]


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """A body as a value."""

    # json, avro, protobuf, text or bytes.
    kind: str
    # Maps, lists and scalars; None if it is neither JSON nor has a schema.
    value: Any = None
    # Why it does not match the schema of its topic.
    reason: str = ""


class Decoder:
    """Decodes bodies by their topic."""

    def __init__(self, schemas: Mapping[str, tuple[str, Decode]] | None = None) -> None:
        # By prefix of a topic: the kind, and a function that raises ValueError for a body that does not match.
        self._schemas = dict(schemas or {})

    def decode(self, topic: str, body: bytes) -> Decoded:
        """Return the value of a body."""
        reason = ""
        prefix = max((each for each in self._schemas if topic.startswith(each)), key=len, default=None)
        if prefix is not None:
            kind, decode = self._schemas[prefix]
            try:
                return Decoded(kind=kind, value=decode(body))
            except Exception as error:  # noqa: BLE001 - libraries raise what they like for bytes they cannot read
                reason = f"it is not {kind}: {' '.join(str(error).split())[:200]}"
        return msgspec.structs.replace(decode_json(body), reason=reason)


def decode_json(body: bytes) -> Decoded:
    """Return the value of a body that is JSON, or whether it is text. A scalar such as `5` is text."""
    if body[:1] in b"{[ \t\r\n" and body:
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            pass
        else:
            if isinstance(value, dict | list):
                return Decoded(kind="json", value=value)
    try:
        body.decode()
    except UnicodeDecodeError:
        return Decoded(kind="bytes")
    return Decoded(kind="text")
