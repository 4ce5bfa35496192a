"""Frames and commands: what is accepted, what is refused and how early, and what is written."""

from __future__ import annotations

import json
import struct

import msgspec
import pytest

from eruca._ground.limits import EXT_FIELDS_MAX, FRAME_BYTES_MAX, HEADER_BYTES_MAX
from eruca._wire.codes import FLAG_ONEWAY, FLAG_RESPONSE, VERSION_4_9_7, Language, RequestCode, SerializeType
from eruca._wire.frame import Command, FrameBuffer, FrameError, HeaderError, encode_command, make_request
from eruca._wire.headers import (
    OffsetAnswerHeader,
    PullMessageHeader,
    QueueHeader,
    SendMessageAnswerHeader,
    SendMessageHeader,
    SendMessageV2Header,
    TopicHeader,
    UnregisterClientHeader,
)


def frame(header: bytes | str, body: bytes = b"", kind: int = 0) -> bytes:
    raw = header.encode() if isinstance(header, str) else header
    return struct.pack(">iI", 4 + len(raw) + len(body), kind << 24 | len(raw)) + raw + body


def feed_one(data: bytes) -> Command:
    (command,) = FrameBuffer().feed(data)
    return command


def binary_header(ext: bytes = b"", remark: bytes = b"", code: int = 30, language: int = 0) -> bytes:
    fixed = struct.pack(">hbhiii", code, language, 407, 77, 0, len(remark))
    return fixed + remark + struct.pack(">i", len(ext)) + ext


def binary_entry(key: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value


SAMPLES = [
    make_request(RequestCode.HEART_BEAT, body=b'{"clientID":"c"}', opaque=1),
    make_request(RequestCode.GET_MAX_OFFSET, QueueHeader("T", 3), opaque=2, serialization=SerializeType.ROCKETMQ),
    make_request(RequestCode.GET_MAX_OFFSET, QueueHeader("T", 3, broker_name="b"), opaque=-3, oneway=True),
    Command(0, Language.GO, 317, 9, FLAG_RESPONSE, "ünïcode \u2028", OffsetAnswerHeader(5), b"\x00" * 3000),
    Command(0, Language.CPP, 333, 9, FLAG_RESPONSE, "", {}, b"", SerializeType.ROCKETMQ),
]
STREAM = b"".join(map(encode_command, SAMPLES))


# --- feeding --------------------------------------------------------------------------------------------------------


def test_many_frames_in_one_read() -> None:
    commands = FrameBuffer().feed(STREAM * 50)
    assert len(commands) == 50 * len(SAMPLES)
    assert b"".join(map(encode_command, commands)) == STREAM * 50


@pytest.mark.parametrize("step", [1, 2, 3, 7, 8, 9, 100, 1000, 4096])
def test_pieces_give_what_the_whole_gives(step: int) -> None:
    buffer = FrameBuffer()
    commands: list[Command] = []
    for start in range(0, len(STREAM), step):
        commands += buffer.feed(STREAM[start : start + step])
    assert buffer.buffered_bytes == 0
    assert commands == FrameBuffer().feed(STREAM)
    assert all(type(command.body) is bytes for command in commands)


def test_a_read_may_end_anywhere() -> None:
    whole = FrameBuffer().feed(STREAM)
    for cut in range(len(STREAM) + 1):
        buffer = FrameBuffer()
        assert buffer.feed(STREAM[:cut]) + buffer.feed(STREAM[cut:]) == whole


def test_nothing_fed_gives_nothing() -> None:
    buffer = FrameBuffer()
    assert buffer.feed(b"") == []
    assert buffer.feed(STREAM[:5]) == []
    assert buffer.feed(b"") == []
    assert buffer.buffered_bytes == 5


def test_a_large_frame_is_collected_without_copying_it_over_and_over() -> None:
    command = make_request(RequestCode.SEND_MESSAGE_V2, body=bytes(FRAME_BYTES_MAX - 4096))
    data = encode_command(command)
    buffer = FrameBuffer()
    commands: list[Command] = []
    for start in range(0, len(data), 65536):
        assert buffer.buffered_bytes <= FRAME_BYTES_MAX
        commands += buffer.feed(data[start : start + 65536])
    assert [len(command.body) for command in commands] == [FRAME_BYTES_MAX - 4096]
    assert buffer.buffered_bytes == 0


def test_the_largest_frame_is_accepted_and_one_byte_more_is_not() -> None:
    header = b'{"code":1}'
    largest = frame(header, bytes(FRAME_BYTES_MAX - 8 - len(header)))
    assert len(largest) == FRAME_BYTES_MAX
    assert len(FrameBuffer().feed(largest)) == 1
    with pytest.raises(FrameError, match="at most 16777216 are allowed"):
        FrameBuffer().feed(frame(header, bytes(FRAME_BYTES_MAX - 7 - len(header))))


# --- refusing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "text"),
    [
        (struct.pack(">i", 0), "a frame of 0 bytes has no room for its header length"),
        (struct.pack(">i", 3), "a frame of 3 bytes has no room"),
        (struct.pack(">i", -1), "a frame of -1 bytes has no room"),
        (bytes.fromhex("1603010200010001"), "it uses TLS, which is not accepted here"),
        (struct.pack(">i", FRAME_BYTES_MAX - 3), "a frame of 16777217 bytes was announced, at most 16777216"),
        (struct.pack(">i", 2**31 - 1), "a frame of 2147483651 bytes was announced"),
        (b"GET / HTTP/1.1\r\n", "bytes was announced"),
        (struct.pack(">iI", 100, 2 << 24 | 50), "header type 2 is neither JSON \\(0\\) nor binary \\(1\\)"),
        (struct.pack(">iI", 100, 0xFF << 24), "header type 255"),
        (struct.pack(">iI", 2**21, HEADER_BYTES_MAX + 1), "a header of 1048577 bytes was announced, at most 1048576"),
        (struct.pack(">iI", 100, 97), "a header of 97 bytes does not fit in a frame of 100 bytes"),
        (struct.pack(">iI", 4, 1), "a header of 1 bytes does not fit in a frame of 4 bytes"),
    ],
)
def test_lengths_are_refused_before_anything_is_buffered(prefix: bytes, text: str) -> None:
    with pytest.raises(FrameError, match=text):
        FrameBuffer().feed(prefix)
    buffer = FrameBuffer()
    with pytest.raises(FrameError, match=text):
        for byte in prefix:
            buffer.feed(bytes([byte]))
    assert buffer.buffered_bytes == 0
    with pytest.raises(FrameError, match=text):
        FrameBuffer().feed(STREAM + prefix)


