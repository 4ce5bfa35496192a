"""The inner loops of a send, typed for Cython: whether a message is an ordinary one, and the answer.

As with `hot`, the same file runs as plain Python or compiled. The readable statements are what a broker does with every
other message (`broker.send`): it asks for one property after the other, and encodes an answer as any command.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

try:
    import cython  # type: ignore[import-untyped]
except ImportError:  # an installation without compiler and without Cython
    from eruca.wire import nocython as cython

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize  # type: ignore[import-untyped]
    from cython.cimports.eruca.wire.hotbytes import equals, write_u32  # type: ignore[import-untyped]
    from cython.cimports.libc.stdio import snprintf  # type: ignore[import-untyped]
    from cython.cimports.libc.string import memcpy  # type: ignore[import-untyped]
else:
    from eruca.wire.hotbytes import equals, write_u32

compiled: bool = cython.compiled

# Bytes of a separator, "WAIT", the sign behind a name, and "true". Senders that wait for disk and slaves, which are
# nearly all, say so with every message, and a record does not keep it.
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
    """Is a word at a place, all of it inside?"""
    return at >= 0 and at + size <= end and equals(p, at, word, 0, size)


def take_ordinary(properties: str, added: bytes) -> bytes | None:
    """The properties as the record of an ordinary message has them: without WAIT, and with others `added`.

    None when the message is not an ordinary one, or might not be: it is delayed, half of a transaction or stored once,
    its sender does not wait, or it has what is to be added. Names are looked for wherever they might be taken for one.
    """
    raw: bytes = properties.encode()
    p: cython.p_const_uchar = raw
    size: cython.Py_ssize_t = len(raw)
    wait_at: cython.Py_ssize_t = -1
    at: cython.Py_ssize_t = 0
    byte: cython.uchar
    while at < size:
        byte = p[at]
        if byte == 1:
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
        elif byte == 0x54 and _has_at(p, at, size, b"TIMER_D", 7):
            return None
        at += 1
    if wait_at >= 0:
        raw = raw[:wait_at] + raw[wait_at + _WAIT_BYTES :]
        p = raw
        size = len(raw)
    if size == 0:
        return None
    return raw + added if p[size - 1] == 2 else raw + b"\x02" + added


def encode_stored(
    code: cython.int,
    queue_id: cython.int,
    told_to_all: bytes,
    message_ids: str,
    queue_offset: cython.longlong,
    opaque: cython.int,
) -> bytes:
    """The answer to a send as a frame with a JSON header, in the field order of Java's map.

    `told_to_all` is what all answers have between queue and message id: region, and whether traces are wanted.
    """
    ids: bytes = message_ids.encode()
    if cython.compiled:
        front = cython.declare(cython.char[64])
        back = cython.declare(cython.char[192])
        front_size: cython.Py_ssize_t = snprintf(front, 64, b'{"code":%d,"extFields":{"queueId":"%d', code, queue_id)
        back_size: cython.Py_ssize_t = snprintf(
            back,
            192,
            b'","queueOffset":"%lld"},"flag":1,"language":"PYTHON","opaque":%d,'
            b'"serializeTypeCurrentRPC":"JSON","version":407}',
            queue_offset,
            opaque,
        )
        size: cython.Py_ssize_t = front_size + len(told_to_all) + len(ids) + back_size
        frame: bytes = PyBytes_FromStringAndSize(cython.NULL, size + 8)
        told_p: cython.p_const_uchar = told_to_all
        ids_p: cython.p_const_uchar = ids
        q: cython.p_uchar = cython.cast(cython.p_uchar, cython.cast(cython.p_char, frame))
        write_u32(q, 0, cython.cast(cython.uint, size + 4))
        write_u32(q, 4, cython.cast(cython.uint, size))
        memcpy(q + 8, front, front_size)
        memcpy(q + 8 + front_size, told_p, len(told_to_all))
        memcpy(q + 8 + front_size + len(told_to_all), ids_p, len(ids))
        memcpy(q + 8 + size - back_size, back, back_size)
        return frame
    else:
        header = (
            b'{"code":%d,"extFields":{"queueId":"%d%b%b","queueOffset":"%d"},"flag":1,"language":"PYTHON","opaque":%d,'
            b'"serializeTypeCurrentRPC":"JSON","version":407}'
        ) % (code, queue_id, told_to_all, ids, queue_offset, opaque)
        return (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
