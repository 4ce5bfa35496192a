"""One command: a request or an answer, with a JSON or a binary header.

JSON header (type byte 0), an object with alphabetical keys and no nulls:

    {"code":0,"extFields":{"offset":"3"},"flag":1,"language":"JAVA","opaque":7,"remark":"...",
     "serializeTypeCurrentRPC":"JSON","version":407}

Binary header (type byte 1), big-endian:

    0     2       3         5         9      13               17+r          21+r
    +-----+-------+---------+---------+------+--------+--------+------+------+
    |code |language| version| opaque  | flag | length | remark |length| ext  |
    | i16 |   i8   |   i16  |  i32    | i32  |  i32   | r bytes|  i32 |      |
    +-----+-------+---------+---------+------+--------+--------+------+------+

ext entry, repeated to the end of the block:   key length i16 | key | value length i32 | value
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from eruca._ground.limits import BINARY_HEADER_BYTES_MIN, EXT_FIELDS_MAX, FRAME_BYTES_MAX, HEADER_BYTES_MAX
from eruca._wire.codes import FLAG_ONEWAY, FLAG_RESPONSE, VERSION_ANNOUNCED, Language, SerializeType
from eruca._wire.ext import Header, Int32, encode_ext
from eruca.errors import WireError

HeaderT = TypeVar("HeaderT", bound=Header)

if TYPE_CHECKING:
    Ext: TypeAlias = msgspec.Raw | dict[str, str] | Header | None
    Body: TypeAlias = bytes
    Kind: TypeAlias = SerializeType
else:
    # What the JSON decoder sees. extFields stays undecoded until its type is known. Body and kind are not in the
    # header; if a peer sends keys with these names, Raw makes the decoder skip them, and the frame overwrites them.
    Ext = Body = Kind = msgspec.Raw


class FrameError(WireError):
    """The bytes are not a frame we can accept; nothing after them can be trusted, so the connection must be closed."""

    #: The complete commands before the bad bytes in the same read: they are still answered.
    commands: list[Command]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.commands = []


class HeaderError(WireError):
    """A command is complete, but a field of its header is missing or has an invalid value."""


class Command(msgspec.Struct, gc=False):
    """A request or an answer. `ext` is raw if it came from a peer and typed if we made it."""

    code: Int32
    language: Language = Language.JAVA
    version: Int32 = 0
    opaque: Int32 = 0
    flag: Int32 = 0
    remark: str | None = None
    ext: Ext = msgspec.field(default=None, name="extFields")
    body: Body = b""
    serialization: Kind = SerializeType.JSON

    def __repr__(self) -> str:
        """Leave out the values of the ext map, which may be secrets, and the body."""
        names = list(self.ext) if isinstance(self.ext, dict) else type(self.ext).__name__
        return (
            f"Command(code={self.code}, opaque={self.opaque}, flag={self.flag}, remark={self.remark!r}, ext={names}, "
            f"body={len(self.body)} bytes)"
        )

    @property
    def is_response(self) -> bool:
        """True for an answer."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """True for a request that must not be answered."""
        return self.flag & FLAG_ONEWAY != 0

    @property
    def has_ext(self) -> bool:
        """True when the header has an ext map, even an empty one. A binary header always has one."""
        return self.ext is not None

    def decode_header(self, header_type: type[HeaderT]) -> HeaderT:
        """Read the ext map as a typed header. Raises HeaderError with the name of the field."""
        ext = self.ext
        if ext.__class__ is msgspec.Raw:
            decoder = _HEADER_DECODERS.get(header_type)
            if decoder is None:
                decoder = _HEADER_DECODERS[header_type] = msgspec.json.Decoder(header_type, strict=False)
            try:
                header: HeaderT = decoder.decode(ext)
                return header
            except (ValueError, RecursionError):
                pass  # perhaps only numbers instead of strings, or nulls: Java accepts those, so use the slow path
        elif isinstance(ext, header_type):
            return ext
        try:
            return msgspec.convert(self.ext_dict(), header_type, strict=False)
        except msgspec.ValidationError as error:
            raise HeaderError(f"{header_type.__name__}: {error}") from None

    def ext_dict(self) -> dict[str, str]:
        """Every ext field as the string Java would hold, which is what signatures are computed over."""
        ext = self.ext
        if ext is None:
            return {}
        if isinstance(ext, dict):
            return ext
        if isinstance(ext, Header):
            return encode_ext(ext, binary=self.serialization is SerializeType.ROCKETMQ)
        try:
            texts = _decode_texts(ext)
            if len(texts) <= EXT_FIELDS_MAX:
                return texts
        except (ValueError, RecursionError):
            pass  # perhaps only numbers instead of strings, or nulls
        try:
            fields = _decode_scalars(ext)
        except (ValueError, RecursionError) as error:
            raise HeaderError(f"extFields is not an object of strings: {error}") from None
        if len(fields) > EXT_FIELDS_MAX:
            raise HeaderError(f"extFields has {len(fields)} fields, at most {EXT_FIELDS_MAX} are allowed")
        return {key: _coerce_scalar(value) for key, value in fields.items() if value is not None}

    def answer(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        remark: str | None = None,
        language: Language = Language.PYTHON,
        version: int = VERSION_ANNOUNCED,
    ) -> Command:
        """Make the answer to this request: same opaque, same kind of header."""
        return Command(code, language, version, self.opaque, FLAG_RESPONSE, remark, header, body, self.serialization)


def make_request(
    code: int,
    header: Header | None = None,
    body: bytes = b"",
    *,
    opaque: int = 0,
    oneway: bool = False,
    language: Language = Language.PYTHON,
    version: int = VERSION_ANNOUNCED,
    serialization: SerializeType = SerializeType.JSON,
) -> Command:
    """Make a request of our own."""
    flag = FLAG_ONEWAY if oneway else 0
    return Command(code, language, version, opaque, flag, None, header, body, serialization)


# --- decoding -------------------------------------------------------------------------------------------------------


class _LooseEnvelope(msgspec.Struct):
    """The JSON header as peers other than Java may write it."""

    code: Int32
    language: Any = None
    version: Int32 | None = None
    opaque: Int32 | None = None
    flag: Int32 | None = None
    remark: Any = None
    ext: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="extFields")


_ENVELOPE_DECODER: Final = msgspec.json.Decoder(Command)
_LOOSE_DECODER: Final = msgspec.json.Decoder(_LooseEnvelope, strict=False)
_HEADER_DECODERS: Final[dict[type[Header], msgspec.json.Decoder[Any]]] = {}
_decode_texts: Final = msgspec.json.Decoder(dict[str, str]).decode
_decode_scalars: Final = msgspec.json.Decoder(dict[str, str | int | float | bool | None]).decode
_FIXED: Final = struct.Struct(">hbhiii")
_INT32: Final = struct.Struct(">i")
_KEY_LENGTH: Final = struct.Struct(">h")
_NULL: Final = msgspec.Raw(b"null")
# Looking up an enum member takes as long as reading a small header.
_JSON: Final = SerializeType.JSON


def decode_json_header(data: bytes) -> Command:
    """Read a JSON header; the body is the caller's to set. Raises FrameError."""
    try:
        command = _ENVELOPE_DECODER.decode(data)
    except (ValueError, RecursionError):
        command = _decode_loose_header(data)
    if command.ext == _NULL:
        command.ext = None
    command.serialization = _JSON
    return command


