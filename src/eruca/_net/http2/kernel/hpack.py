"""Header blocks to fields (HPACK, RFC 7541).

A block is a list of these, each with numbers and texts of variable length:

    1xxxxxxx                       a field of the table
    01xxxxxx [name] value          a field that is added to the table
    001xxxxx                       the size of the table, at the start of a block
    000nxxxx [name] value          a field that is not added; n: nor by a proxy

A name is the index of a field with that name, or a text if the index is 0. Indexes up to 61 are those of the static
table, then the dynamic table follows, the newest field first. A text is its size and its bytes, or with the highest bit
of the size set, its Huffman code.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return, type-arg"
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Cython reads this branch
    import cython
else:
    from eruca._wire.kernel import nocython as cython

from eruca._net.http2.hpacktables import (
    CODES_BEGIN,
    CODES_END,
    NAME_BYTES,
    STATIC_FIELDS,
    SYMBOLS,
    SYMBOLS_BEGIN,
    TABLE_BYTES_MAX,
    CompressionError,
    judge_name,
)

if cython.compiled:
    from cython.cimports.eruca._wire.kernel.memory import *
else:
    from eruca._wire.kernel.memory import read_u32, take

compiled: bool = cython.compiled

# What a field takes in the table besides its texts.
_FIELD_BYTES = cython.declare(cython.int, 32)
_STATIC = cython.declare(cython.Py_ssize_t, len(STATIC_FIELDS))
_LIMIT_MAX = cython.declare(cython.Py_ssize_t, TABLE_BYTES_MAX)
# Larger numbers are an attack: no table and no block is as large.
_NUMBER_MAX = cython.declare(cython.Py_ssize_t, 1 << 28)
_ONES = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_BITS_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFFFF)
_CODE_BITS_MIN = cython.declare(cython.int, 5)
_CODE_BITS_MAX = cython.declare(cython.int, 30)

_NAME_BYTES = cython.declare(bytes, NAME_BYTES)
_CODES_END = cython.declare(bytes, CODES_END)
_CODES_BEGIN = cython.declare(bytes, CODES_BEGIN)
_SYMBOLS_BEGIN = cython.declare(bytes, SYMBOLS_BEGIN)
_SYMBOLS = cython.declare(bytes, SYMBOLS)

#: What is wrong with a request whose fields are larger than allowed.
TOO_LARGE = "its headers are too large"


@cython.cclass
class HeaderDecoder:
    """Decodes the header blocks of one connection, in order."""

    # Fields of the dynamic table, the newest last: name, value, bytes, what is wrong with the name and with both.
    _fields: list
    _bytes: cython.Py_ssize_t
    _limit: cython.Py_ssize_t
    # Where the next byte is, and whether the text before it is free of control characters.
    _at: cython.Py_ssize_t
    _is_clean: cython.bint

    def __init__(self) -> None:
        self._fields = []
        self._bytes, self._limit = 0, _LIMIT_MAX
        self._at, self._is_clean = 0, True

    def count(self) -> int:
        """How many fields the dynamic table has."""
        return len(self._fields)

    def decode(self, block: bytes, bytes_max: cython.Py_ssize_t) -> tuple[dict[str, str], str]:
        """Decode a block; return its fields, and what is wrong with the request, which may be nothing.

        Values of one name are joined by commas. Fields that would make more than `bytes_max` are left out. Raises
        CompressionError if it cannot be decoded: then no later block can be decoded either.
        """
        p: cython.p_const_uchar = block
        end: cython.Py_ssize_t = len(block)
        fields: dict[str, str] = {}
        problem: str = ""
        size: cython.Py_ssize_t = 0
        is_begun: cython.bint = False
        has_regular: cython.bint = False
        byte: cython.int
        self._at = 0
        while self._at < end:
            byte = p[self._at]
            if byte & 0xE0 == 0x20:
                if is_begun:
                    raise CompressionError("the size of the table changes in the middle of a block")
                self._resize(self._read_number(p, end, 0x1F))
                continue
            is_begun = True
            if byte & 0x80:
                field = self._find(self._read_number(p, end, 0x7F))
            elif byte & 0x40:
                field = self._read_field(p, end, 0x3F)
                self._add(field)
            else:
                field = self._read_field(p, end, 0x0F)
            size += field[2]
            if size > bytes_max:
                problem = TOO_LARGE
                continue
            name: str = field[0]
            if field[4]:
                problem = problem or field[4]
            elif name[0] != ":":
                has_regular = True
            elif has_regular or name in fields:
                problem = problem or "a pseudo header comes twice or too late"
            if name in fields:
                fields[name] += "," + field[1]
            else:
                fields[name] = field[1]
        return fields, problem

    # -- the table ---------------------------------------------------------------------------------------------------

    @cython.cfunc
    def _find(self, index: cython.Py_ssize_t) -> tuple:
        """Return a field of the static or the dynamic table."""
        if 0 < index <= _STATIC:
            return STATIC_FIELDS[index - 1]
        count: cython.Py_ssize_t = len(self._fields)
        index -= _STATIC
        if 0 < index <= count:
            return self._fields[count - index]
        raise CompressionError("an index is beyond the end of the table")

    @cython.cfunc
    def _add(self, field: tuple) -> cython.int:
        """Add a field to the dynamic table; the oldest ones make room."""
        size: cython.Py_ssize_t = field[2]
        self._evict(self._limit - size)
        if size <= self._limit:
            self._fields.append(field)
            self._bytes += size
        return 0

    @cython.cfunc
    def _evict(self, limit: cython.Py_ssize_t) -> cython.int:
        """Remove the oldest fields until the others take at most this much."""
        gone: cython.Py_ssize_t = 0
        count: cython.Py_ssize_t = len(self._fields)
        while gone < count and self._bytes > limit:
            self._bytes -= cython.cast(cython.Py_ssize_t, self._fields[gone][2])
            gone += 1
        if gone > 0:
            del self._fields[:gone]
        return 0

    @cython.cfunc
    def _resize(self, limit: cython.Py_ssize_t) -> cython.int:
        if limit > _LIMIT_MAX:
            raise CompressionError("the table is larger than allowed")
        self._limit = limit
        self._evict(limit)
        return 0

    # -- numbers and texts -------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1)
    def _read_number(self, p: cython.p_const_uchar, end: cython.Py_ssize_t, mask: cython.int) -> cython.Py_ssize_t:
        """Read a number whose first byte has the bits of a mask; the caller knows that there is one."""
        number: cython.Py_ssize_t = p[self._at] & mask
        self._at += 1
        if number < mask:
            return number
        shift: cython.int = 0
        byte: cython.Py_ssize_t = 0x80
        while byte & 0x80:
            if self._at >= end:
                raise CompressionError("a number is cut off")
            byte = p[self._at]
            self._at += 1
            number += (byte & 0x7F) << shift
            shift += 7
            if number > _NUMBER_MAX or shift > 35:
                raise CompressionError("a number is too large")
        return number

    @cython.cfunc
    def _read_field(self, p: cython.p_const_uchar, end: cython.Py_ssize_t, mask: cython.int) -> tuple:
        """Read a field that is not in the table, though its name may be."""
        size: cython.Py_ssize_t = _FIELD_BYTES
        text: bytes
        name: str
        wrong: str
        index: cython.Py_ssize_t = self._read_number(p, end, mask)
        if index > 0:
            known: tuple = self._find(index)
            name, wrong = known[0], known[3]
            size += len(name)
        else:
            text = self._read_text(p, end)
            name = text.decode("latin-1")
            wrong = judge_name(name, _is_name(text, len(text)))
            size += len(text)
        text = self._read_text(p, end)
        size += len(text)
        value: str = text.decode("utf-8", "replace")
        if wrong:
            return name, value, size, wrong, wrong
        if not self._is_clean:
            return name, value, size, "", "a header has a control character"
        if name == "te" and value != "trailers":
            return name, value, size, "", "te is not trailers"
        return name, value, size, "", ""

    @cython.cfunc
    def _read_text(self, p: cython.p_const_uchar, end: cython.Py_ssize_t) -> bytes:
        """Read a text."""
        if self._at >= end:
            raise CompressionError("a field is cut off")
        is_coded: cython.bint = p[self._at] & 0x80 != 0
        size: cython.Py_ssize_t = self._read_number(p, end, 0x7F)
        begin: cython.Py_ssize_t = self._at
        if size > end - begin:
            raise CompressionError("a text is cut off")
        self._at += size
        text: bytes = _decode_huffman(p, begin, self._at) if is_coded else take(p, begin, self._at)
        self._is_clean = _is_value(text, len(text))
        return text


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_name(p: cython.p_const_uchar, end: cython.Py_ssize_t) -> cython.bint:
    """Whether a name consists of the characters of lower-case names."""
    allowed: cython.p_const_uchar = _NAME_BYTES
    at: cython.Py_ssize_t = 0
    while at < end:
        if allowed[p[at]] == 0:
            return False
        at += 1
    return end > 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_value(p: cython.p_const_uchar, end: cython.Py_ssize_t) -> cython.bint:
    """Whether a value has no NUL, CR and LF."""
    at: cython.Py_ssize_t = 0
    while at < end:
        if p[at] == 0 or p[at] == 10 or p[at] == 13:
            return False
        at += 1
    return True


@cython.cfunc
def _decode_huffman(p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> bytes:
    """Decode a Huffman code.

    It is a canonical code: as numbers, codes of a length follow each other, and all of them are less than the longer
    ones, if these are cut. So the length of the next code is found by comparing 32 bits with the end of each length.
    """
    text: bytearray = bytearray((end - at) * 8 // _CODE_BITS_MIN + 1)
    q: cython.p_uchar = text
    ends: cython.p_const_uchar = _CODES_END
    begins: cython.p_const_uchar = _CODES_BEGIN
    starts: cython.p_const_uchar = _SYMBOLS_BEGIN
    symbols: cython.p_const_uchar = _SYMBOLS
    to: cython.Py_ssize_t = 0
    bits: cython.ulonglong = 0
    count: cython.int = 0
    length: cython.int
    ahead: cython.ulonglong
    while True:
        while count < 32 and at < end:
            bits = ((bits << 8) | p[at]) & _BITS_MASK
            count += 8
            at += 1
        # What follows the end is ones, as the padding is.
        if count >= 32:
            ahead = (bits >> (count - 32)) & _ONES
        else:
            ahead = ((bits << (32 - count)) | (_ONES >> count)) & _ONES
        length = _CODE_BITS_MIN
        while length <= _CODE_BITS_MAX and ahead >= read_u32(ends, length * 4):
            length += 1
        if length > count or length > _CODE_BITS_MAX:
            break
        q[to] = symbols[starts[length] + (ahead >> (32 - length)) - read_u32(begins, length * 4)]
        to += 1
        count -= length
    if count >= 8 or ahead != _ONES:
        raise CompressionError("a Huffman code is wrong")
    return take(q, 0, to)
