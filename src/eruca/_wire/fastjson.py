"""The JSON dialect of Java's fastjson: read what it writes, write what it reads.

fastjson writes map keys that are not strings without quotes, so its output is only almost JSON:

    {"offsetTable":{"T@G":{0:3,1:2}}}                                              bare integer keys
    {"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:{"maxOffset":2}}}   objects as keys

Such text is rewritten to strict JSON, with every odd key as a string, and then parsed by msgspec.
An object key becomes a string that holds its JSON text, keys sorted, which newer fastjson versions write themselves.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import msgspec

from eruca._ground.limits import JSON_DEPTH_MAX
from eruca.errors import WireError


class FastjsonError(WireError):
    """The text is neither JSON nor what fastjson writes."""


# --- reading --------------------------------------------------------------------------------------------------------

# A string, a structural character, a bare word, or an unterminated quote. The possessive repeats keep the match
# linear: without them a text of backslashes makes the engine try every split.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\]:,]|[^\s{}\[\]:,"]++|"', re.DOTALL)
_BARE_KEY: Final = re.compile(rb"-?[0-9]+|[A-Za-z_$][A-Za-z0-9_$]*")
_QUOTE, _COMMA, _COLON, _OPEN_LIST, _CLOSE_LIST, _OPEN, _CLOSE = b'",:[]{}'

_decode: Final = msgspec.json.Decoder().decode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


def parse(data: bytes) -> Any:
    """Parse JSON or fastjson text to plain Python objects; every map key is a string. Raises FastjsonError."""
    try:
        # A text without that many brackets cannot be nested deeper; others are measured while they are rewritten.
        if data.count(b"{") + data.count(b"[") <= JSON_DEPTH_MAX:
            return _decode(data)
    except (ValueError, RecursionError):
        pass  # perhaps only because of the odd keys
    strict = rewrite_to_strict(data)
    try:
        return _decode(strict)
    except (ValueError, RecursionError) as error:
        raise FastjsonError(f"not JSON: {error}") from None


def rewrite_to_strict(data: bytes) -> bytes:
    """Quote the keys that fastjson leaves bare. Other errors in the text are left alone.

    The nesting is bounded, and object keys hold scalars only: each level of keys within keys would double
    the escapes, so that a few hundred bytes could grow to gigabytes.
    """
    pieces: list[bytes] = []
    copied = 0  # everything before is in `pieces`
    nesting: list[int] = []
    expects_key = False
    key_start = -1  # where the current object key begins
    for match in _TOKEN.finditer(data):
        first = data[match.start()]
        if first == _COMMA:
            expects_key = bool(nesting) and nesting[-1] == _OPEN
        elif first == _COLON:
            expects_key = False
        elif first in (_OPEN, _OPEN_LIST):
            if key_start >= 0 or (expects_key and first == _OPEN_LIST):
                raise FastjsonError(f"a map key holds more than scalars (byte {match.start()})")
            if expects_key:
                key_start = match.start()
            nesting.append(first)
            if len(nesting) > JSON_DEPTH_MAX:
                raise FastjsonError(f"nested deeper than {JSON_DEPTH_MAX} (byte {match.start()})")
            expects_key = first == _OPEN
        elif first in (_CLOSE, _CLOSE_LIST):
            if not nesting or nesting.pop() != (_OPEN if first == _CLOSE else _OPEN_LIST):
                raise FastjsonError(f"{chr(first)!r} closes nothing (byte {match.start()})")
            expects_key = False
            if key_start >= 0:
                pieces.append(data[copied:key_start])
                pieces.append(_quote_object_key(data[key_start : match.end()]))
                copied = match.end()
                key_start = -1
        elif first == _QUOTE:
            if match.end() - match.start() == 1:
                raise FastjsonError(f"a string does not end (byte {match.start()})")
        elif expects_key and key_start < 0:
            word = match.group()
            if not _BARE_KEY.fullmatch(word):
                raise FastjsonError(f"{word[:20]!r} is not a map key (byte {match.start()})")
            pieces.append(data[copied : match.start()])
            pieces.append(b'"' + word + b'"')
            copied = match.end()
    if nesting:
        raise FastjsonError("the text ends inside an object or a list")
    pieces.append(data[copied:])
    return b"".join(pieces)


def _quote_object_key(text: bytes) -> bytes:
    try:
        fields = _decode(text)
    except (ValueError, RecursionError):
        try:
            fields = _decode(rewrite_to_strict(text))
        except (ValueError, RecursionError) as error:
            raise FastjsonError(f"an object key is not JSON: {error}") from None
    return _encode_sorted(_encode_sorted(fields).decode())


# --- writing --------------------------------------------------------------------------------------------------------


def write(value: object, *, bare_int_keys: bool = False, quote_object_keys: bool = False) -> bytes:
    """Write typed bodies and plain objects as fastjson does: compact, fields alphabetical, no nulls.

    Object keys are written as object literals unless `quote_object_keys`; integer keys are quoted unless
    `bare_int_keys`. Quoted integers and literal objects are what every Java version reads.
    """
    pieces: list[str] = []
    _Writer(pieces, bare_int_keys, quote_object_keys).write(value, 0)
    try:
        return "".join(pieces).encode()
    except UnicodeEncodeError as error:
        raise FastjsonError(f"a string cannot be written as UTF-8: {error.reason}") from None


def write_double(value: float) -> str:
    """Write a double as Java's Double.toString does: 0.0, 1.25, 1.0E10; NaN and infinities become null."""
    if not math.isfinite(value):
        return "null"
    magnitude = abs(value)
    if magnitude == 0 or 1e-3 <= magnitude < 1e7:
        text = repr(value)
        # Python uses exponents only below 1e-4 and from 1e16 on, so this is already plain.
        return text
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    exponent += len(digits) - 1
    mantissa = "".join(map(str, digits)).rstrip("0")
    return f"{'-' if sign else ''}{mantissa[0]}.{mantissa[1:] or '0'}E{exponent}"


