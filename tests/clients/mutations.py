"""What a hostile server makes of a right answer: wrong fields, broken bodies, frames that are none.

Every function takes the random numbers of a seed, so that the seed tells all that is done.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode, ResponseCode, SerializeType
from eruca._wire.frame import Command, FrameError, encode_command
from eruca._wire.record import Record, decode_records, encode_record
from eruca._wire.sysflag import COMPRESSED

# What a server does with a connection: write bytes, wait for seconds, read no more (inf), or close it (None).
Step = bytes | float | None

TEXTS = (
    "", "abc", "-1", "0", "1", "7", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "1e9", "NaN",
    "null", "true", "9" * 5000, "\u0661\u0662", "\x00", "\ud83d\ude00", "a\x01b\x02", "%s%d%n", " 3 ", "0x10",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 99, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**63, 2**200)
ADDRESSES = (
    "", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:1", "127.0.0.1:0", "127.0.0.1:-1", "127.0.0.1:99999999", "[::1]:x",
    "\x00:1", "a" * 5000 + ":1", "256.256.256.256:1", "127.0.0.1:\u0661", " :9876", "127.0.0.1:9\n",
)  # fmt: skip
CODES = (*(int(code) for code in ResponseCode), -1, 32_767, 9999)
# A body of this many bytes unpacks to more than anything may, or keeps a parser busy.
BOMB_BYTES = 80 * 1024 * 1024
_BOMB = zlib.compress(bytes(BOMB_BYTES), 9)


def pick_value(rng: Random) -> Any:
    """A value that does not belong where it is put."""
    return rng.choice((rng.choice(TEXTS), rng.choice(NUMBERS), None, [], {}, [None], {"a": {"b": []}}, 1.5, True))


# --- headers ------------------------------------------------------------------------------------------------------


def bend_header(rng: Random, answer: Command) -> None:
    """Drop, add or replace fields of the answer."""
    ext: dict[str, Any] = dict(answer.ext_dict())
    for _ in range(rng.randint(1, 3)):
        names = [*ext, "surprise"]
        name = rng.choice(names)
        kind = rng.randrange(4)
        if kind == 0:
            ext.pop(name, None)
        elif kind == 1:
            ext[name] = rng.choice(TEXTS)
        elif kind == 2:
            ext[name] = str(rng.choice(NUMBERS))
        else:
            ext[name] = pick_value(rng)
    if rng.random() < 0.05:
        ext |= {f"field{number}": "x" for number in range(1000)}
    answer.ext = None if rng.random() < 0.1 else ext


def change_code(rng: Random, answer: Command) -> None:
    """Another code, with a remark or without."""
    answer.code = rng.choice(CODES)
    answer.remark = rng.choice((None, "", "no", "%s %d", "line\nline", "\x1b[31mred", "x" * 100_000))


def bend_pull(rng: Random, answer: Command) -> None:
    """Tell a consumer to continue where it was, behind that, or nowhere; at once, so that it asks again at once."""
    answer.code = rng.choice(
        (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        )
    )
    ext = answer.ext_dict()
    ext["nextBeginOffset"] = str(rng.choice((0, 1, 3, 8, 39, 40, 41, -1, 2**40, 2**63 - 1, -(2**63))))
    ext["suggestWhichBrokerId"] = str(rng.choice((0, 1, 7, -1, 2**63 - 1)))
    ext["maxOffset"] = str(rng.choice((0, 40, -1, 2**63 - 1)))
    answer.ext = ext


# --- bodies -------------------------------------------------------------------------------------------------------


def bend_bytes(rng: Random, answer: Command) -> None:
    """Cut the body, turn bits over, repeat it, or put something else there."""
    body = answer.body
    kind = rng.randrange(6)
    if kind == 0 and body:
        answer.body = body[: rng.randrange(len(body))]
    elif kind == 1 and body:
        bent = bytearray(body)
        for _ in range(rng.randint(1, 8)):
            bent[rng.randrange(len(bent))] ^= 1 << rng.randrange(8)
        answer.body = bytes(bent)
    elif kind == 2:
        answer.body = rng.randbytes(rng.randint(1, 300))
    elif kind == 3:
        answer.body = body * 2
    elif kind == 4:
        answer.body = b""
    else:
        answer.body = _write_bad_json(rng)


def _write_bad_json(rng: Random) -> bytes:
    return rng.choice(
        (
            b"{", b"[]", b"null", b"7", b'"text"', b"{}", b"\xff\xfe{}", b'{"a":1e400}', b"NaN", b"[" * 100_000,
            b'{"a":' * 50_000, b'{"\\ud800":1}', b"{" + b'"a":1,' * 1000 + b'"a":2}', b" " * 100_000, b"-" * 1000,
            _BOMB[:100_000],
        )
    )  # fmt: skip


def bend_json(rng: Random, answer: Command) -> None:
    """Replace values somewhere inside a JSON body, whatever it is."""
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        bend_bytes(rng, answer)
        return
    for _ in range(rng.randint(1, 3)):
        value = _replace_somewhere(rng, value)
    answer.body = json.dumps(value).encode()


def _replace_somewhere(rng: Random, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return pick_value(rng)
    if isinstance(value, list):
        at = rng.randrange(len(value))
        if rng.random() < 0.2:
            return value * rng.choice((0, 2, 50))
        value[at] = _replace_somewhere(rng, value[at])
        return value
    name = rng.choice(list(value))
    if rng.random() < 0.2:
        del value[name]
    elif rng.random() < 0.1:
        value[rng.choice(TEXTS)] = value.pop(name)
    else:
        value[name] = _replace_somewhere(rng, value[name])
    return value


def bend_route(rng: Random, answer: Command) -> None:
    """Routes with absurd numbers of queues and brokers, and addresses where nobody is."""
    try:
        route = json.loads(answer.body)
        queue, broker = dict(route["queueDatas"][0]), dict(route["brokerDatas"][0])
    except (ValueError, LookupError, TypeError):
        bend_bytes(rng, answer)
        return
    address = broker["brokerAddrs"]["0"]
    kind = rng.randrange(9)
    if kind == 0:
        route["queueDatas"][0]["readQueueNums"] = rng.choice((*NUMBERS[:7], 16_384, 16_385, 300))
        route["queueDatas"][0]["writeQueueNums"] = rng.choice((*NUMBERS[:7], 16_384, 16_385, 300))
    elif kind == 1:
        route["queueDatas"] = [queue | {"readQueueNums": 16_384, "writeQueueNums": 16_384}] * rng.choice((2, 500, 5000))
    elif kind == 2:
        route["brokerDatas"] = rng.choice(([], [broker | {"brokerAddrs": {}}], [broker, broker]))
    elif kind == 3:
        route["brokerDatas"][0]["brokerAddrs"] = {"0": rng.choice(ADDRESSES)}
    elif kind == 4:
        route["brokerDatas"][0]["brokerAddrs"] = {str(rng.choice(NUMBERS[:7])): address, "1": rng.choice(ADDRESSES)}
    elif kind == 5:
        names = [f"broker-{number}" for number in range(rng.choice((3, 100, 5000, 30_000)))]
        elsewhere = rng.choice((address, "127.0.0.1:1"))
        route["brokerDatas"] = [broker | {"brokerName": name, "brokerAddrs": {"0": elsewhere}} for name in names]
        route["queueDatas"] = [queue | {"brokerName": name} for name in names]
    elif kind == 6:
        route["orderTopicConf"] = rng.choice(("broker-a:4", "nobody:3", ";;:", "broker-a:99999999999", "a:1;" * 50_000))
    elif kind == 7:
        route["queueDatas"][0]["perm"] = rng.choice((0, -1, 2, 4, 2**31 - 1))
    else:
        route["queueDatas"].append(queue | {"brokerName": "unknown"})
        route["brokerDatas"].append(broker | {"brokerName": rng.choice(TEXTS)})
    answer.body = json.dumps(route).encode()


def bend_members(rng: Random, answer: Command) -> None:
    """Lists of consumers without us, with us twice, with garbage, and far too long ones."""
    try:
        ids = list(json.loads(answer.body)["consumerIdList"])
    except (ValueError, LookupError, TypeError):
        bend_bytes(rng, answer)
        return
    others = [f"10.0.0.{number}@1#{number}" for number in range(rng.choice((1, 3, 200_000)))]
    chosen: list[Any] = rng.choice(
        ([], others, ids * 3, [*ids, *others], [*ids, *TEXTS], [*ids, None], [*ids, 7], [*others, *ids])
    )
    answer.body = json.dumps({"consumerIdList": chosen}).encode()


def bend_locks(rng: Random, answer: Command) -> None:
    """Locks of queues nobody asked for."""
    foreign = {"brokerName": "elsewhere", "queueId": rng.choice(NUMBERS[:7]), "topic": rng.choice(TEXTS)}
    chosen: Any = rng.choice(([], [foreign], [foreign] * 1000, [None], [{}], "all", {"0": foreign}))
    answer.body = json.dumps({"lockOKMQSet": chosen}).encode()


def bend_records(rng: Random, answer: Command) -> None:
    """Records of other queues, out of order, twice, from the end of time, that do not unpack."""
    try:
        records = decode_records(answer.body)
    except msgspec.MsgspecError:  # pragma: no cover
        records = []
    if not records:
        bend_bytes(rng, answer)
        return
    for _ in range(rng.randint(1, 3)):
        _bend_record(rng, rng.choice(records))
    kind = rng.randrange(6)
    if kind == 0:
        rng.shuffle(records)
    elif kind == 1:
        records *= 2
    elif kind == 2:
        records = records[:1] * rng.choice((2, 2000))
    answer.body = b"".join([encode_record(record) for record in records])


def _bend_record(rng: Random, record: Record) -> None:
    bounded = (0, 1, -1, 2**31 - 1, -(2**31))
    far = (*bounded, 2**63 - 1, -(2**63), 10**15)
    match rng.randrange(9):
        case 0:
            record.topic = rng.choice(("other", "", "x" * 255, "%RETRY%other", "\x00"))
        case 1:
            record.queue_id = rng.choice(bounded)
        case 2:
            record.queue_offset = rng.choice(far)
        case 3:
            record.born_timestamp = rng.choice(far)
            record.store_timestamp = rng.choice(far)
        case 4:
            record.properties = rng.choice((b"\x01\x02" * 100, b"\xff\xfe", b"TAGS\x01", b"A\x01b" * 5000, b"\x02"))
        case 5:
            record.reconsume_times = rng.choice(bounded)
        case 6:
            record.body, record.sys_flag = rng.choice((_BOMB, _BOMB[:-9], b"", b"no zlib")), COMPRESSED
        case 7:
            record.body, record.sys_flag = b"what?", COMPRESSED | rng.choice((0x100, 0x200, 0x300, 0x400, 0x700))
        case _:
            record.position = rng.choice(far)
            record.flag = rng.choice(bounded)


def write_tables(rng: Random, topic: str, broker: str) -> bytes:
    """Offsets of queues that an operator never chose."""
    queue = MessageQueue(rng.choice((broker, "elsewhere")), rng.choice((0, 1, -1, 2**31 - 1)), topic)
    text = json.dumps({"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic})
    offset = str(rng.choice((0, 5, -1, -(2**63), 2**63 - 1, 2**63, "x")))
    return b'{"offsetTable":{' + text.encode() + b":" + offset.encode() + b"}}"


_BODIES: dict[int, Callable[[Random, Command], None]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: bend_route,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: bend_members,
    RequestCode.LOCK_BATCH_MQ: bend_locks,
    RequestCode.PULL_MESSAGE: bend_records,
    RequestCode.VIEW_MESSAGE_BY_ID: bend_records,
    RequestCode.QUERY_MESSAGE: bend_records,
}


# --- frames and the wire ------------------------------------------------------------------------------------------


def bend_frame(rng: Random, frame: bytes) -> list[Step]:
    """Bytes that are no frame, or come as no peer sends them."""
    kind = rng.randrange(12)
    cut = rng.randrange(len(frame))
    if kind == 0:
        return [frame[:cut], None]
    if kind == 1:
        return [frame[:cut]]  # and nothing more
    if kind == 2:
        return [rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4), b"\x01\x00\x00\x01")) + frame[4:]]
    if kind == 3:
        return [frame[:4] + rng.choice((b"\x00\xff\xff\xff", b"\x07", b"\xff\xff\xff\xff")) + frame[5:]]
    if kind == 4:
        return [*[part for byte in frame[:200] for part in (bytes((byte,)), 0.005)], frame[200:]]
    if kind == 5:
        return [frame, frame, frame]
    if kind == 6:
        return [b"HTTP/1.1 400 Bad Request\r\n\r\n", None]
    if kind == 7:
        return [rng.randbytes(rng.randint(1, 2000))]
    if kind == 8:
        bent = bytearray(frame)
        bent[rng.randrange(len(bent))] ^= 1 << rng.randrange(8)
        return [bytes(bent)]
    if kind == 9:
        return [frame, None]
    if kind == 10:
        return [frame, math.inf]
    return [None]


def spoil(rng: Random, request: Command, answer: Command) -> tuple[str, list[Step]]:
    """Do something bad to the answer of a request; returns what, and the steps that send it."""
    kind = rng.choice(
        ("header", "header", "code", "body", "body", "body", "json", "frame", "silence", "opaque", "late")
    )
    if kind == "silence":
        return kind, []
    if kind == "header":
        bend_header(rng, answer)
    elif kind == "code":
        (bend_pull if request.code == RequestCode.PULL_MESSAGE else change_code)(rng, answer)
    elif kind == "body":
        _BODIES.get(request.code, bend_json)(rng, answer)
    elif kind == "json":
        bend_bytes(rng, answer)
    elif kind == "opaque":
        answer.opaque = rng.choice((0, -1, answer.opaque + 1, 2**31 - 1))
        answer.flag = rng.choice((FLAG_RESPONSE, 0, FLAG_ONEWAY, FLAG_RESPONSE | FLAG_ONEWAY, 2**31 - 1, -1))
    if rng.random() < 0.1:
        answer.serialization = SerializeType.ROCKETMQ
    frame = encode_roughly(answer)
    if kind == "late":
        return kind, [rng.uniform(0.01, 0.6), frame]
    if kind == "frame":
        return kind, bend_frame(rng, frame)
    return kind, [frame]


def encode_roughly(command: Command) -> bytes:
    """Write a command although its values may not fit; what cannot be written as binary is written as JSON."""
    try:
        return encode_command(command)
    except (FrameError, AttributeError, TypeError):
        command.serialization = SerializeType.JSON
        try:
            return encode_command(command)
        except (FrameError, OverflowError, UnicodeError):
            return b"\x00\x00\x00\x04\x00\x00\x00\x00"
