"""The catalog: complete, with a right for every code, and the same both ways."""

from __future__ import annotations

import pytest

from eruca._wire import headers as h
from eruca._wire.batch import BatchItem
from eruca._wire.bodies import BrokerData, DataVersion, HeartbeatData, RegisterBrokerBody, TopicRouteData
from eruca._wire.catalog import (
    CATALOG,
    UNKNOWN,
    Link,
    Right,
    build_request,
    decode_answer,
    decode_request,
    encode_answer_body,
    encode_request_body,
    find_spec,
)
from eruca._wire.codes import (
    VERSION_4_9_3,
    VERSION_4_9_4,
    VERSION_4_9_7,
    Language,
    RequestCode,
    ResponseCode,
    SerializeType,
)
from eruca._wire.frame import Command, FrameBuffer, HeaderError, encode_command, make_request
from eruca.errors import WireError
from tests.encoding import build_answer

ADMIN_IN_JAVA = {
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_TOPIC_IN_BROKER,
}


@pytest.mark.parametrize("code", RequestCode)
def test_every_code_has_a_row_with_a_right(code: RequestCode) -> None:
    spec = CATALOG[code]
    assert spec.meaning
    assert isinstance(spec.right, Right)
    assert (spec.links == ()) == (spec.right is Right.NOBODY)
    assert find_spec(int(code)) is spec
    if Link.BROKER_CLIENT in spec.links:
        assert spec.right in (Right.SERVER, Right.ADMIN)


def test_rows_and_codes_are_the_same_set() -> None:
    assert set(CATALOG) == set(RequestCode)
    assert all(CATALOG[code].right is Right.ADMIN for code in ADMIN_IN_JAVA)


def test_unknown_codes_are_for_nobody() -> None:
    for code in (999, -1, 200052, 2**31 - 1):
        assert find_spec(code) is UNKNOWN
    assert UNKNOWN.right is Right.NOBODY
    assert decode_request(make_request(999)) == (None, None)
    assert decode_request(make_request(999, body=b"raw")) == (None, b"raw")
    assert decode_answer(999, Command(3, flag=1, remark="not supported")) == (None, None)


def test_clients_are_asked_exactly_seven_things_and_ours_an_eighth() -> None:
    asked = {code for code, spec in CATALOG.items() if Link.BROKER_CLIENT in spec.links}
    assert asked == {39, 40, 220, 221, 307, 309, 326} | {RequestCode.TOPICS_CREATED}


def send_header(batch: bool | None) -> h.SendMessageV2Header:
    return h.SendMessageV2Header("g", "T", "TBW102", 4, 0, 0, 1, 0, batch=batch)


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
def test_the_header_says_whether_the_body_is_a_batch(code: RequestCode) -> None:
    items = [BatchItem(flag=0, body=b"one", properties=b"a\x01b\x02"), BatchItem(flag=1, body=b"", properties=b"")]
    header = send_header(True)
    body = encode_request_body(code, items, header, version=VERSION_4_9_7)
    assert decode_request(make_request(code, header, body)) == (header, items)
    plain = send_header(None)
    assert decode_request(make_request(code, plain, b"one")) == (plain, b"one")
    assert encode_request_body(code, b"one", plain, version=VERSION_4_9_7) == b"one"


def test_answers_with_and_without_their_header() -> None:
    pulled = h.PullMessageAnswerHeader(0, 3, 0, 3)
    for code in (0, 19, 20, 21):
        assert decode_answer(11, Command(code, flag=1, ext=pulled)) == (pulled, None)
    refused, body = decode_answer(11, Command(ResponseCode.SUBSCRIPTION_NOT_LATEST, flag=1, ext={}))
    assert type(refused) is h.EmptyHeader
    assert body is None
    assert decode_answer(11, Command(ResponseCode.SYSTEM_ERROR, flag=1, remark="no")) == (None, None)
    with pytest.raises(HeaderError, match=r"PullMessageAnswerHeader: .*suggestWhichBrokerId"):
        decode_answer(11, Command(0, flag=1, ext={}))
    with pytest.raises(HeaderError, match=r"PullMessageAnswerHeader: .*suggestWhichBrokerId"):
        decode_answer(11, Command(0, flag=1))
    stored = h.SendMessageAnswerHeader("ID", 0, 5)
    for code in (0, 10, 11, 12):
        assert decode_answer(310, Command(code, flag=1, ext=stored)) == (stored, None)
    header, _ = decode_answer(310, Command(13, flag=1, ext={"MSG_REGION": "R", "TRACE_ON": "true"}))
    assert header == h.SendRefusedHeader("R", True)


