"""The fenced link's bytes: they come back however the stream is cut, and damage is never taken for a frame."""

from __future__ import annotations

import random
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._ground.limits import (
    HA_ACCOUNT_BYTES_MAX,
    HA_CHECK_BYTES_MAX,
    HA_FENCED_DATA_BYTES_MAX,
    HA_TEXT_BYTES_MAX,
)
from eruca._wire.handshake import HANDSHAKE_MAGIC, Challenge, Introduction, Proof
from eruca._wire.replication import (
    FENCED_HEAD_BYTES,
    HELLO_MAGIC,
    Chunk,
    FencedDecoder,
    FencedFrame,
    Hello,
    LogReport,
    Refusal,
    Report,
    SlaveDecoder,
    SlaveFrame,
    encode_fenced,
    encode_fenced_head,
    encode_report,
)
from eruca.errors import WireError

numbers = st.integers(0, (1 << 63) - 1)
texts = st.text(max_size=60)


@st.composite
def hellos(draw: st.DrawFn) -> Hello:
    begin = draw(st.integers(0, (1 << 63) - 1 - HA_CHECK_BYTES_MAX))
    size = draw(st.integers(0, HA_CHECK_BYTES_MAX))
    return Hello(draw(numbers), draw(numbers), begin + size, begin, draw(st.integers(0, (1 << 32) - 1)), draw(texts))


nonces = st.binary(min_size=32, max_size=32)
accounts = st.text(min_size=1, max_size=60).filter(str.isprintable)
from_slave = st.one_of(
    hellos(),
    st.builds(Report, numbers, numbers),
    st.builds(Introduction, nonces, accounts),
    st.builds(Proof, nonces),
)
from_master = st.one_of(
    st.builds(Challenge, nonces),
    st.builds(Chunk, numbers, numbers, numbers, numbers, numbers, st.binary(max_size=60)),
    st.builds(Refusal, numbers, texts),
)
frames = st.lists(st.one_of(from_slave, from_master), max_size=6)
cut_points = st.lists(st.integers(0, 2000), max_size=8)


def split_at(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(bounds)]


def seal(content: bytes) -> bytes:
    """Wrap bytes in a frame with size and CRC."""
    return len(content).to_bytes(4, "big", signed=True) + zlib.crc32(content).to_bytes(4, "big") + content


def decode_one(data: bytes) -> FencedFrame:
    (frame,) = FencedDecoder().feed(data)
    return frame


def test_known_bytes() -> None:
    assert bytes.fromhex("7f45525543410001") == HELLO_MAGIC
    report = "0300000000000003e800000000000013da"
    assert encode_fenced(Report(1000, 0x13DA)) == seal(bytes.fromhex(report))
    hello = "010000000000000005000000000000000200000000000010100000000000001000deadbeef613a31"
    assert encode_fenced(Hello(5, 2, 0x1010, 0x1000, 0xDEADBEEF, "a:1")) == seal(bytes.fromhex(hello))
    chunk = "02000000000000000500000000000000100000000000000008000000000000001300000000000000076c6f67"
    assert encode_fenced(Chunk(5, 16, 8, 19, 7, b"log")) == seal(bytes.fromhex(chunk))
    assert encode_fenced(Refusal(5, "no")) == seal(bytes.fromhex("0400000000000000056e6f"))


@pytest.mark.parametrize("magic", [HELLO_MAGIC, HANDSHAKE_MAGIC])
def test_the_magic_is_a_position_no_log_has(magic: bytes) -> None:
    assert int.from_bytes(magic, "big", signed=True) > 1 << 62


def test_the_log_is_not_copied_into_the_head() -> None:
    log = memoryview(b"...the log...")[3:10]
    head = encode_fenced_head(5, 16, 8, 23, 7, log)
    assert head + bytes(log) == encode_fenced(Chunk(5, 16, 8, 23, 7, b"the log"))


@given(frames, cut_points)
def test_frames_come_back_however_the_stream_is_cut(sent: list[FencedFrame], cuts: list[int]) -> None:
    decoder = FencedDecoder()
    got: list[FencedFrame] = []
    for piece in split_at(b"".join(map(encode_fenced, sent)), cuts):
        got += decoder.feed(piece)
    assert got == sent
    assert decoder.pending == 0


@given(st.one_of(from_slave, from_master), st.data())
def test_one_wrong_bit_is_noticed(frame: FencedFrame, data: st.DataObject) -> None:
    encoded = bytearray(encode_fenced(frame))
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    try:
        got = FencedDecoder().feed(encoded)
    except WireError:
        return
    # A larger size waits for bytes that make the CRC wrong, whatever they are.
    assert got == []
    assert bit < 32


@pytest.mark.parametrize("size", [-1, 0, 8, HA_FENCED_DATA_BYTES_MAX + 42, (1 << 31) - 1])
def test_a_size_that_lies_is_refused_on_the_head_alone(size: int) -> None:
    with pytest.raises(WireError, match="announces"):
        FencedDecoder().feed(size.to_bytes(4, "big", signed=True) + bytes(4))


def test_a_slave_cannot_make_its_master_wait_for_a_chunk() -> None:
    head = (HA_TEXT_BYTES_MAX + 100).to_bytes(4, "big") + bytes(4)
    assert FencedDecoder().feed(head) == []
    with pytest.raises(WireError, match="announces"):
        SlaveDecoder().feed(HELLO_MAGIC + head)


