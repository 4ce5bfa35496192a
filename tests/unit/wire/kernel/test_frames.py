"""Frames are cut and written the same, compiled and plain, and as the codec says."""

from __future__ import annotations

import json
import struct
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._ground.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from eruca._wire.frame import FrameBuffer
from tests.kernels import load_twins

TWINS = load_twins("eruca._wire.kernel.frames")
each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())
Cut = tuple[int, bytes, bytes]


def make_frame(cut: Cut) -> bytes:
    kind, header, body = cut
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


@each_twin
@given(
    cuts=st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=40), st.binary(max_size=40)), max_size=6),
    before=st.binary(max_size=9),
    count_max=st.integers(1, 7),
    missing=st.integers(0, 9),
)
def test_whole_frames_are_cut_and_the_rest_is_left(
    twin: ModuleType, cuts: list[Cut], before: bytes, count_max: int, missing: int
) -> None:
    frames = [make_frame(cut) for cut in cuts]
    data = before + b"".join(frames)
    data = data[: max(len(before), len(data) - missing)]
    ends = [len(before) + sum(map(len, frames[: number + 1])) for number in range(len(frames))]
    whole = min(count_max, sum(end <= len(data) for end in ends))
    expected = ends[whole - 1] if whole else len(before)
    assert twin.cut_frames(data, len(before), count_max) == (cuts[:whole], expected)


@each_twin
@pytest.mark.parametrize(
    "prefix",
    [
        (3, 0),
        (-1, 0),
        (FRAME_BYTES_MAX - 3, 10),
        (2**31 - 1, 10),
        (50, 47),
        (HEADER_BYTES_MAX + 5, HEADER_BYTES_MAX + 1),
        (20, 2 << 24 | 10),
        (20, 0xFF << 24 | 10),
    ],
)
def test_what_is_not_a_frame_is_left(twin: ModuleType, prefix: tuple[int, int]) -> None:
    good = make_frame((0, b"{}", b"body"))
    data = good + struct.pack(">iI", *prefix) + bytes(100)
    assert twin.cut_frames(data, 0, 10) == ([(0, b"{}", b"body")], len(good))


@each_twin
@given(
    time_ms=st.integers(-(2**63) + 1, 2**63 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    properties=st.text(max_size=300),
    body=st.binary(max_size=300),
)
def test_a_request_is_a_frame_of_its_parts(
    twin: ModuleType, time_ms: int, opaque: int, properties: str, body: bytes
) -> None:
    texts = (b'{"code":310,"extFields":{"g":"', b'","i":', b'},"opaque":', b',"version":407}')
    before, between, behind, last = texts
    quoted = json.dumps(properties).encode()
    frame = twin.encode_send(before, time_ms, between, quoted, behind, opaque, last, body)
    (command,) = FrameBuffer().feed(frame)
    assert (command.code, command.opaque, command.body) == (310, opaque, body)
    assert json.loads(frame[8 : len(frame) - len(body)])["extFields"] == {"g": str(time_ms), "i": properties}