def test_an_oversize_frame_is_refused_at_its_fourth_byte() -> None:
    buffer = FrameBuffer()
    announced = struct.pack(">i", FRAME_BYTES_MAX)
    assert buffer.feed(announced[:3]) == []
    with pytest.raises(FrameError):
        buffer.feed(announced[3:])


def test_an_oversize_header_is_refused_at_its_eighth_byte() -> None:
    buffer = FrameBuffer()
    announced = struct.pack(">iI", FRAME_BYTES_MAX - 4, HEADER_BYTES_MAX + 1)
    assert buffer.feed(announced[:7]) == []
    with pytest.raises(FrameError):
        buffer.feed(announced[7:])


def test_commands_before_the_bad_bytes_are_not_lost() -> None:
    with pytest.raises(FrameError) as caught:
        FrameBuffer().feed(STREAM + b"\xff" * 8)
    assert caught.value.commands == FrameBuffer().feed(STREAM)


def test_after_a_bad_frame_everything_is_refused() -> None:
    buffer = FrameBuffer()
    with pytest.raises(FrameError):
        buffer.feed(b"\xff" * 8)
    with pytest.raises(FrameError, match="the connection had a bad frame before: a frame of -1 bytes"):
        buffer.feed(STREAM)
    assert buffer.buffered_bytes == 0


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"", "the JSON header cannot be read: Input data was truncated"),
        (b"{", "the JSON header cannot be read"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `code`"),
        (b'{"code":"x"}', "Expected `int`, got `str` - at `\\$.code`"),
        (b'{"code":1,"opaque":3000000000}', "at `\\$.opaque`"),
        (b'{"code":1,"flag":[]}', "at `\\$.flag`"),
        (b'{"code":1,"remark":"\xff"}', "the JSON header cannot be read"),
        (b'{"code":1}x', "the JSON header cannot be read"),
        (b"[" * 100_000, "Expected `object`, got `array`"),
        (b'{"code":1,"extFields":{"topic":"\\ud800"}}', "the JSON header cannot be read"),
        (b'{"code":1,"x":' + b'{"a":' * 100_000, "recursion"),
        (b'{"code":1,"remark":' + b"[" * 100_000, "recursion"),
        (b'{"code":1,"extFields":' + b"[" * 100_000, "recursion"),
    ],
)
def test_bad_json_headers(header: bytes, text: str) -> None:
    with pytest.raises(FrameError, match=text):
        FrameBuffer().feed(frame(header))


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"\0" * 20, "at least 21 bytes, this one has 20"),
        (binary_header()[:13] + struct.pack(">ii", 1, 0), "the remark length 1 does not fit"),
        (binary_header()[:13] + struct.pack(">ii", -1, 0), "the remark length -1 does not fit"),
        (binary_header()[:17] + struct.pack(">i", 5), "the ext block length is 5, but 0 bytes are left"),
        (binary_header() + b"x", "the ext block length is 0, but 1 bytes are left"),
        (binary_header(b"\0"), "ends inside a key length"),
        (binary_header(b"\x00\x05ab"), "the ext key length 5 does not fit"),
        (binary_header(b"\xff\xff" + b"\0" * 8), "the ext key length -1 does not fit"),
        (binary_header(b"\x00\x01a\x00\x00\x00\x09b"), "the ext value length 9 does not fit"),
        (binary_header(b"\x00\x01a\xff\xff\xff\xff"), "the ext value length -1 does not fit"),
        (binary_header(binary_entry(b"a", b"\xff")), "text that is not UTF-8"),
        (binary_header(binary_entry(b"\xff", b"a")), "text that is not UTF-8"),
        (binary_header(remark=b"\xff"), "text that is not UTF-8"),
        (binary_header(binary_entry(b"", b"") * (EXT_FIELDS_MAX + 1)), "more than 256 fields"),
    ],
)
def test_bad_binary_headers(header: bytes, text: str) -> None:
    with pytest.raises(FrameError, match=text):
        FrameBuffer().feed(frame(header, kind=1))