def test_the_largest_chunk_passes() -> None:
    chunk = Chunk(1, 2, 3, 4, 5, bytes(HA_FENCED_DATA_BYTES_MAX))
    assert decode_one(encode_fenced(chunk)) == chunk
    with pytest.raises(WireError, match="at most"):
        encode_fenced_head(1, 2, 3, 4, 5, bytes(HA_FENCED_DATA_BYTES_MAX + 1))


def test_long_texts_are_cut_between_characters() -> None:
    refusal = decode_one(encode_fenced(Refusal(1, "x" + "é" * HA_TEXT_BYTES_MAX)))
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "x" + "é" * ((HA_TEXT_BYTES_MAX - 1) // 2)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\x09" + bytes(16), "unknown kind 9"),
        (b"\x03" + bytes(15), "kind 3 has 16 bytes"),
        (b"\x03" + bytes(17), "kind 3 has 18 bytes"),
        (b"\x02" + bytes(39), "kind 2 has 40 bytes"),
        (b"\x04" + bytes(8) + b"x" * (HA_TEXT_BYTES_MAX + 1), "kind 4 has"),
        (b"\x04" + bytes(8) + b"\xff", "not UTF-8"),
        (b"\x03" + b"\xff" * 16, "negative"),
        (b"\x05" + bytes(31), "kind 5 has 32 bytes"),
        (b"\x05" + bytes(32), "without a printable account"),
        (b"\x05" + bytes(32) + b"a\nb", "without a printable account"),
        (b"\x05" + bytes(32) + b"\xff", "not UTF-8"),
        (b"\x05" + bytes(32) + b"x" * (HA_ACCOUNT_BYTES_MAX + 1), "kind 5 has"),
        (b"\x06" + bytes(33), "kind 6 has 34 bytes"),
        (b"\x07" + bytes(31), "kind 7 has 32 bytes"),
        (encode_fenced(Hello(1, 1, 5, 6, 0, ""))[FENCED_HEAD_BYTES:], "check from 6 on"),
        (encode_fenced(Hello(1, 1, 5000, 903, 0, ""))[FENCED_HEAD_BYTES:], "check from 903 on"),
    ],
)
def test_frames_that_make_no_sense_are_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        FencedDecoder().feed(seal(content))


@given(st.lists(from_slave, max_size=5), cut_points, st.sampled_from((HELLO_MAGIC, HANDSHAKE_MAGIC)))
def test_a_master_knows_a_fenced_slave_by_its_first_bytes(
    sent: list[Hello | Report | Introduction | Proof], cuts: list[int], magic: bytes
) -> None:
    decoder = SlaveDecoder()
    got: list[SlaveFrame] = []
    for piece in split_at(magic + b"".join(map(encode_fenced, sent)), cuts):
        got += decoder.feed(piece)
    assert got == sent
    assert decoder.is_fenced is True


@given(st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=5), cut_points)
def test_a_master_knows_a_classic_slave_by_its_first_bytes(positions: list[int], cuts: list[int]) -> None:
    decoder = SlaveDecoder()
    assert decoder.is_fenced is None
    got: list[SlaveFrame] = []
    for piece in split_at(b"".join(encode_report(LogReport(position)) for position in positions), cuts):
        got += decoder.feed(piece)
    assert got == [LogReport(position) for position in positions]
    assert decoder.is_fenced is False


def test_a_slave_that_plays_the_master_is_refused() -> None:
    for frame in (Chunk(1, 0, 0, 0, 0, b"x"), Refusal(1, "no"), Challenge(bytes(32))):
        with pytest.raises(WireError, match="only a master"):
            SlaveDecoder().feed(HELLO_MAGIC + encode_fenced(frame))


def damage(source: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(changed) + 1)
        match source.randrange(4):
            case 0:
                changed[at : at + 1] = source.randbytes(1)
            case 1:
                del changed[at : at + source.randint(1, 16)]
            case 2:
                changed[at:at] = source.randbytes(source.randint(1, 16))
            case _:
                changed[at:at] = changed[at : at + source.randint(1, 64)]
    return bytes(changed)


@pytest.mark.parametrize("seed", range(20))
def test_hostile_bytes_give_frames_or_wire_errors(seed: int) -> None:
    """Damage of all kinds, half of it with size and CRC made right again so that it gets past them."""
    source = random.Random(seed)
    samples = [
        encode_fenced(frame)
        for frame in (
            Hello(5, 2, 9000, 8000, 77, "127.0.0.1:10911"),
            Chunk(5, 100, 50, 300, 1234, bytes(range(200))),
            Chunk(5, 100, 50, 100, 1234),
            Report(5, 100),
            Refusal(5, "the log before 100 is gone"),
            Introduction(bytes(range(32)), "members"),
            Challenge(bytes(range(32))),
            Proof(bytes(range(32))),
        )
    ]
    refused = taken = 0
    for _ in range(500):
        data = damage(source, source.choice(samples))
        if source.random() < 0.5:
            data = seal(data[FENCED_HEAD_BYTES:])
        decoder = FencedDecoder() if source.random() < 0.7 else SlaveDecoder()
        try:
            got = decoder.feed(data if isinstance(decoder, FencedDecoder) else HELLO_MAGIC + data)
        except WireError:
            refused += 1
            continue
        taken += len(got)
        for frame in got:
            assert isinstance(frame, FencedFrame)
            assert decode_one(encode_fenced(frame)) == frame
    assert refused
    assert taken
