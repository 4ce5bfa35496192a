"""Typed headers and their string map on the wire.

Java keeps the fields of a header in a `HashMap<String, String>` called extFields and writes it in the map's own order.
A binary header is compared byte for byte (signatures, recorded frames), so we compute that order instead of guessing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

from eruca._wire.javahash import java_hash

# Java's int and long. A value outside would be silently truncated on its way to the disk, so it is refused here.
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Header(msgspec.Struct, rename="camel", gc=False):
    """The typed fields of one request or answer. Attributes are snake_case, names on the wire are Java's.

    A field without a default is required. None means "not sent"; an empty string is sent.
    """

    #: Java writes this header's own fields by hand, in declaration order, when the frame is binary.
    written_in_order: ClassVar[bool] = False
    #: Names of fields that the Java class inherits: they are put into the map first.
    inherited: ClassVar[frozenset[str]] = frozenset()
    #: Names that Java adds to the map beside the header's own fields.
    added_to_map: ClassVar[frozenset[str]] = frozenset()


def encode_ext(header: Header, *, binary: bool = False, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Convert a typed header to the strings of the wire, in the order Java would write them.

    `extra` are fields no header declares (access key, signature).
    """
    header_type = header.__class__
    fields = _FIELDS.get(header_type)
    if fields is None:
        fields = _FIELDS[header_type] = _list_fields(header_type)
    texts = {}
    for attribute, name in fields:
        value = getattr(header, attribute)
        if value is not None:
            texts[name] = value if value.__class__ is str else _write_scalar(value)
    if extra:
        texts.update(extra)
    if binary and header_type.written_in_order:
        own = {name for _, name in fields} - header_type.added_to_map
        ahead = [name for name in texts if name in own]
        order: Iterable[str] = (*ahead, *order_like_java(tuple(name for name in texts if name not in own)))
    else:
        order = order_like_java(tuple(texts))
    return {name: texts[name] for name in order}


def _list_fields(header_type: type[Header]) -> tuple[tuple[str, str], ...]:
    """The attributes of a header with their names on the wire, in the order they are put into Java's map."""
    pairs = zip(header_type.__struct_fields__, header_type.__struct_encode_fields__, strict=True)
    return tuple(sorted(pairs, key=lambda pair: pair[1] not in header_type.inherited))


def _write_scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    return str(value)


@lru_cache(maxsize=4096)
def order_like_java(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Order keys, given in insertion order, as `java.util.HashMap` iterates over them.

    The table starts at 16 buckets and doubles when it is more than three quarters full; a bucket keeps insertion order,
    even when it is split.
    """
    buckets = 16
    while len(keys) * 4 > buckets * 3:
        buckets *= 2
    return tuple(sorted(keys, key=lambda key: _spread_hash(key) & (buckets - 1)))


def _spread_hash(text: str) -> int:
    # HashMap folds the upper half of a hash into the lower before it picks a bucket.
    value = java_hash(text) & 0xFFFFFFFF
    return value ^ (value >> 16)


_FIELDS: Final[dict[type[Header], tuple[tuple[str, str], ...]]] = {}