def write_string(value: str) -> str:
    """Write a quoted string: raw UTF-8, control characters and the two line separators escaped."""
    try:
        text = _encode_sorted(value).decode()
    except UnicodeEncodeError as error:
        raise FastjsonError(f"a string cannot be written as UTF-8: {error.reason}") from None
    if "\u2028" in text or "\u2029" in text:
        text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return text


class _Writer:
    """Walks a value and appends its text. The style of keys is fixed."""

    __slots__ = ("_bare_int_keys", "_pieces", "_quote_object_keys")

    def __init__(self, pieces: list[str], bare_int_keys: bool, quote_object_keys: bool) -> None:
        self._pieces = pieces
        self._bare_int_keys = bare_int_keys
        self._quote_object_keys = quote_object_keys

    def write(self, value: object, depth: int) -> None:
        if depth > JSON_DEPTH_MAX:
            raise FastjsonError(f"nested deeper than {JSON_DEPTH_MAX}")
        if isinstance(value, msgspec.Struct):
            self._write_fields(value, depth)
        elif isinstance(value, dict):
            self._write_map(value, depth)
        elif isinstance(value, list | tuple | set | frozenset):
            self._write_list(value, depth)
        else:
            self._pieces.append(_write_scalar(value))

    def _write_fields(self, value: msgspec.Struct, depth: int) -> None:
        separator = "{"
        for attribute, name in _sort_fields(type(value)):
            field = getattr(value, attribute)
            if field is not None and field is not msgspec.UNSET:
                self._pieces.append(separator + name)
                self.write(field, depth + 1)
                separator = ","
        self._pieces.append("{}" if separator == "{" else "}")

    def _write_map(self, value: dict[Any, Any], depth: int) -> None:
        separator = "{"
        for key, item in value.items():
            if item is None:
                continue
            self._pieces.append(separator)
            self._write_key(key, depth)
            self._pieces.append(":")
            self.write(item, depth + 1)
            separator = ","
        self._pieces.append("{}" if separator == "{" else "}")

    def _write_key(self, key: object, depth: int) -> None:
        if isinstance(key, str):
            self._pieces.append(write_string(key.value if isinstance(key, Enum) else key))
        elif isinstance(key, int):
            self._pieces.append(str(int(key)) if self._bare_int_keys else f'"{int(key)}"')
        elif self._quote_object_keys:
            self._pieces.append(write_string(write(key).decode()))
        else:
            self.write(key, depth + 1)

    def _write_list(self, value: Any, depth: int) -> None:
        separator = "["
        for item in value:
            self._pieces.append(separator)
            self.write(item, depth + 1)
            separator = ","
        self._pieces.append("[]" if separator == "[" else "]")


def _write_scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return write_string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return write_double(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _encode_sorted(value).decode()
    raise FastjsonError(f"{type(value).__name__} has no JSON form")


_SORTED: Final[dict[type[msgspec.Struct], tuple[tuple[str, str], ...]]] = {}


def _sort_fields(struct_type: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Return the attributes of a type with their quoted names, in the order of the names."""
    fields = _SORTED.get(struct_type)
    if fields is None:
        pairs = zip(struct_type.__struct_encode_fields__, struct_type.__struct_fields__, strict=True)
        fields = _SORTED[struct_type] = tuple((attribute, f'"{name}":') for name, attribute in sorted(pairs))
    return fields
