"""The replication link's bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._ground.limits import HA_FRAME_BYTES_MAX
from eruca._wire.replication import (
    ChunkDecoder,
    LogChunk,
    LogReport,
    ReportDecoder,
    encode_chunk_head,
    encode_report,
)
from eruca.errors import WireError
from tests.encoding import encode_chunk

positions = st.integers(0, (1 << 63) - 1)
chunks = st.lists(st.builds(LogChunk, positions, st.binary(max_size=40)), max_size=6)


def split_at(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(bounds)]


def test_known_bytes() -> None:
    assert encode_report(LogReport(0x13DA)) == bytes.fromhex("00000000000013da")
    assert encode_chunk(LogChunk(0, b"")) == bytes.fromhex("000000000000000000000000")
    assert encode_chunk_head(0, 0x13DA) == bytes.fromhex("0000000000000000000013da")


@given(chunks, st.lists(st.integers(0, 1000), max_size=8))
def test_chunks_come_back_however_the_stream_is_cut(sent: list[LogChunk], cuts: list[int]) -> None:
    decoder = ChunkDecoder()
    got: list[LogChunk] = []
    for piece in split_at(b"".join(map(encode_chunk, sent)), cuts):
        got += decoder.feed(piece)
    assert got == sent
    assert decoder.pending == 0


@given(st.lists(positions, max_size=6), st.lists(st.integers(0, 1000), max_size=8))
def test_reports_come_back_however_the_stream_is_cut(sent: list[int], cuts: list[int]) -> None:
    decoder = ReportDecoder()
    got: list[LogReport] = []
    for piece in split_at(b"".join(encode_report(LogReport(position)) for position in sent), cuts):
        got += decoder.feed(piece)
    assert [report.position for report in got] == sent
    assert decoder.pending == 0


@pytest.mark.parametrize("size", [-1, HA_FRAME_BYTES_MAX + 1, (1 << 31) - 1])
def test_a_size_that_lies_is_refused_on_the_head_alone(size: int) -> None:
    with pytest.raises(WireError, match="announces"):
        ChunkDecoder().feed(bytes(8) + size.to_bytes(4, "big", signed=True))


def test_the_largest_chunk_passes() -> None:
    chunk = LogChunk(1, bytes(HA_FRAME_BYTES_MAX))
    assert ChunkDecoder().feed(encode_chunk(chunk)) == [chunk]
    with pytest.raises(WireError, match="at most"):
        encode_chunk_head(0, HA_FRAME_BYTES_MAX + 1)


def test_negative_positions_are_refused() -> None:
    with pytest.raises(WireError, match="position -1"):
        ChunkDecoder().feed(b"\xff" * 8 + bytes(4))
    with pytest.raises(WireError, match="position -1"):
        ReportDecoder().feed(b"\xff" * 8)
