"""A message as one user sees it: decoded once, masked fields hidden before anything else looks at it.

Lists, details, filters, live tails and exports read this view and never the message itself, so a masked field cannot be
read, and cannot be guessed with a filter either.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any, Final

import msgspec

from eruca._admin.storedmessages import StoredMessage, make_row
from eruca._console.identity.masking import MASK, Mask
from eruca._console.messages.decoding import Decoded, Decoder
from eruca._ground.limits import CONSOLE_BODY_BYTES_MAX
from eruca._ground.printable import show_safely
from eruca._wire.properties import KEYS, TAGS

_PREVIEW_CHARS: Final = 160
_HEX_BYTES_MAX: Final = 16 * 1024
_HEX_COLUMNS: Final = 16
#: How a body can be shown.
FORMATS: Final = ("decoded", "text", "hex")


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A body in one format."""

    # `decoded`, `text` or `hex`, and what it was decoded as: json, avro, protobuf, text or bytes.
    format: str
    kind: str
    text: str
    # How many bytes the body has, and whether only the first are shown.
    size: int
    cut: bool = False
    # Why it is not decoded, if it should be.
    reason: str = ""
    masked: bool = False


class MessageView:
    """One message for one user."""

    def __init__(self, message: StoredMessage, mask: Mask, decoder: Decoder) -> None:
        self._message = message
        self._mask = mask
        self._decoder = decoder
        self.properties = mask.hide_properties(message.properties)
        self.tags = self.properties.get(TAGS, message.tags) if message.tags else ""
        hides_keys = KEYS in mask.properties and KEYS in message.properties
        self.keys = [MASK] if hides_keys else message.keys

    def __getitem__(self, name: str) -> Any:
        """Return a field by the name it has as JSON, or `decoded`; for filters."""
        match name:
            case "body":
                return self.text
            case "decoded":
                return self.decoded.value
            case "properties" | "tags" | "keys":
                return getattr(self, name)
            case "born_at" | "stored_at":
                moment = getattr(self._message, name)
                return None if moment is None else moment.isoformat()
            case _:
                return getattr(self._message, name)

    @property
    def facts(self) -> StoredMessage:
        """The message without its body, tags, keys and properties: where it is, when it was stored, by whom."""
        return msgspec.structs.replace(
            self._message, body=b"", tags=self.tags, keys=self.keys, properties=self.properties
        )

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self._message.body)

    @property
    def is_masked(self) -> bool:
        """Whether anything may be hidden from the user."""
        return not self._mask.is_empty

    @cached_property
    def decoded(self) -> Decoded:
        """The decoded body; its value is None if it cannot be decoded."""
        if self.size > CONSOLE_BODY_BYTES_MAX or self._message.body_is_packed:
            return Decoded(kind="bytes", value=None)
        found = self._decoder.decode(self._message.topic, self._message.body)
        return msgspec.structs.replace(found, value=self._mask.hide_value(found.value))

    async def prepare(self) -> None:
        """Decode the body in a thread if that may ask a registry; afterwards nothing of the view waits."""
        schema = self._decoder.find(self._message.topic)
        if schema is not None and schema.is_slow:
            await asyncio.to_thread(getattr, self, "decoded")

    @cached_property
    def _visible(self) -> bytes:
        """The body without masked fields."""
        return self._mask.hide_body(self._message.body)

    @cached_property
    def text(self) -> str | None:
        """The body as text; None if it is not text."""
        try:
            return self._visible[:CONSOLE_BODY_BYTES_MAX].decode()
        except UnicodeDecodeError as error:
            is_cut = len(self._visible) > CONSOLE_BODY_BYTES_MAX and error.start > CONSOLE_BODY_BYTES_MAX - 4
            return self._visible[: error.start].decode() if is_cut else None

    @property
    def preview(self) -> str:
        """The first characters of the body in one line."""
        decoded = self.decoded
        if decoded.kind in ("avro", "protobuf"):
            text = write_json(decoded.value, is_pretty=False)
        elif self._message.body_is_packed:
            return f"<{self.size} bytes, compressed>"
        elif self.text is None:
            return f"<{self.size} bytes>"
        else:
            text = self.text[: _PREVIEW_CHARS * 4]
        line = show_safely(" ".join(text.split()))
        return line if len(line) <= _PREVIEW_CHARS else f"{line[: _PREVIEW_CHARS - 1]}…"

    def show(self, format: str) -> Shown:
        """Return the body in a format."""
        kind, reason = self.decoded.kind, self.decoded.reason
        if format == "hex" or (self.text is None and self.decoded.value is None):
            data = self._visible[:_HEX_BYTES_MAX]
            cut = len(self._visible) > len(data)
            format, text = "hex", write_hex(data)
        elif format == "text" or self.decoded.value is None:
            format, text = (
                "text",
                self.text or self._visible[:CONSOLE_BODY_BYTES_MAX].decode("utf-8", "backslashreplace"),
            )
            cut = len(self._visible) > CONSOLE_BODY_BYTES_MAX
        else:
            format, text, cut = "decoded", write_json(self.decoded.value), False
        return Shown(
            format=format,
            kind=kind,
            text=show_safely(text, keep="\n\t"),
            size=self.size,
            cut=cut,
            reason=reason,
            masked=bool(self._mask.paths),
        )

    def make_row(self) -> dict[str, Any]:
        """Return the message as JSON, in the shape that `eruca message` and `eruca tail` print."""
        hidden = msgspec.structs.replace(
            self._message, body=self._visible, tags=self.tags, keys=self.keys, properties=self.properties
        )
        return make_row(hidden)


def write_json(value: Any, *, is_pretty: bool = True) -> str:
    """Return a decoded body as JSON."""
    data = msgspec.json.encode(value, enc_hook=str)
    return (msgspec.json.format(data, indent=2) if is_pretty else data).decode()


def write_hex(data: bytes) -> str:
    """Return bytes as lines of offset, hexadecimal digits and characters."""
    lines = []
    for start in range(0, len(data), _HEX_COLUMNS):
        part = data[start : start + _HEX_COLUMNS]
        digits = part.hex(" ")
        gap = len("00 ") * _HEX_COLUMNS // 2
        text = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in part)
        lines.append(f"{start:08x}  {digits[:gap]:<{gap}} {digits[gap:]:<{gap}} {text}")
    return "\n".join(lines)
