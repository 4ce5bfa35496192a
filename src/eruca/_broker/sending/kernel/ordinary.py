"""Whether a message is an ordinary one, as nearly all are.

The readable version of this check is how a broker handles every other message (`broker.sending.send`): it looks up one
property after the other.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Cython reads this branch
    import cython
else:
    from eruca._wire.kernel import nocython as cython

if cython.compiled:
    from cython.cimports.eruca._wire.kernel.memory import *
else:
    from eruca._wire.kernel.memory import equals, find_near, has_word, take

compiled: bool = cython.compiled

# Bytes of a separator, "WAIT", the separator after a name, and "true". Senders that wait for disk and slaves, which are
# nearly all, set it in every message, and a record does not keep it.
_WAIT_BYTES = cython.declare(cython.int, 10)
_WAIT_NAME_BYTES = cython.declare(cython.int, 5)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _has_at(
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    word: cython.p_const_uchar,
    size: cython.Py_ssize_t,
) -> cython.bint:
    """Whether a word is at an index and ends before `end`."""
    return at >= 0 and at + size <= end and equals(p, at, word, 0, size)


def take_ordinary(properties: str, added: bytes) -> bytes | None:
    """Return the properties for the record of an ordinary message: without WAIT, and with `added` appended.

    Returns None if the message is not ordinary, or might not be: it is delayed, part of a transaction or stored once,
    its sender does not wait, or it already has the property to be added. Names are searched wherever they could be a
    name.
    """
    raw: bytes = properties.encode()
    p: cython.p_const_uchar = raw
    size: cython.Py_ssize_t = len(raw)
    wait_at: cython.Py_ssize_t = -1
    if has_word(p, 0, size, b"TIMER_D", 7):
        return None
    at: cython.Py_ssize_t = find_near(p, 0, size, 1)
    while at < size:
        if _has_at(p, at - 4, size, b"WAIT", 4):
            if wait_at >= 0 or not _has_at(p, at - _WAIT_NAME_BYTES, size, b"\x02WAIT\x01true", 10):
                return None
            wait_at = at - _WAIT_NAME_BYTES
            if wait_at + _WAIT_BYTES < size and p[wait_at + _WAIT_BYTES] != 2:
                return None
        elif (
            _has_at(p, at - 5, size, b"DELAY", 5)
            or _has_at(p, at - 7, size, b"CLUSTER", 7)
            or _has_at(p, at - 8, size, b"TRAN_MSG", 8)
            or _has_at(p, at - 10, size, b"ERUCA_ONCE", 10)
        ):
            return None
        at = find_near(p, at + 1, size, 1)
    # What is kept: up to WAIT, and after it.
    end: cython.Py_ssize_t = size if wait_at < 0 else wait_at
    at = size if wait_at < 0 else wait_at + _WAIT_BYTES
    if end == 0 and at == size:
        return None
    separator: bytes = b"" if p[(size if at < size else end) - 1] == 2 else b"\x02"
    return b"".join((take(p, 0, end), take(p, at, size), separator, added))