# --- tolerance ------------------------------------------------------------------------------------------------------


def test_the_shortest_json_header() -> None:
    command = feed_one(frame('{"code":0,"opaque":7,"flag":1}'))
    assert (command.code, command.opaque, command.is_response) == (0, 7, True)
    assert (command.language, command.version, command.remark, command.ext) == (Language.JAVA, 0, None, None)
    assert command.body == b""


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ('"GO"', Language.GO),
        ('"NODE_JS"', Language.OTHER),
        ("9", Language.GO),
        ("99", Language.OTHER),
        ("-1", Language.OTHER),
        ("null", Language.JAVA),
        ("[]", Language.OTHER),
    ],
)
def test_languages(language: str, expected: Language) -> None:
    assert feed_one(frame(f'{{"code":1,"language":{language}}}')).language is expected


def test_unknown_keys_are_ignored_and_do_not_reach_the_command() -> None:
    command = feed_one(
        frame(
            '{"code":1,"body":"eA==","serialization":1,"serializeTypeCurrentRPC":"ROCKETMQ","new":{"a":[1]},"ext":{}}',
            b"real",
        )
    )
    assert command.body == b"real"
    assert command.serialization is SerializeType.JSON
    assert command.ext is None


def test_nulls_and_numbers_as_strings_in_the_envelope() -> None:
    command = feed_one(
        frame('{"code":"34","flag":null,"opaque":"5","version":null,"remark":null,"extFields":null,"language":null}')
    )
    assert (command.code, command.flag, command.opaque, command.version) == (34, 0, 5, 0)
    assert not command.has_ext
    assert feed_one(frame('{"code":1,"remark":5}')).remark == "5"


def test_ext_values_that_are_not_strings() -> None:
    command = feed_one(frame('{"code":30,"extFields":{"topic":3,"queueId":7,"bname":null,"x":true,"y":1.5,"z":false}}'))
    assert command.ext_dict() == {"topic": "3", "queueId": "7", "x": "true", "y": "1.5", "z": "false"}
    assert command.decode_header(QueueHeader) == QueueHeader("3", 7)


def test_binary_language_and_empty_texts() -> None:
    header = binary_header(binary_entry(b"topic", b"") + binary_entry(b"queueId", b"1"), language=77)
    command = feed_one(frame(header, kind=1))
    assert command.language is Language.OTHER
    assert command.remark is None
    assert command.ext_dict() == {"topic": "", "queueId": "1"}
    assert command.decode_header(QueueHeader) == QueueHeader("", 1)


def test_each_frame_is_read_by_its_own_type_byte() -> None:
    commands = FrameBuffer().feed(frame('{"code":1}') + frame(binary_header(), kind=1) + frame('{"code":2}'))
    assert [command.code for command in commands] == [1, 30, 2]
    assert [command.serialization for command in commands] == [0, 1, 0]


