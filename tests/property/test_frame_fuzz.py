"""Hostile bytes: whatever is fed, frame buffers give commands or FrameError, and readers give objects or WireError."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eruca._wire import catalog, fastjson
from eruca._wire.codes import Language, RequestCode, SerializeType
from eruca._wire.frame import Command, FrameBuffer, FrameError, encode_command
from eruca._wire.headers import SendMessageV2Header
from eruca.errors import WireError
from tests.paths import GOLDEN


def read_frames() -> list[tuple[int, bytes]]:
    rows = []
    for name in ("frames.jsonl", "frames-rocketmq.jsonl"):
        with (GOLDEN / name).open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if row["rawLen"] < 5000:
                    rows.append((row["requestCode"], bytes.fromhex(row["rawHex"])))
    return rows


FRAMES = read_frames()
INTERESTING = [
    b"\x00",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"null",
    b"1e999",
]


def mutate(source: random.Random, data: bytes) -> bytes:
    """Damage a frame in one of the usual ways."""
    changed = bytearray(data)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(changed)) if changed else 0
        match source.randrange(6):
            case 0:
                changed[at : at + 1] = bytes([source.randrange(256)])
            case 1:
                del changed[at : at + source.randint(1, 16)]
            case 2:
                changed[at:at] = source.choice(INTERESTING)
            case 3:
                changed[at:at] = changed[at : at + source.randint(1, 64)]
            case 4:
                piece = source.choice(INTERESTING)
                changed[at : at + len(piece)] = piece
            case _:
                changed += source.randbytes(source.randint(1, 16))
    return bytes(changed)


def repair(data: bytes) -> bytes:
    """Make the total length true again, so that the damage gets past the framing."""
    return (len(data) - 4).to_bytes(4, "big", signed=True) + data[4:]


def read_everything(request_code: int, command: Command) -> bool:
    """Do with a command what servers and clients do, and tell whether it went well; only WireError may come out."""
    try:
        if command.is_response:
            catalog.decode_answer(request_code, command)
        else:
            catalog.decode_request(command)
        command.ext_dict()
        encode_command(command)
    except WireError:
        return False
    return True


@pytest.mark.parametrize("seed", range(20))
def test_damaged_frames_never_surprise(seed: int) -> None:
    source = random.Random(seed)
    outcomes = {"frame refused": 0, "content refused": 0, "read": 0}
    for _ in range(300):
        request_code, raw = source.choice(FRAMES)
        data = mutate(source, raw)
        if source.random() < 0.7:
            data = repair(data)
        buffer = FrameBuffer()
        try:
            if source.random() < 0.5:
                commands = buffer.feed(data)
            else:
                cut = source.randrange(len(data) + 1)
                commands = buffer.feed(data[:cut]) + buffer.feed(data[cut:])
        except FrameError as error:
            commands = error.commands
            outcomes["frame refused"] += 1
        for command in commands:
            outcomes["read" if read_everything(request_code, command) else "content refused"] += 1
    # The damage reaches every layer.
    assert all(outcomes.values()), outcomes


@given(st.lists(st.binary(max_size=200), max_size=8))
@example([b"\x00\x00\x00\x04\x00\x00\x00\x00"])
def test_arbitrary_bytes_in_arbitrary_pieces(pieces: list[bytes]) -> None:
    def run(chunks: list[bytes]) -> tuple[list[Command], str | None]:
        buffer = FrameBuffer()
        commands: list[Command] = []
        for chunk in chunks:
            try:
                commands += buffer.feed(chunk)
            except FrameError as error:
                return commands + error.commands, str(error)
        return commands, None

    whole = run([b"".join(pieces)])
    assert run(pieces) == whole
    assert run([bytes([byte]) for byte in b"".join(pieces)]) == whole


@given(st.integers(0, 1), st.binary(max_size=300), st.binary(max_size=20))
def test_arbitrary_headers(kind: int, header: bytes, body: bytes) -> None:
    data = (4 + len(header) + len(body)).to_bytes(4, "big") + bytes([kind]) + len(header).to_bytes(3, "big")
    try:
        (command,) = FrameBuffer().feed(data + header + body)
    except FrameError:
        return
    assert command.body == body
    read_everything(command.code, command)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
int32 = st.integers(-(2**31), 2**31 - 1)


@given(
    st.builds(
        Command,
        code=st.integers(-(2**15), 2**15 - 1),
        language=st.sampled_from(Language),
        version=st.integers(-(2**15), 2**15 - 1),
        opaque=int32,
        flag=int32,
        remark=st.none() | texts.filter(bool),
        ext=st.dictionaries(texts, texts, max_size=20),
        body=st.binary(max_size=100),
        serialization=st.sampled_from(SerializeType),
    )
)
def test_commands_round_trip(command: Command) -> None:
    data = encode_command(command)
    (again,) = FrameBuffer().feed(data)
    assert again.ext_dict() == command.ext_dict()
    again.ext = command.ext
    assert again == command
    assert encode_command(again) == data


send_headers = st.builds(
    SendMessageV2Header,
    producer_group=texts,
    topic=texts,
    default_topic=texts,
    default_topic_queue_nums=int32,
    queue_id=int32,
    sys_flag=int32,
    born_timestamp=st.integers(-(2**63), 2**63 - 1),
    flag=int32,
    properties=st.none() | texts,
    reconsume_times=st.none() | int32,
    unit_mode=st.none() | st.booleans(),
    max_reconsume_times=st.none() | int32,
    batch=st.none() | st.booleans(),
    broker_name=st.none() | texts,
)


@given(send_headers, st.sampled_from(SerializeType))
def test_typed_headers_round_trip(header: SendMessageV2Header, serialization: SerializeType) -> None:
    command = Command(RequestCode.SEND_MESSAGE_V2, ext=header, serialization=serialization)
    (again,) = FrameBuffer().feed(encode_command(command))
    assert again.decode_header(SendMessageV2Header) == header


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | texts
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(texts, children, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_what_we_write_json_reads(value: object) -> None:
    written = fastjson.write(value)

    def drop_nulls(item: object) -> object:
        if isinstance(item, dict):
            return {key: drop_nulls(inner) for key, inner in item.items() if inner is not None}
        return [drop_nulls(inner) for inner in item] if isinstance(item, list) else item

    assert json.loads(written) == drop_nulls(value)
    assert fastjson.parse(written) == drop_nulls(value)
    assert json.loads(fastjson.rewrite_to_strict(written)) == drop_nulls(value)


@given(st.text(st.sampled_from('{}[]:,"\\ 01a-.\n'), max_size=60))
@example('{{"a":1}:{{"b":2}:3}}')
def test_tolerant_parser_never_surprises(text: str) -> None:
    try:
        value = fastjson.parse(text.encode())
    except fastjson.FastjsonError as error:
        assert str(error)
    else:
        assert json.loads(fastjson.rewrite_to_strict(text.encode())) == value


@given(st.binary(max_size=100), st.integers(0, 409))
def test_arbitrary_bodies(data: bytes, version: int) -> None:
    for code in RequestCode:
        spec = catalog.find_spec(code)
        for codec in (spec.body, spec.answer_body):
            if codec is not None:
                try:
                    body = codec.decode(data, None, version)
                except WireError as error:
                    assert str(error)
                else:
                    assert type(body) in codec.produces
