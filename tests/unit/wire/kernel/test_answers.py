"""The answer to a send is what the codec writes, compiled and plain."""

from __future__ import annotations

import json
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._wire.frame import FrameBuffer
from eruca._wire.headers import SendMessageAnswerHeader
from tests.kernels import load_twins

TWINS = load_twins("eruca._wire.kernel.answers")
each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())


@each_twin
@given(
    code=st.sampled_from([0, 10, 11, 12]),
    queue_id=st.integers(0, 2**31 - 1),
    ids=st.sampled_from(["", "7F00000100002A9F0000000000000123", "A,B"]),
    offset=st.integers(-1, 2**63 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    region=st.sampled_from(["DefaultRegion", "é" * 300, ""]),
)
def test_answers_are_frames_that_say_where(
    twin: ModuleType, code: int, queue_id: int, ids: str, offset: int, opaque: int, region: str
) -> None:
    told = f'","TRACE_ON":"true","MSG_REGION":"{region}","msgId":"'.encode()
    frame = twin.encode_stored(code, queue_id, told, ids, offset, opaque)
    (command,) = FrameBuffer().feed(frame)
    assert (command.code, command.opaque, command.is_response, command.body) == (code, opaque, True, b"")
    assert command.decode_header(SendMessageAnswerHeader) == SendMessageAnswerHeader(
        message_id=ids, queue_id=queue_id, queue_offset=offset, region=region, trace_on=True
    )
    assert list(json.loads(frame[8:])["extFields"]) == ["queueId", "TRACE_ON", "MSG_REGION", "msgId", "queueOffset"]