def _decode_loose_header(data: bytes) -> Command:
    """Read a JSON header tolerantly: nulls, numbers as strings, a language by number."""
    try:
        loose = _LOOSE_DECODER.decode(data)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the JSON header cannot be read: {error}") from None
    if loose.language is None:
        language = Language.JAVA
    elif isinstance(loose.language, int):
        language = Language.from_number(loose.language)
    else:
        language = Language(str(loose.language))
    remark = loose.remark
    if remark is not None and not isinstance(remark, str):
        remark = str(remark)
    ext = loose.ext if bytes(loose.ext) else None
    return Command(loose.code, language, loose.version or 0, loose.opaque or 0, loose.flag or 0, remark, ext)


def decode_binary_header(data: bytes) -> Command:
    """Read a binary header; the body is the caller's to set. Raises FrameError."""
    size = len(data)
    if size < BINARY_HEADER_BYTES_MIN:
        raise FrameError(f"a binary header has at least {BINARY_HEADER_BYTES_MIN} bytes, this one has {size}")
    code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(data)
    position = _FIXED.size
    if not 0 <= remark_bytes <= size - position - 4:
        raise FrameError(f"the remark length {remark_bytes} does not fit the header")
    try:
        remark = data[position : position + remark_bytes].decode() if remark_bytes else None
        position += remark_bytes
        (ext_bytes,) = _INT32.unpack_from(data, position)
        position += 4
        if ext_bytes != size - position:
            raise FrameError(f"the ext block length is {ext_bytes}, but {size - position} bytes are left")
        ext = _decode_binary_ext(data, position) if ext_bytes else {}
    except UnicodeDecodeError as error:
        raise FrameError(f"the binary header has text that is not UTF-8: {error.reason}") from None
    return Command(
        code, Language.from_number(language), version, opaque, flag, remark, ext, b"", SerializeType.ROCKETMQ
    )


