"""Entries are written into index files alike, compiled and plain."""

from __future__ import annotations

import mmap
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._store.queues.indexfile import HEADER, SLOT, file_bytes
from tests.kernels import load_twins
from tests.readable import put_index_entries

TWINS = load_twins("eruca._store.kernel.index")
each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())


@each_twin
@given(
    slots=st.integers(1, 20),
    records=st.lists(
        st.tuples(
            st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 3), max_size=4),
            st.integers(0, 2**62),
            st.integers(-(2**40), 2**42) | st.just(0),
        ),
        max_size=8,
    ),
    header=st.tuples(st.integers(-(2**62), 2**62), st.integers(-(2**31), 20)),
    noise=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20),
)
def test_index_files_are_equal(
    twin: Any,
    slots: int,
    records: list[tuple[list[int], int, int]],
    header: tuple[int, int],
    noise: list[int],
) -> None:
    """Even with a damaged file: slots that point anywhere, any values in the header."""
    plain = bytearray(file_bytes(slots, 64))
    HEADER.pack_into(plain, 0, header[0], 0, 0, 0, 0, header[1])
    for number, value in enumerate(noise[:slots]):
        SLOT.pack_into(plain, 40 + 4 * number, value)
    twins = bytearray(plain)
    for hashes, position, store_time in records:
        put_index_entries(plain, slots, hashes, position, store_time)
        twin.put_index_entries(twins, slots, hashes, position, store_time)
    assert twins == plain


@each_twin
@pytest.mark.parametrize("number", [63, 64, 10_000, 2**31 - 1])
def test_an_entry_outside_the_file_is_an_error_and_not_a_crash(twin: Any, number: int) -> None:
    buffer = bytearray(file_bytes(16, 64))
    HEADER.pack_into(buffer, 0, 1, 1, 1, 1, 0, number)
    with pytest.raises(ValueError, match="do not fit"):
        twin.put_index_entries(buffer, 16, [1, 2], 5, 5)
    with pytest.raises(struct.error):
        put_index_entries(buffer, 16, [1, 2], 5, 5)


@each_twin
def test_the_last_entry_of_a_file_can_be_written(twin: Any) -> None:
    buffer = bytearray(file_bytes(16, 64))
    twin.put_index_entries(buffer, 16, list(range(63)), 5, 5)
    assert HEADER.unpack_from(buffer, 0) == (5, 5, 5, 5, 16, 64)


@each_twin
def test_an_index_file_may_be_mapped_memory(twin: Any) -> None:
    with mmap.mmap(-1, file_bytes(4, 8)) as mapped:
        twin.put_index_entries(mapped, 4, [7], 100, 2000)
        assert HEADER.unpack_from(mapped, 0) == (2000, 2000, 100, 100, 1, 2)