# --- typed headers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ext", "text"),
    [
        ("{}", "QueueHeader: Object missing required field `topic`"),
        ('{"topic":"T"}', "missing required field `queueId`"),
        ('{"topic":null,"queueId":"1"}', "missing required field `topic`"),
        ('{"topic":"T","queueId":"one"}', "Expected `int`, got `str` - at `\\$.queueId`"),
        ('{"topic":"T","queueId":""}', "at `\\$.queueId`"),
        ('{"topic":"T","queueId":"2147483648"}', "at `\\$.queueId`"),
        ('{"topic":"T","queueId":"99999999999999999999999"}', "at `\\$.queueId`"),
        ('{"topic":{},"queueId":"1"}', "extFields is not an object of strings"),
        ("[]", "extFields is not an object of strings"),
        ('"text"', "extFields is not an object of strings"),
    ],
)
def test_bad_ext_names_the_field(ext: str, text: str) -> None:
    command = feed_one(frame(f'{{"code":30,"extFields":{ext}}}'))
    with pytest.raises(HeaderError, match=text):
        command.decode_header(QueueHeader)


def test_missing_ext_is_an_empty_one() -> None:
    command = feed_one(frame('{"code":30}'))
    assert command.ext_dict() == {}
    with pytest.raises(HeaderError, match="missing required field `topic`"):
        command.decode_header(QueueHeader)


def test_bad_binary_ext_names_the_field() -> None:
    header = binary_header(binary_entry(b"topic", b"T") + binary_entry(b"queueId", b"x"))
    with pytest.raises(HeaderError, match=r"at `\$.queueId`"):
        feed_one(frame(header, kind=1)).decode_header(QueueHeader)


def test_invalid_utf8_in_ext_is_a_header_error() -> None:
    command = feed_one(frame(b'{"code":30,"extFields":{"topic":"\xff","queueId":"1"}}'))
    with pytest.raises(HeaderError):
        command.decode_header(QueueHeader)


def test_a_flood_of_ext_fields_is_refused() -> None:
    flood = json.dumps({f"k{number}": "v" for number in range(EXT_FIELDS_MAX + 1)})
    command = feed_one(frame(f'{{"code":30,"extFields":{flood}}}'))
    with pytest.raises(HeaderError, match="257 fields, at most 256"):
        command.ext_dict()


def test_undeclared_ext_does_not_disturb_and_is_not_lost() -> None:
    ext = {"topic": "T", "AccessKey": "me", "Signature": "s", "SecurityToken": None}
    command = feed_one(frame(json.dumps({"code": 202, "extFields": ext})))
    assert command.decode_header(TopicHeader) == TopicHeader("T")
    assert command.ext_dict() == {"topic": "T", "AccessKey": "me", "Signature": "s"}
    assert json.loads(encode_command(command)[8:])["extFields"] == ext


def test_a_command_of_ours_gives_its_header_back() -> None:
    header = QueueHeader("T", 3)
    assert make_request(30, header).decode_header(QueueHeader) is header
    assert make_request(30, header).ext_dict() == {"topic": "T", "queueId": "3"}
    assert make_request(30, header).decode_header(TopicHeader) == TopicHeader("T")


# --- making and writing ---------------------------------------------------------------------------------------------


def test_request_and_answer() -> None:
    request = make_request(30, QueueHeader("T", 3), opaque=8, serialization=SerializeType.ROCKETMQ)
    assert (request.is_response, request.is_oneway, request.version) == (False, False, VERSION_4_9_7)
    assert make_request(15, oneway=True).flag == FLAG_ONEWAY
    answer = request.answer(0, OffsetAnswerHeader(5), b"body", remark="text")
    assert answer.is_response
    assert (answer.opaque, answer.serialization, answer.remark) == (8, SerializeType.ROCKETMQ, "text")
    again = feed_one(encode_command(answer))
    assert again.decode_header(OffsetAnswerHeader) == OffsetAnswerHeader(5)
    assert again.body == b"body"


def test_json_is_written_as_fastjson_writes_it() -> None:
    header = UnregisterClientHeader(client_id='a/b"\\\u0001\u0002\n中\u2028\u2029')
    data = encode_command(make_request(35, header, opaque=4, language=Language.JAVA))
    assert data[8:].decode() == (
        '{"code":35,"extFields":{"clientID":"a/b\\"\\\\\\u0001\\u0002\\n中\\u2028\\u2029"},"flag":0,"language":"JAVA",'
        '"opaque":4,"serializeTypeCurrentRPC":"JSON","version":407}'
    )


