"""What consume queue and index keep of a message's properties: hashes of its tag, its unique id and its keys."""

from __future__ import annotations

from eruca._wire.javahash import hash_index_prefix
from eruca._wire.kernel.digest import digest_properties

__all__ = ["digest_properties", "index_prefix"]

_MASK = 0xFFFFFFFF


def index_prefix(topic: str) -> int:
    """Hash `topic + "#"`, unsigned, as `digest_properties` needs it."""
    return hash_index_prefix(topic) & _MASK