def _decode_binary_ext(data: bytes, position: int) -> dict[str, str]:
    end = len(data)
    ext: dict[str, str] = {}
    count = 0
    while position < end:
        count += 1
        if count > EXT_FIELDS_MAX:
            raise FrameError(f"the ext block has more than {EXT_FIELDS_MAX} fields")
        if position + 2 > end:
            raise FrameError("the ext block ends inside a key length")
        (key_bytes,) = _KEY_LENGTH.unpack_from(data, position)
        key_end = position + 2 + key_bytes
        if key_bytes < 0 or key_end + 4 > end:
            raise FrameError(f"the ext key length {key_bytes} does not fit the ext block")
        (value_bytes,) = _INT32.unpack_from(data, key_end)
        value_start = key_end + 4
        if not 0 <= value_bytes <= end - value_start:
            raise FrameError(f"the ext value length {value_bytes} does not fit the ext block")
        key = data[position + 2 : key_end].decode()
        position = value_start + value_bytes
        ext[key] = data[value_start:position].decode()
    return ext


def _coerce_scalar(value: str | int | float | bool) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# --- encoding -------------------------------------------------------------------------------------------------------


class _Envelope(msgspec.Struct):
    """The JSON header as fastjson writes it: alphabetical, without nulls."""

    code: int
    extFields: Any
    flag: int
    language: str
    opaque: int
    remark: Any
    serializeTypeCurrentRPC: str
    version: int


_json_encode: Final = msgspec.json.Encoder().encode
# The start of a frame: its length without these four bytes, then the kind of its header (8 bits) and its length (24).
FRAME_PREFIX: Final = struct.Struct(">iI")


def encode_command(command: Command, header_bytes_max: int = HEADER_BYTES_MAX) -> bytes:
    """Write a command as one frame. Raises FrameError when a value does not fit its field."""
    binary = command.serialization == SerializeType.ROCKETMQ
    try:
        header = _encode_binary_header(command) if binary else _encode_json_header(command)
    except (struct.error, UnicodeEncodeError, OverflowError) as error:
        raise FrameError(f"the header cannot be written: {error}") from None
    body = command.body
    total = 4 + len(header) + len(body)
    if len(header) > header_bytes_max:
        raise FrameError(f"the header has {len(header)} bytes, at most {header_bytes_max} are allowed")
    if total + 4 > FRAME_BYTES_MAX:
        raise FrameError(f"the frame has {total + 4} bytes, at most {FRAME_BYTES_MAX} are allowed")
    return b"".join((FRAME_PREFIX.pack(total, len(header) | int(binary) << 24), header, body))


def escape_separators(text: bytes) -> bytes:
    """Escape the two line separators that fastjson escapes and JSON does not; they occur only inside strings."""
    if not text.isascii():
        return text.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return text


def quote_text(text: str) -> bytes:
    """A text for a hand-written header: in quotation marks, and escaped as in every other header."""
    return escape_separators(_json_encode(text))


def _encode_json_header(command: Command) -> bytes:
    ext: Any = command.ext
    if ext is None:
        ext = msgspec.UNSET
    elif isinstance(ext, Header):
        ext = encode_ext(ext)
    return escape_separators(
        _json_encode(
            _Envelope(
                command.code,
                ext,
                command.flag,
                command.language,
                command.opaque,
                msgspec.UNSET if command.remark is None else command.remark,
                "JSON",
                command.version,
            )
        )
    )


def _encode_binary_header(command: Command) -> bytes:
    texts = command.ext_dict()
    block = bytearray()
    for key, value in texts.items():
        raw_key = key.encode()
        raw_value = value.encode()
        block += _KEY_LENGTH.pack(len(raw_key))
        block += raw_key
        block += _INT32.pack(len(raw_value))
        block += raw_value
    remark = command.remark.encode() if command.remark else b""
    fixed = _FIXED.pack(
        command.code, command.language.number, command.version, command.opaque, command.flag, len(remark)
    )
    return b"".join((fixed, remark, _INT32.pack(len(block)), block))
