"""What consume queue and index keep of a message's properties: hashes of its tag, its unique id and its keys."""

from __future__ import annotations

from eruca.wire import hot
from eruca.wire.javahash import hash_continue, hash_index_prefix, java_hash_bytes
from eruca.wire.properties import RAW_KEYS, RAW_TAGS, RAW_UNIQ_KEY, get_property

_MASK = 0xFFFFFFFF
_MIN_VALUE = -0x80000000


def index_prefix(topic: str) -> int:
    """Hash `topic + "#"`, as `digest_properties` wants it: unsigned."""
    return hash_index_prefix(topic) & _MASK


def digest_properties_plainly(properties: bytes, prefix: int, with_keys: bool) -> tuple[int, list[int]]:
    """Give the hash of TAGS (0 for none) and the index hashes of UNIQ_KEY, then KEYS."""
    tag = get_property(properties, RAW_TAGS)
    tags_hash = 0 if tag is None else java_hash_bytes(tag)
    texts: list[bytes] = []
    if with_keys:
        unique = get_property(properties, RAW_UNIQ_KEY)
        if unique is not None:
            texts.append(unique)
        keys = get_property(properties, RAW_KEYS)
        if keys is not None:
            texts.extend([key for key in keys.split(b" ") if key])
    hashes = [hash_continue(prefix, text.decode("utf-8", "replace")) for text in texts]
    # Java's abs; the one value without a positive twin becomes 0.
    return tags_hash, [0 if h == _MIN_VALUE else abs(h) for h in hashes]


digest_properties = hot.digest_properties if hot.compiled else digest_properties_plainly
