"""Rows to messages: from the buffers of an Arrow batch to batch bodies.

`pack_rows` writes the layout drawn in `wire.batch`, one message per row. Its caller passes fields for the properties:
each field writes one property of a row, several, or none. `spark.sink.encoding` turns columns into fields and knows how
large a buffer must be.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Cython reads this branch
    import cython
else:
    from eruca._wire.kernel import nocython as cython

if cython.compiled:
    from cython.cimports.eruca._wire.kernel.memory import *
    from cython.cimports.eruca._wire.kernel.views import *
else:
    from eruca._wire.kernel.memory import copy, find_byte, hash_text, write_number, write_u32
    from eruca._wire.kernel.views import open_to_read, open_to_write

compiled: bool = cython.compiled

# Why a row cannot be a message.
GOOD = 0
NO_BODY = 1
BODY_TOO_LARGE = 2
HAS_SEPARATOR = 3
HAS_BLANK = 4
PROPERTIES_TOO_LARGE = 5

# Bytes of a message in a batch besides its body and its properties.
ITEM_BYTES = 22
_HEAD_BYTES = cython.declare(cython.int, 20)
_NAMED = cython.declare(cython.int, 1)
_NEXT = cython.declare(cython.int, 2)
_SPACE = cython.declare(cython.int, 32)
_INT_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_WRAP = cython.declare(cython.longlong, 0x100000000)
# Returned by a field instead of the position of the next byte.
_NO_ROOM = cython.declare(cython.int, -1)
_SEPARATOR = cython.declare(cython.int, -3)
_BLANK = cython.declare(cython.int, -4)
_HEX = b"0123456789ABCDEF"


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _has_byte(p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t, byte: cython.int) -> cython.bint:
    return find_byte(p, at, at + n, byte) < at + n


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _has_separator(p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.bint:
    return _has_byte(p, at, n, _NAMED) or _has_byte(p, at, n, _NEXT)


@cython.cfunc
@cython.inline
def _put_text(
    text: bytes, q: cython.p_uchar, to: cython.Py_ssize_t, room: cython.Py_ssize_t, more: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write the beginning of a property, if there is room for it and for `more` further bytes; return as `put` does."""
    p: cython.p_const_uchar = text
    n: cython.Py_ssize_t = len(text)
    return copy(q, to, p, 0, n) if to + n + more <= room else _NO_ROOM


# -- fields ------------------------------------------------------------------------------------------------------------


