"""Rows to the files derived from a log: the entries of consume queues and of index files.

The store defines how an entry is written (`store.kernel`); these loops pass it the columns.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Cython reads this branch
    import cython
else:
    from eruca._wire.kernel import nocython as cython

if cython.compiled:
    from cython.cimports.eruca._store.kernel.index import *
    from cython.cimports.eruca._store.kernel.sizes import *
    from cython.cimports.eruca._wire.kernel.views import *
else:
    from eruca._store.kernel.index import put_entries
    from eruca._store.kernel.sizes import ENTRY_BYTES, write_entry
    from eruca._wire.kernel.views import open_to_write

compiled: bool = cython.compiled


def put_queue_entries(
    out: cython.uchar[::1],
    positions: cython.const[cython.longlong][::1],
    sizes: cython.const[cython.int][::1],
    codes: cython.const[cython.longlong][::1],
) -> None:
    """Write entries of a consume queue, one after the other."""
    count: cython.Py_ssize_t = len(positions)
    row: cython.Py_ssize_t
    if len(sizes) != count or len(codes) != count or count * ENTRY_BYTES > len(out):
        raise ValueError(f"{len(out)} bytes are not enough for {count} entries, or columns differ in length")
    q: cython.p_uchar = open_to_write(out)
    for row in range(count):
        write_entry(q, row * ENTRY_BYTES, positions[row], sizes[row], codes[row])


def put_index_entries(
    out: cython.uchar[::1],
    slots: cython.longlong,
    hashes: cython.const[cython.int][::1],
    positions: cython.const[cython.longlong][::1],
    times: cython.const[cython.longlong][::1],
) -> None:
    """Write entries into an index file, one after the other."""
    count: cython.Py_ssize_t = len(hashes)
    row: cython.Py_ssize_t
    one: cython.longlong[2] = [0, 0]
    if len(positions) != count or len(times) != count:
        raise ValueError("columns differ in length")
    if not cython.compiled:  # numpy's integers overflow in sums and masks
        hashes, positions, times = memoryview(hashes), memoryview(positions), memoryview(times)
    q: cython.p_uchar = open_to_write(out)
    for row in range(count):
        one[1] = hashes[row]
        if not put_entries(q, len(out), slots, one, 1, positions[row], times[row]):
            raise ValueError(f"{count} entries are not inside an index file of {len(out)} bytes")
