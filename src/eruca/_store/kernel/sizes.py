"""Sizes of entries in consume queues and index files, and how entries are written.

Compiled kernels use `sizes.pxd` instead.
"""

from __future__ import annotations

import struct
from typing import Any

# An entry of a consume queue, and the size field of an entry without a message.
ENTRY_BYTES = 20
FILLER_SIZE = 0x7FFFFFFF
INDEX_HEADER_BYTES = 40
INDEX_SLOT_BYTES = 4
INDEX_ENTRY_BYTES = 20

_pack_entry = struct.Struct(">qiq").pack_into
_pack_index_entry = struct.Struct(">iqii").pack_into


def write_entry(p: Any, at: int, position: int, size: int, tags_code: int) -> None:
    """Write an entry of a consume queue."""
    _pack_entry(p, at, position, size, tags_code)


def write_index_entry(p: Any, at: int, key_hash: int, position: int, seconds: int, previous: int) -> None:
    """Write an entry of an index file."""
    _pack_index_entry(p, at, key_hash, position, seconds, previous)