@cython.cclass
class Texts:
    """A column of text or bytes: its offsets, its bytes, and which rows have one (None: all)."""

    offsets: cython.const[cython.int][::1]
    data: cython.const[cython.uchar][::1]
    valid: cython.const[cython.uchar][::1]
    all_valid: cython.bint

    def __init__(self, offsets: Any, data: Any, valid: Any = None) -> None:
        self.offsets = memoryview(offsets)
        # Its address is taken, so it must have at least one byte.
        self.data = memoryview(data if len(data) else b"\0")
        self.all_valid = valid is None
        self.valid = memoryview(b"\0" if valid is None else valid)

    @cython.cfunc
    @cython.inline
    def size_of(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the number of bytes of a row; -1 for a null."""
        if not self.all_valid and not self.valid[row]:
            return -1
        return self.offsets[row + 1] - self.offsets[row]

    def count_bytes(self, begin: cython.Py_ssize_t, end: cython.Py_ssize_t) -> int:
        """Return the number of bytes from one row to another."""
        return self.offsets[end] - self.offsets[begin]


@cython.cclass
class Field:
    """Writes properties of a row."""

    @cython.cfunc
    def put(
        self, row: cython.Py_ssize_t, q: cython.p_uchar, to: cython.Py_ssize_t, room: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Write `name 0x01 value 0x02`; return the position of the next byte, or what is wrong."""
        return to

    def find_room(self, rows: cython.Py_ssize_t) -> int:
        """Return the most bytes that this number of rows can need."""
        return 0


@cython.cclass
class ConstantField(Field):
    """The same properties for every row, ready with their separators."""

    text: bytes

    def __init__(self, text: bytes) -> None:
        self.text = text

    @cython.cfunc
    def put(
        self, row: cython.Py_ssize_t, q: cython.p_uchar, to: cython.Py_ssize_t, room: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        return _put_text(self.text, q, to, room, 0)

    def find_room(self, rows: cython.Py_ssize_t) -> int:
        return rows * len(self.text)


@cython.cclass
class TextField(Field):
    """A property with the text of a column; none where it has no text."""

    prefix: bytes
    texts: Texts

    def __init__(self, name: bytes, texts: Texts) -> None:
        self.prefix = name + b"\x01"
        self.texts = texts

    @cython.cfunc
    def put(
        self, row: cython.Py_ssize_t, q: cython.p_uchar, to: cython.Py_ssize_t, room: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        n: cython.Py_ssize_t = self.texts.size_of(row)
        if n <= 0:
            return to
        p: cython.p_const_uchar = open_to_read(self.texts.data)
        at: cython.Py_ssize_t = self.texts.offsets[row]
        if _has_separator(p, at, n):
            return _SEPARATOR
        to = _put_text(self.prefix, q, to, room, n + 1)
        if to < 0:
            return to
        to = copy(q, to, p, at, n)
        q[to] = _NEXT
        return to + 1

    def find_room(self, rows: cython.Py_ssize_t) -> int:
        return self.texts.count_bytes(0, rows) + rows * (len(self.prefix) + 1)


@cython.cclass
class WordsField(Field):
    """A property with the words of a list, separated by spaces; none where there is no word."""

    prefix: bytes
    lists: cython.const[cython.int][::1]
    words: Texts

    def __init__(self, name: bytes, lists: Any, words: Texts) -> None:
        self.prefix = name + b"\x01"
        self.lists = memoryview(lists)
        self.words = words

    @cython.cfunc
    def put(
        self, row: cython.Py_ssize_t, q: cython.p_uchar, to: cython.Py_ssize_t, room: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        p: cython.p_const_uchar = open_to_read(self.words.data)
        name: cython.p_const_uchar = self.prefix
        name_bytes: cython.Py_ssize_t = len(self.prefix)
        start: cython.Py_ssize_t = to
        word: cython.Py_ssize_t
        at: cython.Py_ssize_t
        n: cython.Py_ssize_t
        for word in range(self.lists[row], self.lists[row + 1]):
            n = self.words.size_of(word)
            if n <= 0:
                continue
            at = self.words.offsets[word]
            if _has_separator(p, at, n):
                return _SEPARATOR
            if _has_byte(p, at, n, _SPACE):
                return _BLANK
            if to + name_bytes + n + 1 > room:
                return _NO_ROOM
            if to == start:
                to = copy(q, to, name, 0, name_bytes)
            else:
                q[to - 1] = _SPACE
            to = copy(q, to, p, at, n)
            q[to] = _NEXT
            to += 1
        return to

    def find_room(self, rows: cython.Py_ssize_t) -> int:
        words: cython.Py_ssize_t = self.lists[rows] - self.lists[0]
        size: cython.Py_ssize_t = self.words.count_bytes(self.lists[0], self.lists[rows])
        # Each word asks for room for a name too.
        return size + words + rows * (len(self.prefix) + 1) + len(self.prefix)


@cython.cclass
class MapField(Field):
    """The entries of a map as properties, except those without a name or value and those reserved for the system."""

    lists: cython.const[cython.int][::1]
    names: Texts
    values: Texts
    left_out: Any

    def __init__(self, lists: Any, names: Texts, values: Texts, left_out: frozenset[bytes]) -> None:
        self.lists = memoryview(lists)
        self.names = names
        self.values = values
        self.left_out = left_out

    @cython.cfunc
    def put(
        self, row: cython.Py_ssize_t, q: cython.p_uchar, to: cython.Py_ssize_t, room: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        p: cython.p_const_uchar = open_to_read(self.names.data)
        v: cython.p_const_uchar = open_to_read(self.values.data)
        entry: cython.Py_ssize_t
        at: cython.Py_ssize_t
        value_at: cython.Py_ssize_t
        n: cython.Py_ssize_t
        value_n: cython.Py_ssize_t
        for entry in range(self.lists[row], self.lists[row + 1]):
            n = self.names.size_of(entry)
            value_n = self.values.size_of(entry)
            if n <= 0 or value_n <= 0:
                continue
            at = self.names.offsets[entry]
            value_at = self.values.offsets[entry]
            # All reserved names start with a capital letter; users' names seldom do.
            if 65 <= p[at] <= 90 and bytes(self.names.data[at : at + n]) in self.left_out:
                continue
            if _has_separator(p, at, n) or _has_separator(v, value_at, value_n):
                return _SEPARATOR
            if to + n + value_n + 2 > room:
                return _NO_ROOM
            to = copy(q, to, p, at, n)
            q[to] = _NAMED
            to = copy(q, to + 1, v, value_at, value_n)
            q[to] = _NEXT
            to += 1
        return to

    def find_room(self, rows: cython.Py_ssize_t) -> int:
        first: cython.Py_ssize_t = self.lists[0]
        last: cython.Py_ssize_t = self.lists[rows]
        return self.names.count_bytes(first, last) + self.values.count_bytes(first, last) + 2 * (last - first)


@cython.cclass
class IdField(Field):
    """UNIQ_KEY: the common prefix of the ids of all rows, and four digits that count up from a number."""

    prefix: bytes
    first: cython.longlong

    def __init__(self, prefix: bytes, first: int) -> None:
        self.prefix = b"UNIQ_KEY\x01" + prefix
        self.first = first

    @cython.cfunc
    def put(
        self, row: cython.Py_ssize_t, q: cython.p_uchar, to: cython.Py_ssize_t, room: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        digits: cython.p_const_uchar = _HEX
        number: cython.longlong = self.first + row
        to = _put_text(self.prefix, q, to, room, 5)
        if to < 0:
            return to
        q[to] = digits[(number >> 12) & 15]
        q[to + 1] = digits[(number >> 8) & 15]
        q[to + 2] = digits[(number >> 4) & 15]
        q[to + 3] = digits[number & 15]
        q[to + 4] = _NEXT
        return to + 5

    def find_room(self, rows: cython.Py_ssize_t) -> int:
        return rows * (len(self.prefix) + 5)


@cython.cclass
class NumberField(Field):
    """A property that ends with the number of the row, counted from a given one."""

    prefix: bytes
    first: cython.longlong

    def __init__(self, prefix: bytes, first: int) -> None:
        self.prefix = prefix
        self.first = first

    @cython.cfunc
    def put(
        self, row: cython.Py_ssize_t, q: cython.p_uchar, to: cython.Py_ssize_t, room: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        to = _put_text(self.prefix, q, to, room, 20)
        if to < 0:
            return to
        to = write_number(q, to, self.first + row)
        q[to] = _NEXT
        return to + 1

    def find_room(self, rows: cython.Py_ssize_t) -> int:
        return rows * (len(self.prefix) + 20)


# -- rows --------------------------------------------------------------------------------------------------------------


def pack_rows(
    order: cython.const[cython.longlong][::1],
    bodies: Texts,
    flags: cython.const[cython.int][::1],
    fields: list[Field],
    body_bytes_max: cython.Py_ssize_t,
    properties_bytes_max: cython.Py_ssize_t,
    out: cython.uchar[::1],
    ends: cython.longlong[::1],
    reasons: cython.uchar[::1],
) -> int:
    """Write the rows listed in `order`, in that order, as messages of a batch; return how many are good.

    `ends` receives the end of each message in `out`, `reasons` why a row was left out. `flags` has one entry per row,
    or none.
    """
    q: cython.p_uchar = open_to_write(out)
    p: cython.p_const_uchar = open_to_read(bodies.data)
    if not cython.compiled:  # numpy's integers overflow
        order, flags = memoryview(order), memoryview(flags)
    room: cython.Py_ssize_t = len(out)
    count: cython.Py_ssize_t = len(order)
    with_flags: cython.bint = len(flags) > 0
    to: cython.Py_ssize_t = 0
    good: cython.Py_ssize_t = 0
    number: cython.Py_ssize_t
    row: cython.Py_ssize_t
    n: cython.Py_ssize_t
    start: cython.Py_ssize_t
    properties_at: cython.Py_ssize_t
    field: Field
    for number in range(count):
        row = order[number]
        ends[number] = to
        n = bodies.size_of(row)
        if n <= 0:
            reasons[number] = NO_BODY
            continue
        if n > body_bytes_max:
            reasons[number] = BODY_TOO_LARGE
            continue
        start = to
        if start + n + 22 > room:
            raise ValueError(f"{room} bytes are not enough for {count} rows")
        properties_at = copy(q, start + _HEAD_BYTES, p, bodies.offsets[row], n) + 2
        to = properties_at
        for field in fields:
            to = field.put(row, q, to, room)
            if to < 0:
                break
        if to == _NO_ROOM:
            raise ValueError(f"{room} bytes are not enough for {count} rows")
        if to < 0:
            reasons[number] = -to
            to = start
            continue
        if to > properties_at:
            to -= 1  # the separator after the last one
        if to - properties_at > properties_bytes_max:
            reasons[number] = PROPERTIES_TOO_LARGE
            to = start
            continue
        q[properties_at - 2] = (to - properties_at) >> 8
        q[properties_at - 1] = (to - properties_at) & 0xFF
        write_u32(q, start, to - start)
        write_u32(q, start + 4, 0)
        write_u32(q, start + 8, 0)
        write_u32(q, start + 12, flags[row] if with_flags else 0)
        write_u32(q, start + 16, n)
        ends[number] = to
        reasons[number] = GOOD
        good += 1
    return good


def hash_texts(texts: Texts, rows: cython.Py_ssize_t, out: cython.longlong[::1]) -> None:
    """Fill a column with Java's hashes of texts; 0 where there is none."""
    p: cython.p_const_uchar = open_to_read(texts.data)
    row: cython.Py_ssize_t
    n: cython.Py_ssize_t
    h: cython.longlong
    for row in range(rows):
        n = texts.size_of(row)
        h = hash_text(p, texts.offsets[row], texts.offsets[row] + n, 0) if n > 0 else 0
        out[row] = h - _WRAP if h > _INT_MAX else h