def test_a_request_without_its_header_names_the_field() -> None:
    with pytest.raises(HeaderError, match=r"QueueHeader: .*`topic`"):
        decode_request(make_request(30))
    # Nothing is asked of this one, so nothing is missing.
    assert decode_request(make_request(323)) == (None, None)


def test_the_route_is_written_as_the_requester_can_read_it() -> None:
    route = TopicRouteData(broker_datas=[BrokerData(broker_addrs={0: "h:1"}, broker_name="b")])
    assert b'{"0":' in encode_answer_body(105, route, version=VERSION_4_9_4)
    assert b"{0:" in encode_answer_body(105, route, version=VERSION_4_9_3)
    asked = h.RouteHeader("T", accept_standard_json_only=True)
    assert b'{"0":' in encode_answer_body(105, route, asked, version=VERSION_4_9_3)
    old = make_request(105, h.RouteHeader("T"), version=VERSION_4_9_3)
    assert b"{0:" in build_answer(old, 0, body=route).body
    assert b'{"0":' in build_answer(old, 0, body=route, request_header=asked).body


def test_the_registration_header_says_how_the_body_is_written() -> None:
    body = RegisterBrokerBody(filter_server_list=["f"])
    for compressed in (False, True):
        header = h.RegisterBrokerHeader("b", "h:1", "c", "h:2", 0, compressed=compressed)
        data = encode_request_body(103, body, header, version=VERSION_4_9_7)
        assert (data[:1] == b"{") is not compressed
        (command,) = FrameBuffer().feed(encode_command(make_request(103, header, data)))
        assert decode_request(command) == (header, body)


@pytest.mark.parametrize("serialization", SerializeType)
def test_whole_way_of_a_request_and_its_answer(serialization: SerializeType) -> None:
    heartbeat = HeartbeatData(client_id="c")
    made = build_request(34, body=heartbeat, opaque=5, serialization=serialization)
    (request,) = FrameBuffer().feed(encode_command(made))
    header, body = decode_request(request)
    assert body == heartbeat
    assert header == (None if serialization is SerializeType.JSON else h.EmptyHeader())
    version = DataVersion(1, 2)
    question = build_request(322, h.BrokerHeader("b", "h:1", "c", 0), version, opaque=5, serialization=serialization)
    answer = build_answer(question, 0, h.DataVersionAnswerHeader(True), version, remark="text")
    (again,) = FrameBuffer().feed(encode_command(answer))
    assert again.remark == "text"
    assert (again.opaque, again.language) == (5, Language.PYTHON)
    assert decode_answer(322, again) == (h.DataVersionAnswerHeader(True), version)


def test_bad_bodies_are_wire_errors() -> None:
    for code in (34, 41, 200):
        with pytest.raises(WireError):
            decode_request(make_request(code, body=b"rubbish"))
    with pytest.raises(WireError):
        decode_answer(33, Command(0, flag=1, ext={}, body=b"no record"))


def test_languages_and_codes_have_their_numbers() -> None:
    numbers = {"JAVA": 0, "CPP": 1, "PYTHON": 3, "OTHER": 7, "GO": 9, "RUST": 12}
    assert {name: Language[name].number for name in numbers} == numbers
    assert [Language.from_number(language.number) for language in Language] == list(Language)
    assert {RequestCode.SEND_MESSAGE_V2: 1}[310] == 1  # type: ignore[index]
