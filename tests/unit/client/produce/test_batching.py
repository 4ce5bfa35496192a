"""Batches: as many messages in one request as fit, in their order, and refused before anything is sent."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from eruca._client.produce.batching import build_batches
from eruca._client.produce.outgoing import Outgoing
from eruca._client.produce.sending import Parcel
from eruca._ground.limits import HEADER_BYTES_MAX, SENT_BATCH_MESSAGES_MAX
from eruca._testing.clock import VirtualClock
from eruca._wire.batch import decode_batch
from eruca._wire.codes import RequestCode
from eruca._wire.frame import encode_command, make_request
from eruca._wire.headers import SendMessageAnswerHeader
from eruca._wire.ids import UniqueIds
from eruca._wire.properties import parse_properties
from eruca.errors import MessageIllegal


def build(messages: list[Outgoing], bytes_max: int = 4 << 20, topic: str = "T", **more: Any) -> list[Parcel]:
    return list(build_batches(topic, messages, UniqueIds("127.0.0.1", 1, VirtualClock()), bytes_max, **more))


def test_one_request_for_all_that_fits() -> None:
    (parcel,) = build([Outgoing(b"1", tags="a", flag=7), Outgoing(b"22", keys=["k"], properties={"p": "q"})])
    assert (parcel.code, parcel.is_batch, parcel.properties) == (
        RequestCode.SEND_BATCH_MESSAGE,
        True,
        "WAIT\x01true",
    )
    first, second = decode_batch(parcel.body)
    assert (first.body, first.flag, second.body, second.flag) == (b"1", 7, b"22", 0)
    ids = [parse_properties(item.properties)["UNIQ_KEY"] for item in (first, second)]
    assert parcel.message_id == ",".join(ids)
    assert len(set(ids)) == 2
    assert parse_properties(first.properties) == {"UNIQ_KEY": ids[0], "WAIT": "true", "TAGS": "a"}
    assert parse_properties(second.properties) == {"UNIQ_KEY": ids[1], "WAIT": "true", "KEYS": "k", "p": "q"}


def test_more_requests_when_it_does_not_fit_and_the_order_stays() -> None:
    bodies = [bytes([number]) * (number * 37 % 400 + 1) for number in range(100)]
    parcels = build([Outgoing(body) for body in bodies], 1000)
    assert len(parcels) > 10
    assert all(len(parcel.body) <= 1000 for parcel in parcels)
    items = [item for parcel in parcels for item in decode_batch(parcel.body)]
    assert [item.body for item in items] == bodies
    # No request could have taken the first message of the next one.
    for parcel, after in itertools.pairwise(parcels):
        first = decode_batch(after.body)[0]
        assert len(parcel.body) + 22 + len(first.body) + len(first.properties) > 1000
    ids = [unique_id for parcel in parcels for unique_id in parcel.message_id.split(",")]
    assert ids == [parse_properties(item.properties)["UNIQ_KEY"] for item in items]


def test_a_request_has_no_more_messages_than_its_answer_can_name() -> None:
    parcels = build([Outgoing(b"x")] * 40_000, 64 << 20)
    counts = [len(decode_batch(parcel.body)) for parcel in parcels]
    assert counts == [SENT_BATCH_MESSAGES_MAX, SENT_BATCH_MESSAGES_MAX, 40_000 - 2 * SENT_BATCH_MESSAGES_MAX]
    # With an IPv6 address an id has 56 characters.
    answer = make_request(0, SendMessageAnswerHeader(",".join(["0" * 56] * counts[0]), 2**31 - 1, 2**63 - 1))
    assert len(encode_command(answer)) <= HEADER_BYTES_MAX


def test_nothing_is_no_request() -> None:
    assert build([]) == []


def test_all_wait_or_none() -> None:
    (parcel,) = build([Outgoing(b"1", wait=False), Outgoing(b"2", wait=False)])
    assert parcel.properties == "WAIT\x01false"
    with pytest.raises(MessageIllegal, match="must agree"):
        build([Outgoing(b"1"), Outgoing(b"2", wait=False)])


def test_own_properties_go_into_each_message() -> None:
    (parcel,) = build([Outgoing(b"1"), Outgoing(b"2")], extra={"INSTANCE_ID": "ns"})
    assert [parse_properties(item.properties)["INSTANCE_ID"] for item in decode_batch(parcel.body)] == ["ns", "ns"]


def test_bodies_of_other_kinds_are_copied_and_the_user_s_message_stays_as_it_is() -> None:
    body: Any = bytearray(b"abc")
    message = Outgoing(body)
    (parcel,) = build([message])
    assert decode_batch(parcel.body)[0].body == b"abc"
    assert message.body is body


@pytest.mark.parametrize(
    ("messages", "topic", "words"),
    [
        ([Outgoing(b"1"), Outgoing(b"2", delay_level=1)], "T", "cannot be delayed"),
        ([Outgoing(b"1")], "%RETRY%group", "retry topic"),
        ([Outgoing(b"1"), Outgoing(b"x" * 500)], "T", "at most 300"),
        ([Outgoing(b"1"), Outgoing(b"x" * 290)], "T", "with its properties has more than 300"),
        ([Outgoing(b"1"), Outgoing(b"")], "T", "empty"),
    ],
)
def test_what_no_batch_can_hold_is_refused_before_the_first(messages: list[Outgoing], topic: str, words: str) -> None:
    with pytest.raises(MessageIllegal, match=words):
        build_batches(topic, messages, UniqueIds("127.0.0.1", 1, VirtualClock()), 300)
