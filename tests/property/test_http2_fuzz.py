"""Bytes of HTTP/2: however they are split, calls are the same; whatever they are, the answer is an orderly end."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca._net.http2.frames import FrameType, encode_frame
from eruca._net.http2.hpacktables import _BEGINS, _CODE_BITS, SYMBOLS, SYMBOLS_BEGIN, CompressionError
from tests.kernels import load_twins
from tests.unit.net.http2.rawclient import (
    HEAD,
    HELLO,
    Wire,
    call,
    data,
    encode_fields,
    headers,
    message,
    reset,
    widen,
)
from tests.unit.net.http2.rawclient import settings as encode_settings

FIELDS = encode_fields(HEAD)
CONVERSATION = b"".join(
    (
        HELLO,
        encode_settings(initial_window_size=50),
        call(1, b"first"),
        headers(3, path="/demo/converse"),
        data(3, message(b"a") + message(b"b" * 100)[:40]),
        encode_frame(FrameType.PING, 0, 0, b"12345678"),
        call(5, b"x" * 200, path="/demo/repeat"),
        data(3, message(b"b" * 100)[40:], end=True),
        encode_frame(FrameType.HEADERS, 0, 7, FIELDS[:30]) + encode_frame(FrameType.CONTINUATION, 4, 7, FIELDS[30:]),
        data(7, message(b"in parts"), end=True),
        call(9, path="/demo/hang") + reset(9),
        call(11, path="/demo/nothing"),
        widen(5, 10_000) + widen(3, 10_000),
        call(13, b"y" * 300),
        widen(13, 1000),
    )
)


async def converse(pieces: list[bytes]) -> tuple[object, ...]:
    """Everything that calls got for some bytes."""
    wire = Wire(says_hello=False)
    for piece in pieces:
        wire.link.data_received(piece)
    for _ in range(20):
        await asyncio.sleep(0)
    wire.read_written()
    assert wire.link.is_idle
    return *(wire.read(stream)[:3] for stream in range(1, 15, 2)), wire.read_goaway(), wire.read_resets()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, len(CONVERSATION) - 1), max_size=30))
def test_calls_do_not_depend_on_how_bytes_are_split(cuts: list[int]) -> None:
    edges = [0, *sorted(set(cuts)), len(CONVERSATION)]
    pieces = [CONVERSATION[begin:end] for begin, end in pairwise(edges)]
    whole = asyncio.run(converse([CONVERSATION]))
    assert whole[2] == (0, "", [b"x" * 200] * 3)
    assert asyncio.run(converse(pieces)) == whole


async def survive(sent: bytes) -> int:
    """Send some bytes and lose the connection; return what is held then."""
    wire = Wire(says_hello=False)
    wire.feed(HELLO, sent)
    await wire.settle()
    assert (wire.read_goaway() is None) is wire.link.is_open
    assert not any("internal error" in said for said in wire.owner.said)
    wire.link.connection_lost(None)
    await wire.settle()
    return wire.link.held_bytes


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 255), st.integers(0, 9), st.binary(max_size=40)), max_size=20)
)
def test_any_frames_end_in_an_orderly_way(frames: list[tuple[int, int, int, bytes]]) -> None:
    assert asyncio.run(survive(b"".join(encode_frame(*frame) for frame in frames))) == 0


def test_a_conversation_with_errors() -> None:
    """Bytes of a good conversation that are changed, removed or repeated."""
    for seed in range(300):
        source = random.Random(seed)
        sent = bytearray(CONVERSATION[len(HELLO) :])
        for _ in range(source.randrange(1, 6)):
            at = source.randrange(len(sent))
            kind = source.randrange(3)
            if kind == 0:
                sent[at] = source.randrange(256)
            elif kind == 1:
                del sent[at : at + source.randrange(1, 20)]
            else:
                sent[at:at] = sent[at : at + source.randrange(1, 20)]
        try:
            assert asyncio.run(survive(bytes(sent))) == 0
        except BaseException:
            print(f"seed {seed}")
            raise


TWINS = load_twins("eruca._net.http2.kernel.hpack")


@settings(deadline=None, max_examples=500)
@given(st.lists(st.binary(max_size=60), max_size=5))
def test_both_decoders_agree_about_any_blocks(blocks: list[bytes]) -> None:
    results = []
    for kernel in TWINS.values():
        decoder, found = kernel.HeaderDecoder(), []
        for block in blocks:
            try:
                found.append(decoder.decode(block, 500))
            except CompressionError as error:
                found.append(str(error))
                break
        results.append((found, decoder.count()))
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("name", sorted(TWINS))
def test_every_text_has_a_huffman_code(name: str) -> None:
    """Encoded with the codes that the table of lengths implies."""

    def encode(text: bytes) -> bytes:
        bits = "".join(
            f"{_BEGINS[size] + SYMBOLS.index(bytes((byte,))) - SYMBOLS_BEGIN[size]:0{size}b}"
            for byte in text
            for size in [_CODE_BITS[byte]]
        )
        bits += "1" * (-len(bits) % 8)
        return int(bits or "0", 2).to_bytes(len(bits) // 8, "big")

    source = random.Random(7)
    for size in [0, 1, 2, 3, 50]:
        for _ in range(50):
            text = bytes(source.choice([source.randrange(256), source.randrange(32, 127)]) for _ in range(size))
            coded = encode(text)
            if len(coded) < 127:
                block = b"\x00\x01a" + bytes((0x80 | len(coded),)) + coded
                assert TWINS[name].HeaderDecoder().decode(block, 1000)[0] == {"a": text.decode("utf-8", "replace")}
