"""Compressed bodies: three formats, bounded."""

from __future__ import annotations

import sys
import zlib
from contextlib import suppress

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from eruca._wire.compression import compress, decompress
from eruca._wire.sysflag import (
    COMPRESSED,
    COMPRESSION_LEGACY_ZLIB,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    clear_compression,
    is_compressed,
    set_compression,
)
from eruca.errors import WireError

KINDS = [COMPRESSION_LEGACY_ZLIB, COMPRESSION_LZ4, COMPRESSION_ZSTD, COMPRESSION_ZLIB]
kinds = st.sampled_from(KINDS)


@given(st.binary(max_size=5000), kinds)
def test_bodies_come_back(body: bytes, kind: int) -> None:
    flag = set_compression(0, kind)
    assert is_compressed(flag)
    assert flag & COMPRESSION_MASK == kind
    assert clear_compression(flag) == 0
    assert decompress(compress(body, kind), flag) == body


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_is_exact(kind: int) -> None:
    packed = compress(bytes(10_000), kind)
    assert decompress(packed, kind, limit=10_000) == bytes(10_000)
    with pytest.raises(WireError, match="9999"):
        decompress(packed, kind, limit=9_999)


def test_bombs_without_an_announced_size_are_refused() -> None:
    zeros = bytes(1 << 20)
    stream = zstandard.ZstdCompressor().compressobj()
    zstd_bomb = b"".join(stream.compress(zeros) for _ in range(8)) + stream.flush()
    assert len(zstd_bomb) < 4096
    assert zstandard.get_frame_parameters(zstd_bomb).content_size > 1 << 60
    with lz4.frame.LZ4FrameCompressor() as packer:
        lz4_bomb = packer.begin() + b"".join(packer.compress(zeros) for _ in range(8)) + packer.flush()
    for bomb, kind in ((zstd_bomb, COMPRESSION_ZSTD), (lz4_bomb, COMPRESSION_LZ4), (zlib.compress(zeros), 0)):
        with pytest.raises(WireError, match=f"more than {1 << 16}"):
            decompress(bomb, kind, limit=1 << 16)
    assert decompress(zstd_bomb, COMPRESSION_ZSTD) == bytes(8 << 20)


def test_a_zstd_frame_that_announces_a_terabyte_is_refused_before_anything_is_allocated() -> None:
    # Magic, descriptor (8-byte size, single segment), 1 TiB, one empty last block.
    frame = bytes.fromhex("28b52ffde0") + (1 << 40).to_bytes(8, "little") + bytes.fromhex("010000")
    with pytest.raises(WireError, match="announces 1099511627776"):
        decompress(frame, COMPRESSION_ZSTD)


@given(st.binary(min_size=1, max_size=300), kinds, st.data())
def test_cut_bodies_are_refused(body: bytes, kind: int, data: st.DataObject) -> None:
    packed = compress(body, kind)
    cut = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(WireError):
        decompress(packed[:cut], kind)


@given(st.binary(max_size=300), kinds)
def test_arbitrary_bytes_decode_or_are_refused(body: bytes, kind: int) -> None:
    with suppress(WireError):
        assert len(decompress(body, kind, limit=1 << 20)) <= 1 << 20


def test_unknown_types_are_refused() -> None:
    with pytest.raises(WireError, match="0x400 is unknown"):
        decompress(b"", COMPRESSED | 0x400)
    with pytest.raises(WireError, match="0x400 is unknown"):
        compress(b"", 0x400)


@pytest.mark.parametrize(("module", "kind"), [("lz4.frame", COMPRESSION_LZ4), ("zstandard", COMPRESSION_ZSTD)])
def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, module: str, kind: int) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(WireError, match=r"pip install eruca\[compression\]"):
        decompress(b"x", kind)
