"""What is kept of a message's properties: hashes as Java makes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._wire import digest
from eruca._wire.digest import index_prefix
from eruca._wire.javahash import index_key_hash, java_hash
from eruca._wire.properties import parse_properties, split_keys
from tests import readable
from tests.kernels import load_twins

TWINS = load_twins("eruca._wire.kernel.digest")
each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "TAG", "TAGSS"])
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=20)


@each_twin
@given(topic=st.text(max_size=20).filter(lambda t: t.isprintable()), pairs=st.lists(st.tuples(NAMES, VALUES)))
def test_it_is_what_java_would_compute(twin: Any, topic: str, pairs: list[tuple[str, str]]) -> None:
    raw = "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
    parsed = parse_properties(raw)
    keys = [parsed["UNIQ_KEY"]] if "UNIQ_KEY" in parsed else []
    keys += split_keys(parsed.get("KEYS", ""))
    expected = (java_hash(parsed.get("TAGS", "")), [index_key_hash(topic, key) for key in keys])
    assert twin.digest_properties(raw, index_prefix(topic), True) == expected
    assert twin.digest_properties(raw, index_prefix(topic), False) == (expected[0], [])


@each_twin
def test_no_properties_give_no_hashes(twin: Any) -> None:
    assert twin.digest_properties(b"", index_prefix("t"), True) == (0, [])


def test_the_kernel_is_the_one_in_use() -> None:
    assert digest.digest_properties is next(iter(TWINS.values())).digest_properties


def test_a_prefix_is_unsigned() -> None:
    assert index_prefix("a") == 31 * ord("a") + ord("#")
    assert all(0 <= index_prefix(f"topic-{number}") < 2**32 for number in range(200))
    assert any(index_prefix(f"topic-{number}") >= 2**31 for number in range(200))


PIECES = st.sampled_from(
    [
        b"TAGS", b"KEYS", b"UNIQ_KEY", b"TAGSX", b"XTAGS", b"KEY", b"\x01", b"\x02", b" ", b"a", b"Bb", b"",
        "héllo".encode(), "消息".encode(), "😀".encode(), b"\xff", b"\xc3", b"\x00", b"polygenelubricants",
    ]
)  # fmt: skip
PROPERTIES = st.lists(PIECES, max_size=24).map(b"".join) | st.binary(max_size=60)
ENTRIES = st.lists(
    st.tuples(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "OTHER"]), st.text(max_size=20)), max_size=6
).map(lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode("utf-8", "replace"))


@each_twin
@given(properties=PROPERTIES | ENTRIES, prefix=st.integers(0, 0xFFFFFFFF), with_keys=st.booleans())
def test_digests_are_equal(twin: Any, properties: bytes, prefix: int, with_keys: bool) -> None:
    expected = readable.digest(properties, prefix, with_keys)
    assert twin.digest_properties(properties, prefix, with_keys) == expected


@each_twin
def test_the_hash_without_a_positive_twin_becomes_zero(twin: Any) -> None:
    """`polygenelubricants` is the known word whose Java hash is Integer.MIN_VALUE."""
    assert twin.digest_properties(b"UNIQ_KEY\x01polygenelubricants", 0, True) == (0, [0])
    assert twin.digest_properties(b"TAGS\x01polygenelubricants", 0, True) == (-(2**31), [])


@each_twin
def test_a_known_digest(twin: Any) -> None:
    properties = b"KEYS\x01a  b\x02UNIQ_KEY\x01u\x02TAGS\x01x\x02TAGS\x01TagA\x02TAGS\x01"
    tags, hashes = twin.digest_properties(properties, index_prefix("t"), True)
    assert tags == 2598919  # of the last entry that has a value
    assert hashes == [31 * (31 * ord("t") + ord("#")) + ord(letter) for letter in "uab"]


@each_twin
@pytest.mark.parametrize("count", [31, 32, 33, 500])
def test_many_keys_are_digested_as_few_are(twin: Any, count: int) -> None:
    properties = b"UNIQ_KEY\x01u\x02KEYS\x01" + b" ".join(b"k%d" % n for n in range(count)) + b"\x02TAGS\x01x"
    for with_keys in (True, False):
        expected = readable.digest(properties, 7, with_keys)
        assert twin.digest_properties(properties, 7, with_keys) == expected
