"""What is kept of a message's properties: hashes as Java makes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.wire.digest import digest_properties, digest_properties_plainly, index_prefix
from eruca.wire.javahash import index_key_hash, java_hash
from eruca.wire.properties import parse_properties, split_keys

DIGESTS = pytest.mark.parametrize("digest", [digest_properties, digest_properties_plainly], ids=["used", "plain"])
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "TAG", "TAGSS"])
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=20)


@DIGESTS
@given(topic=st.text(max_size=20).filter(lambda t: t.isprintable()), pairs=st.lists(st.tuples(NAMES, VALUES)))
def test_it_is_what_java_would_compute(digest: object, topic: str, pairs: list[tuple[str, str]]) -> None:
    assert callable(digest)
    raw = "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
    parsed = parse_properties(raw)
    keys = [parsed["UNIQ_KEY"]] if "UNIQ_KEY" in parsed else []
    keys += split_keys(parsed.get("KEYS", ""))
    expected = (java_hash(parsed.get("TAGS", "")), [index_key_hash(topic, key) for key in keys])
    assert digest(raw, index_prefix(topic), True) == expected
    assert digest(raw, index_prefix(topic), False) == (expected[0], [])


@DIGESTS
def test_no_properties_give_no_hashes(digest: object) -> None:
    assert callable(digest)
    assert digest(b"", index_prefix("t"), True) == (0, [])


def test_a_prefix_is_unsigned() -> None:
    assert index_prefix("a") == 31 * ord("a") + ord("#")
    assert all(0 <= index_prefix(f"topic-{number}") < 2**32 for number in range(200))
    assert any(index_prefix(f"topic-{number}") >= 2**31 for number in range(200))
