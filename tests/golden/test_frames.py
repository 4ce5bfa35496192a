"""Every recorded frame of the Java peers: bytes to typed objects, and from those alone to the same frame again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eruca._wire import fastjson
from eruca._wire.batch import BatchItem
from eruca._wire.bodies import ConsumerRunningInfo, JsonBody
from eruca._wire.catalog import (
    UNKNOWN,
    RequestSpec,
    decode_answer,
    decode_request,
    encode_answer_body,
    encode_request_body,
    find_spec,
)
from eruca._wire.codes import Language, RequestCode, SerializeType
from eruca._wire.frame import Command, FrameBuffer, encode_command
from eruca._wire.headers import EmptyHeader, Header
from eruca._wire.record import Record
from tests.paths import GOLDEN

Row = dict[str, Any]


def read_rows(name: str) -> list[Row]:
    with (GOLDEN / name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def name_row(number: int, row: Row) -> str:
    code = row["requestCode"]
    name = RequestCode(code).name if code in RequestCode._value2member_map_ else f"UNKNOWN_{code}"
    answer = f"-{row['responseCode']}" if row["kind"] == "response" else ""
    return f"{number:03}-{name}-{row['kind']}{answer}-{row['link']}"


JSON_ROWS = read_rows("frames.jsonl")
BINARY_ROWS = read_rows("frames-rocketmq.jsonl")
ROWS = [pytest.param(row, id=f"json-{name_row(number, row)}") for number, row in enumerate(JSON_ROWS)]
ROWS += [pytest.param(row, id=f"binary-{name_row(number, row)}") for number, row in enumerate(BINARY_ROWS)]


# What follows the stack dump: one queue, one topic, all the fields of the specification.
RUNNING_INFO_ENDING = (
    b'","mqTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"cachedMsgCount":1,"cachedMsgMaxOffset":2,'
    b'"cachedMsgMinOffset":3,"cachedMsgSizeInMiB":4,"commitOffset":5,"droped":false,"lastConsumeTimestamp":6,'
    b'"lastLockTimestamp":7,"lastPullTimestamp":8,"locked":true,"transactionMsgCount":9,"transactionMsgMaxOffset":10,'
    b'"transactionMsgMinOffset":11,"tryUnlockTimes":12}},"properties":{"PROP_CONSUMEORDERLY":"false"},'
    b'"statusTable":{"T":{"consumeFailedMsgs":1,"consumeFailedTPS":0.0,"consumeOKTPS":0.016666666666666666,'
    b'"consumeRT":1.5,"pullRT":2.0,"pullTPS":3.25}},"subscriptionSet":[{"classFilterMode":false,"codeSet":[],'
    b'"expressionType":"TAG","subString":"*","subVersion":1794727735697,"tagsSet":[],"topic":"T"}]}'
)


def is_cut(row: Row) -> bool:
    """The recorder kept the first 64 KiB of a frame only; two stack dumps are longer."""
    return int(row["rawLen"]) * 2 != len(row["rawHex"])


def complete(row: Row) -> bytes:
    """Return the whole frame. Where the recording is cut inside the stack dump, end that string and the object, and pad
    with blanks up to the length the frame announces."""
    raw = bytes.fromhex(row["rawHex"])
    if not is_cut(row):
        return raw
    assert row["requestCode"] == RequestCode.GET_CONSUMER_RUNNING_INFO
    raw = raw[: raw.rindex(b"\\n")]
    return raw + RUNNING_INFO_ENDING + b" " * (int(row["rawLen"]) - len(raw) - len(RUNNING_INFO_ENDING))


def feed_one(raw: bytes) -> Command:
    buffer = FrameBuffer()
    (command,) = buffer.feed(raw)
    assert buffer.buffered_bytes == 0
    return command


def split(raw: bytes) -> tuple[bytes, bytes]:
    header_end = 8 + int.from_bytes(raw[5:8], "big")
    return raw[8:header_end], raw[header_end:]


def test_both_files_are_whole() -> None:
    assert len(JSON_ROWS) == 185
    assert len(BINARY_ROWS) == 61


@pytest.mark.parametrize("row", ROWS)
def test_frame_is_read_as_recorded(row: Row) -> None:
    command = feed_one(complete(row))
    recorded = row["header"]
    binary = row["serializeType"] == "ROCKETMQ"
    assert command.serialization is (SerializeType.ROCKETMQ if binary else SerializeType.JSON)
    assert command.code == recorded["code"]
    assert command.language is (
        Language.from_number(recorded["language"]) if binary else Language[recorded["language"]]
    )
    assert command.version == recorded["version"]
    assert command.opaque == recorded["opaque"]
    assert command.flag == recorded["flag"]
    assert command.remark == recorded.get("remark")
    assert command.is_response == (row["kind"] == "response")
    assert command.is_oneway == (row["kind"] == "oneway")
    assert command.has_ext == ("extFields" in recorded)
    assert command.ext_dict() == recorded.get("extFields", {})
    assert len(command.body) == row["bodyLen"]
    if not is_cut(row):
        assert command.body.hex() == (row["bodyHex"] or "")
    text = row["bodyText"]
    if isinstance(text, str):
        assert command.body.decode() == text
    elif text is not None:
        assert fastjson.parse(command.body) == text


@pytest.mark.parametrize("row", ROWS)
def test_frame_goes_through_types_and_back(row: Row) -> None:
    raw = complete(row)
    command = feed_one(raw)
    code = row["requestCode"]
    spec = find_spec(code)
    assert (spec is UNKNOWN) == (code == 999)
    if command.is_response:
        header, body = decode_answer(code, command)
        declared = spec.answer if command.code in spec.answered else spec.refusal
        codec = spec.answer_body
    else:
        header, body = decode_request(command)
        declared = spec.header
        codec = spec.body

    check_header(row, header, declared)
    check_body(command, body, codec.produces if codec is not None else ())

    if command.is_response:
        written = encode_answer_body(code, body, header, version=command.version)
    else:
        written = encode_request_body(code, body, header, version=command.version)
    again = encode_command(
        Command(
            command.code,
            command.language,
            command.version,
            command.opaque,
            command.flag,
            command.remark,
            header,
            written,
            command.serialization,
        )
    )
    check_equal(raw, again, command, isinstance(body, JsonBody))


def check_header(row: Row, header: Header | None, declared: type[Header]) -> None:
    if "extFields" not in row["header"]:
        assert header is None
        return
    assert type(header) is declared
    if declared is EmptyHeader:
        assert row["header"]["extFields"] == {}
    else:
        assert set(row["header"]["extFields"]) <= set(declared.__struct_encode_fields__)


def check_body(command: Command, body: object, produces: tuple[type[Any], ...]) -> None:
    if not command.body:
        assert body is None
        return
    assert type(body) in produces
    if isinstance(body, list):
        assert body
        assert all(type(item) in (Record, BatchItem) for item in body)
    if type(body) is dict:
        assert body
        assert all(type(item) is str for item in body.values())


def check_equal(raw: bytes, again: bytes, command: Command, body_is_json: bool) -> None:
    header_before, body_before = split(raw)
    header_after, body_after = split(again)
    # JSON headers need not be equal to the byte, but they are, down to the order of Java's hash map.
    assert header_after == header_before
    if body_is_json:
        assert fastjson.parse(body_after) == fastjson.parse(body_before)
    else:
        assert body_after == body_before
        assert raw[:8] == again[:8]


@pytest.mark.parametrize("row", [row for row in ROWS if not is_cut(row.values[0])])  # type: ignore[arg-type]
def test_undecoded_ext_is_passed_on_as_it_came(row: Row) -> None:
    raw = complete(row)
    assert encode_command(feed_one(raw)) == raw


def test_the_cut_frames_wait_for_the_rest() -> None:
    cut = [row for row in JSON_ROWS if is_cut(row)]
    assert len(cut) == 2
    for row in cut:
        buffer = FrameBuffer()
        assert buffer.feed(bytes.fromhex(row["rawHex"])) == []
        assert buffer.buffered_bytes == row["bodyLen"] - (row["rawLen"] - 65536)
        _, body = decode_answer(row["requestCode"], feed_one(complete(row)))
        assert type(body) is ConsumerRunningInfo
        assert body.jstack is not None
        assert len(body.jstack) > 60_000
        assert len(body.mq_table) == 1


def test_every_frame_in_one_stream() -> None:
    stream = b"".join(complete(row) for row in JSON_ROWS + BINARY_ROWS)
    commands = FrameBuffer().feed(stream)
    assert [command.code for command in commands] == [row["header"]["code"] for row in JSON_ROWS + BINARY_ROWS]
    assert b"".join(map(encode_command, commands)) == stream


def test_codes_in_the_recordings_are_in_the_catalog() -> None:
    seen: set[int] = {row["requestCode"] for row in JSON_ROWS + BINARY_ROWS}
    specs: list[RequestSpec] = [find_spec(code) for code in seen - {999}]
    assert UNKNOWN not in specs
