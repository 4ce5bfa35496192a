"""The body of a batch send."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._ground.limits import RECORD_PROPERTIES_BYTES_MAX
from eruca._wire.batch import BatchItem, decode_batch, encode_batch
from eruca.errors import WireError

PROPERTIES = b"KEYS\x01bk0\x02UNIQ_KEY\x017F00000115625FFD2B274996EF140000\x02WAIT\x01true\x02TAGS\x01TagB"
ONE = bytes.fromhex("0000005e 00000000 00000000 00000000 00000002") + b"b0" + b"\x00\x46" + PROPERTIES

items = st.lists(
    st.builds(
        BatchItem,
        flag=st.integers(-(1 << 31), (1 << 31) - 1),
        body=st.binary(max_size=64),
        properties=st.binary(max_size=64),
    ),
    max_size=5,
)


def test_the_captured_item() -> None:
    assert len(PROPERTIES) == 0x46
    assert decode_batch(ONE) == [BatchItem(0, b"b0", PROPERTIES)]
    assert encode_batch([BatchItem(0, b"b0", PROPERTIES)]) == ONE


@given(items)
def test_batches_come_back(batch: list[BatchItem]) -> None:
    assert decode_batch(encode_batch(batch)) == batch


@given(st.binary(max_size=200))
def test_arbitrary_bytes_decode_or_are_refused(data: bytes) -> None:
    with suppress(WireError):
        batch = decode_batch(data)
        assert len(encode_batch(batch)) == len(data)


@given(items.filter(bool), st.data())
def test_a_cut_batch_is_refused(batch: list[BatchItem], data: st.DataObject) -> None:
    raw = encode_batch(batch)
    starts = {0}
    for item in batch:
        starts.add(max(starts) + 22 + len(item.body) + len(item.properties))
    cut = data.draw(st.integers(0, len(raw) - 1).filter(lambda cut: cut not in starts))
    with pytest.raises(WireError, match="batch item"):
        decode_batch(raw[:cut])


@pytest.mark.parametrize("at", [0, 16, 22])
@pytest.mark.parametrize("value", [b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"])
def test_sizes_that_lie_are_refused(at: int, value: bytes) -> None:
    value = value[:2] if at == 22 else value
    with pytest.raises(WireError):
        decode_batch(ONE[:at] + value + ONE[at + len(value) :])


def test_long_properties_are_refused() -> None:
    assert decode_batch(encode_batch([BatchItem(0, b"", bytes(RECORD_PROPERTIES_BYTES_MAX))]))
    with pytest.raises(WireError, match="65536"):
        encode_batch([BatchItem(0, b"", bytes(RECORD_PROPERTIES_BYTES_MAX + 1))])
