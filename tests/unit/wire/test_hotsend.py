"""Sends the quick way: what is taken for an ordinary message is one, and answers are what the codec writes."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.broker.mapping import TIMER_MARK
from eruca.broker.once import RAW_ONCE_MARK
from eruca.broker.send import SendHandlers
from eruca.wire import hotsend
from eruca.wire.frame import FrameBuffer
from eruca.wire.headers import SendMessageAnswerHeader
from tests.unit.wire.test_hot import load_source

TWINS = {
    "built": hotsend,
    "plain": load_source("hotsend", with_cython=True),
    "bare": load_source("hotsend", with_cython=False),
}
each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())

ADDED = b"CLUSTER\x01c"
UNIQUE = "UNIQ_KEY\x017F000001"
WORDS = ("WAIT", "true", "false", "DELAY", "CLUSTER", "TRAN_MSG", "TIMER_DELAY_MS", "ERUCA_ONCE", "T", "é", "\0", "k")


class Handlers:
    """As much of the send handlers as their way of adding the cluster needs."""

    _cluster_property = ADDED


def join_plainly(raw: bytes) -> bytes:
    """The properties of a message that is neither delayed nor half, the long way."""
    return SendHandlers._add_cluster(cast(Any, Handlers()), raw, drop_wait=True)


@each_twin
@pytest.mark.parametrize(
    ("properties", "stored"),
    [
        (UNIQUE, f"{UNIQUE}\x02CLUSTER\x01c"),
        (f"{UNIQUE}\x02", f"{UNIQUE}\x02CLUSTER\x01c"),
        (f"{UNIQUE}\x02WAIT\x01true", f"{UNIQUE}\x02CLUSTER\x01c"),
        (f"{UNIQUE}\x02WAIT\x01true\x02TAGS\x01é", f"{UNIQUE}\x02TAGS\x01é\x02CLUSTER\x01c"),
        (f"{UNIQUE}\x02WAIT\x01true\x02TAGS\x01a\x02", f"{UNIQUE}\x02TAGS\x01a\x02CLUSTER\x01c"),
        ("DELAYED\x011\x02xWAIT", "DELAYED\x011\x02xWAIT\x02CLUSTER\x01c"),
    ],
)
def test_ordinary_properties_lose_wait_and_get_the_cluster(twin: ModuleType, properties: str, stored: str) -> None:
    assert twin.take_ordinary(properties, ADDED) == stored.encode() == join_plainly(properties.encode())


@each_twin
@pytest.mark.parametrize(
    "properties",
    [
        "",
        "\x02WAIT\x01true",
        "WAIT\x01true",
        f"WAIT\x01true\x02{UNIQUE}",
        f"{UNIQUE}\x02WAIT\x01false",
        f"{UNIQUE}\x02WAIT\x01trueish",
        f"{UNIQUE}\x02WAIT\x01tru",
        f"{UNIQUE}\x02AWAIT\x01true",
        f"{UNIQUE}\x02WAIT\x01true\x02WAIT\x01true",
        f"{UNIQUE}\x02DELAY\x013",
        f"{UNIQUE}\x02TRAN_MSG\x01true",
        f"{UNIQUE}\x02CLUSTER\x01other",
        f"{UNIQUE}\x02ERUCA_ONCE\x01a",
        f"{UNIQUE}\x02TIMER_DELAY_MS\x011",
        "DELAY\x011",
        "TIMER_DELIVER_MS\x011",
    ],
)
def test_a_message_that_may_go_another_way_is_not_ordinary(twin: ModuleType, properties: str) -> None:
    assert twin.take_ordinary(properties, ADDED) is None


@each_twin
@given(parts=st.lists(st.sampled_from(["\x01", "\x02", *WORDS]), max_size=14))
def test_whatever_is_taken_for_ordinary_is(twin: ModuleType, parts: list[str]) -> None:
    raw = "".join(parts).encode()
    found = twin.take_ordinary("".join(parts), ADDED)
    assert found == hotsend.take_ordinary("".join(parts), ADDED)
    if found is not None:
        assert found == join_plainly(raw)
        marks = (b"WAIT\x01false", b"DELAY\x01", b"TRAN_MSG\x01true", TIMER_MARK, RAW_ONCE_MARK)
        assert not [mark for mark in marks if mark in raw]


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