def test_binary_sample_of_the_specification() -> None:
    answer = Command(
        0, Language.JAVA, 407, 0x4D, FLAG_RESPONSE, None, OffsetAnswerHeader(5), b"", SerializeType.ROCKETMQ
    )
    assert encode_command(answer)[8:].hex() == (
        "0000000197" + "0000004d" + "00000001" + "00000000" + "0000000d" + "0006" + b"offset".hex() + "00000001" + "35"
    )


def test_raw_ext_can_be_written_in_binary() -> None:
    command = feed_one(frame('{"code":30,"extFields":{"topic":"T","queueId":1}}'))
    command.serialization = SerializeType.ROCKETMQ
    assert feed_one(encode_command(command)).ext == {"topic": "T", "queueId": "1"}


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (Command(200050, serialization=SerializeType.ROCKETMQ), "the header cannot be written"),
        (Command(1, remark="\ud800"), "the header cannot be written"),
        (Command(1, remark="\ud800", serialization=SerializeType.ROCKETMQ), "the header cannot be written"),
        (Command(1, ext={"k" * 40000: ""}, serialization=SerializeType.ROCKETMQ), "the header cannot be written"),
        (Command(1, remark="x" * HEADER_BYTES_MAX), "the header has .* at most 1048576"),
        (Command(1, body=bytes(FRAME_BYTES_MAX)), "the frame has .* at most 16777216"),
    ],
)
def test_what_does_not_fit_is_not_written(command: Command, text: str) -> None:
    with pytest.raises(FrameError, match=text):
        encode_command(command)


def test_both_send_headers_have_the_same_attributes() -> None:
    assert set(SendMessageHeader.__struct_fields__) == set(SendMessageV2Header.__struct_fields__)
    assert SendMessageV2Header.__struct_encode_fields__ == tuple("abcdefghijklmn")


def test_headers_java_writes_by_hand_keep_their_order() -> None:
    answer = SendMessageAnswerHeader("ID", 1, 2, region="DefaultRegion", trace_on=True)
    binary = feed_one(encode_command(Command(0, ext=answer, serialization=SerializeType.ROCKETMQ)))
    assert list(binary.ext_dict()) == ["msgId", "queueId", "queueOffset", "TRACE_ON", "MSG_REGION"]
    text = feed_one(encode_command(Command(0, ext=answer)))
    assert list(text.ext_dict()) == ["queueId", "TRACE_ON", "MSG_REGION", "msgId", "queueOffset"]
    assert PullMessageHeader.__struct_encode_fields__[-1] == "bname"


def test_command_is_lean() -> None:
    assert not hasattr(Command(1), "__dict__")
    assert isinstance(feed_one(frame('{"code":1,"extFields":{}}')).ext, msgspec.Raw)


@pytest.mark.parametrize("most", [1, 3, 1000])
@pytest.mark.parametrize("cut", [1, 100, 301, 10_000])
def test_frames_are_given_some_at_a_time(most: int, cut: int) -> None:
    """A caller that has to share its time takes a few commands of a read, and the others later, in the same order."""
    data = b"".join([encode_command(make_request(34, body=bytes(number % 7), opaque=number)) for number in range(40)])
    buffer = FrameBuffer()
    found: list[int] = []
    for at in range(0, len(data), cut):
        found += [command.opaque for command in buffer.feed(data[at : at + cut], most)]
        if at % 2:
            continue  # more arrives before everything was examined
        while buffer.has_more:
            commands = buffer.feed(b"", most)
            assert len(commands) <= most
            found += [command.opaque for command in commands]
    while buffer.has_more:
        found += [command.opaque for command in buffer.feed(b"", most)]
    assert found == list(range(40))
    assert buffer.buffered_bytes == 0


def test_bad_bytes_are_found_when_their_turn_comes() -> None:
    buffer = FrameBuffer()
    good = encode_command(make_request(34, opaque=1))
    assert [command.opaque for command in buffer.feed(good * 3 + b"GET / HTTP/1.1\r\n", 2)] == [1, 1]
    assert buffer.has_more
    with pytest.raises(FrameError) as caught:
        buffer.feed(b"", 2)
    assert [command.opaque for command in caught.value.commands] == [1]
    assert not buffer.has_more
