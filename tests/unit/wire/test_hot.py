"""The compiled inner loops and the plain statements of the same work give the same answers.

`hot` is held to them three times: as it is built, as plain Python with Cython's own module beside it, and as plain
Python without Cython.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import mmap
import shutil
import struct
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.errors import WireError
from eruca.store.indexfile import HEADER, SLOT, file_bytes, put_index_entries_plainly
from eruca.store.scan import read_records_plainly
from eruca.wire import digest, hot, hotread, hotreplay, hotsend
from eruca.wire.digest import digest_properties_plainly, index_prefix
from eruca.wire.record import (
    Message,
    RecordView,
    decode_record,
    encode_blank,
    encode_record,
    inspect_record,
    write_record,
)
from eruca.wire.sysflag import BORN_HOST_V6, STORE_HOST_V6
from tests.paths import REPOSITORY

SOURCES = REPOSITORY / "src" / "eruca" / "wire"
MODULES = {"hot": hot, "hotread": hotread, "hotreplay": hotreplay, "hotsend": hotsend}
each_module = pytest.mark.parametrize("name", MODULES)


def load_source(name: str, *, with_cython: bool) -> ModuleType:
    """Load a module from its source, as a machine without compiler does, with or without the package `cython`."""
    loader = importlib.machinery.SourceFileLoader(f"{name}_source_{with_cython}", str(SOURCES / f"{name}.py"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        if not with_cython:
            patch.setitem(sys.modules, "cython", None)  # an import of it fails now
        if name == "hotreplay":
            # What it takes of `hot` is no function of Python's where that is compiled.
            patch.setitem(sys.modules, "eruca.wire.hot", load_source("hot", with_cython=with_cython))
        loader.exec_module(module)
    return module


def load_twins(name: str) -> dict[str, ModuleType]:
    """A module as it is built, as plain Python beside Cython, and as plain Python alone."""
    return {
        "built": MODULES[name],
        "plain": load_source(name, with_cython=True),
        "bare": load_source(name, with_cython=False),
    }


TWINS = load_twins("hot")
READING_TWINS = load_twins("hotread")
each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())
each_reading_twin = pytest.mark.parametrize("twin", READING_TWINS.values(), ids=READING_TWINS.keys())


def find_built_file(name: str) -> Path | None:
    """The extension of this interpreter, if it was built."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        built = SOURCES / f"{name}{suffix}"
        if built.exists():
            return built
    return None


# --- which one is in use --------------------------------------------------------------------------------------------


@each_module
def test_the_built_extension_is_the_one_in_use(name: str) -> None:
    built = find_built_file(name)
    assert MODULES[name].compiled is (built is not None)
    if built is not None:
        assert MODULES[name].__file__ == str(built)
        assert digest.digest_properties is hot.digest_properties


@each_module
def test_a_machine_with_a_compiler_has_the_extension(name: str) -> None:
    """Our machines must measure the compiled loops; one without compiler runs the plain ones."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is not None and find_built_file(name) is None:
        pytest.fail(
            f"there is a C compiler ({compiler}) but eruca.wire.{name} is not compiled, so everything runs several "
            "times slower: run `python setup.py -q build_ext --inplace` with the project's interpreter"
        )
    assert MODULES[name].compiled is (find_built_file(name) is not None)


@each_module
def test_the_extension_is_not_older_than_its_source(name: str) -> None:
    built = find_built_file(name)
    sources = [SOURCES / f"{name}.py", *SOURCES.glob("hot*.pxd")]
    assert built is None or built.stat().st_mtime >= max(source.stat().st_mtime for source in sources), (
        f"eruca.wire.{name} was edited after it was compiled: run `python setup.py -q build_ext --inplace`"
    )


def test_the_plain_twins_are_plain() -> None:
    assert not TWINS["plain"].compiled
    assert not TWINS["bare"].compiled
    assert TWINS["bare"].cython.__name__ == "eruca.wire.nocython"


# --- properties -----------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        b"TAGS", b"KEYS", b"UNIQ_KEY", b"TAGSX", b"XTAGS", b"KEY", b"\x01", b"\x02", b" ", b"a", b"Bb", b"",
        "héllo".encode(), "消息".encode(), "😀".encode(), b"\xff", b"\xc3", b"\x00", b"polygenelubricants",
    ]
)  # fmt: skip
PROPERTIES = st.lists(PIECES, max_size=24).map(b"".join) | st.binary(max_size=60)
ENTRIES = st.lists(
    st.tuples(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "OTHER"]), st.text(max_size=20)), max_size=6
).map(lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode("utf-8", "replace"))


@each_twin
@given(properties=PROPERTIES | ENTRIES, prefix=st.integers(0, 0xFFFFFFFF), with_keys=st.booleans())
def test_digests_are_equal(twin: Any, properties: bytes, prefix: int, with_keys: bool) -> None:
    expected = digest_properties_plainly(properties, prefix, with_keys)
    assert twin.digest_properties(properties, prefix, with_keys) == expected


@each_twin
def test_the_hash_without_a_positive_twin_becomes_zero(twin: Any) -> None:
    """`polygenelubricants` is the known word whose Java hash is Integer.MIN_VALUE."""
    assert twin.digest_properties(b"UNIQ_KEY\x01polygenelubricants", 0, True) == (0, [0])
    assert twin.digest_properties(b"TAGS\x01polygenelubricants", 0, True) == (-(2**31), [])


@each_twin
def test_a_known_digest(twin: Any) -> None:
    properties = b"KEYS\x01a  b\x02UNIQ_KEY\x01u\x02TAGS\x01x\x02TAGS\x01TagA\x02TAGS\x01"
    tags, hashes = twin.digest_properties(properties, index_prefix("t"), True)
    assert tags == 2598919  # of the last entry that has a value
    assert hashes == [31 * (31 * ord("t") + ord("#")) + ord(letter) for letter in "uab"]


@each_twin
@pytest.mark.parametrize("count", [31, 32, 33, 500])
def test_many_keys_are_digested_as_few_are(twin: Any, count: int) -> None:
    properties = b"UNIQ_KEY\x01u\x02KEYS\x01" + b" ".join(b"k%d" % n for n in range(count)) + b"\x02TAGS\x01x"
    for with_keys in (True, False):
        expected = digest_properties_plainly(properties, 7, with_keys)
        assert twin.digest_properties(properties, 7, with_keys) == expected


# --- index ----------------------------------------------------------------------------------------------------------


@each_twin
@given(
    slots=st.integers(1, 20),
    records=st.lists(
        st.tuples(
            st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 3), max_size=4),
            st.integers(0, 2**62),
            st.integers(-(2**40), 2**42) | st.just(0),
        ),
        max_size=8,
    ),
    header=st.tuples(st.integers(-(2**62), 2**62), st.integers(-(2**31), 20)),
    noise=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20),
)
def test_index_files_are_equal(
    twin: Any,
    slots: int,
    records: list[tuple[list[int], int, int]],
    header: tuple[int, int],
    noise: list[int],
) -> None:
    """Also over a damaged file: slots that lead anywhere, a header that says anything."""
    plain = bytearray(file_bytes(slots, 64))
    HEADER.pack_into(plain, 0, header[0], 0, 0, 0, 0, header[1])
    for number, value in enumerate(noise[:slots]):
        SLOT.pack_into(plain, 40 + 4 * number, value)
    twins = bytearray(plain)
    for hashes, position, store_time in records:
        put_index_entries_plainly(plain, slots, hashes, position, store_time)
        twin.put_index_entries(twins, slots, hashes, position, store_time)
    assert twins == plain


@each_twin
@pytest.mark.parametrize("number", [63, 64, 10_000, 2**31 - 1])
def test_an_entry_outside_the_file_is_an_error_and_not_a_crash(twin: Any, number: int) -> None:
    buffer = bytearray(file_bytes(16, 64))
    HEADER.pack_into(buffer, 0, 1, 1, 1, 1, 0, number)
    with pytest.raises(ValueError, match="not inside"):
        twin.put_index_entries(buffer, 16, [1, 2], 5, 5)
    with pytest.raises(struct.error):
        put_index_entries_plainly(buffer, 16, [1, 2], 5, 5)


@each_twin
def test_the_last_entry_of_a_file_can_be_written(twin: Any) -> None:
    buffer = bytearray(file_bytes(16, 64))
    twin.put_index_entries(buffer, 16, list(range(63)), 5, 5)
    assert HEADER.unpack_from(buffer, 0) == (5, 5, 5, 5, 16, 64)


@each_twin
def test_an_index_file_may_be_mapped_memory(twin: Any) -> None:
    with mmap.mmap(-1, file_bytes(4, 8)) as mapped:
        twin.put_index_entries(mapped, 4, [7], 100, 2000)
        assert HEADER.unpack_from(mapped, 0) == (2000, 2000, 100, 100, 1, 2)


# --- records --------------------------------------------------------------------------------------------------------

V4 = st.binary(min_size=8, max_size=8)
V6 = st.binary(min_size=20, max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def draw_messages(draw: st.DrawFn) -> list[Message]:
    """Messages with every kind of host, sign and length."""
    messages = []
    for _ in range(draw(st.integers(0, 5))):
        flag = draw(INT32) & ~(BORN_HOST_V6 | STORE_HOST_V6)
        born_v6, store_v6 = draw(st.booleans()), draw(st.booleans())
        flag |= (BORN_HOST_V6 if born_v6 else 0) | (STORE_HOST_V6 if store_v6 else 0)
        messages.append(
            Message(
                draw(st.text(alphabet="abcé", max_size=20)),
                queue_id=draw(INT32),
                body=draw(st.binary(max_size=40)),
                properties=draw(st.binary(max_size=40) | st.just(b"p" * 1200)),
                sys_flag=flag,
                born_host=draw(V6 if born_v6 else V4),
                store_host=draw(V6 if store_v6 else V4),
                store_timestamp=draw(INT64),
                queue_offset=draw(INT64),
            )
        )
    return messages


@st.composite
def draw_logs(draw: st.DrawFn) -> tuple[bytes, int, int, int]:
    """A stretch of log with perhaps some damage: its bytes, where records begin, where they end, its position."""
    base = draw(st.integers(0, 2**40))
    lead = draw(st.integers(0, 10))
    data = bytearray(b"\xee" * lead)
    for message in draw(draw_messages()):
        message.position = base + len(data)
        data += encode_record(message)
    end = len(data)
    data += draw(st.sampled_from([b"", bytes(200), encode_blank(100) + bytes(92), b"\xff" * 150]))
    for _ in range(draw(st.integers(0, 2))):
        if data:
            at = draw(st.integers(0, len(data) - 1))
            data[at] ^= 1 << draw(st.integers(0, 7))
    end = draw(st.sampled_from([end, len(data), max(0, end - 1), min(lead, len(data))]))
    return bytes(data), lead, end, base


def skip_records_plainly(data: bytes, at: int, end: int, base: int, check_crc: bool) -> tuple[int, int, int, int]:
    """What `skip_records` is, stated with `inspect_record`."""
    count = first = last = 0
    while True:
        view = inspect_record(data, at, end, check_crc, base + at)
        if type(view) is not RecordView:
            return at, count, first, last
        last = view.store_timestamp
        first = last if count == 0 else first
        count += 1
        at += view.size


def may_be_cut_short(data: bytes, at: int, end: int, base: int) -> bool:
    """Is there a valid record with a zero where a lost sector would begin or end? `hot` leaves those to others."""
    view = inspect_record(data, at, end, False, base + at)
    if type(view) is not RecordView:
        return False
    first = (view.body_end + 512) // 512 * 512
    suspects = [view.properties_end - 1, *range(first, view.properties_end - 511, 512)]
    return any(data[place] == 0 for place in suspects)


@each_reading_twin
@given(log=draw_logs(), check_crc=st.booleans())
def test_records_are_skipped_alike(twin: Any, log: tuple[bytes, int, int, int], check_crc: bool) -> None:
    data, at, end, base = log
    expected = skip_records_plainly(data, at, end, base, check_crc)
    found = twin.skip_records(data, at, end, base, check_crc)
    if found != expected:
        assert may_be_cut_short(data, found[0], end, base)
        assert found == skip_records_plainly(data, at, found[0], base, check_crc)


@each_reading_twin
@given(log=draw_logs(), count_max=st.integers(0, 6))
def test_records_are_read_alike(twin: Any, log: tuple[bytes, int, int, int], count_max: int) -> None:
    data, at, end, base = log
    expected = read_records_plainly(bytearray(data), at, end, base, count_max)
    found = twin.read_records(data, at, end, base, count_max)
    assert found == expected[: len(found)]
    if len(found) < len(expected):
        stop = found[-1][0] + found[-1][1] - base if found else at
        assert may_be_cut_short(data, stop, end, base)


@each_reading_twin
@given(log=draw_logs(), check_crc=st.booleans())
def test_records_are_decoded_alike(twin: Any, log: tuple[bytes, int, int, int], check_crc: bool) -> None:
    data, at, end, _ = log
    answer = data[at:end]
    expected: list[Message] = []
    stop = 0
    while stop < len(answer):
        try:
            expected.append(decode_record(answer, stop, check_crc=check_crc))
        except WireError:
            break
        stop += expected[-1].size
    assert twin.decode_records(answer, Message, check_crc) == (expected, stop)


@each_reading_twin
@given(data=st.binary(max_size=300), at=st.integers(0, 300), base=INT64.filter(lambda n: abs(n) < 2**62))
def test_noise_is_no_record(twin: Any, data: bytes, at: int, base: int) -> None:
    """Neither do bytes beyond the buffer count, whatever the caller says its end is."""
    for end in (len(data), len(data) + 500):
        assert twin.skip_records(data, min(at, len(data)), end, base, True)[1] == 0
        assert twin.read_records(data, min(at, len(data)), end, base, 9) == []


@each_reading_twin
def test_an_end_behind_the_buffer_is_not_read(twin: Any) -> None:
    record = encode_record(Message("t", body=b"b", properties=b"p"))
    torn = record[:-1]
    assert twin.skip_records(torn, 0, len(record), 0, True)[1] == 0
    assert twin.read_records(torn, 0, len(record), 0, 1) == []
    assert twin.skip_records(record, 0, len(record) + 100, 0, True)[:2] == (len(record), 1)


@each_reading_twin
def test_a_closed_mapping_is_an_error_and_not_a_crash(twin: Any) -> None:
    mapped = mmap.mmap(-1, 4096)
    mapped.close()
    with pytest.raises(ValueError, match="closed"):
        twin.skip_records(mapped, 0, 4096, 0, True)
    with suppress(ValueError):
        assert twin.read_records(mapped, 0, 4096, 0, 1) == []


def write_with(twin: Any, buffer: bytearray | mmap.mmap, at: int, message: Message, size: int) -> None:
    """Hand a message to a twin as `record.write_record` does."""
    twin.write_record(
        buffer, at, size, message.queue_id, message.flag, message.queue_offset, message.position, message.sys_flag,
        message.born_timestamp, message.born_host, message.store_timestamp, message.store_host,
        message.reconsume_times, message.prepared_position, message.body, message.topic.encode(), message.properties,
    )  # fmt: skip


@each_twin
@given(messages=draw_messages(), numbers=st.tuples(INT32, INT64, INT32, INT64, INT64), at=st.integers(0, 9))
def test_records_are_written_alike(
    twin: Any, messages: list[Message], numbers: tuple[int, int, int, int, int], at: int
) -> None:
    for message in messages:
        message.flag, message.born_timestamp, message.reconsume_times = numbers[:3]
        message.prepared_position, message.position = numbers[3:]
        expected = encode_record(message)
        around = bytearray(b"\xee" * (at + len(expected) + 3))
        write_record(around, at, message, message.topic.encode(), len(expected))
        assert around == b"\xee" * at + expected + b"\xee" * 3
        if not message.sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
            around = bytearray(b"\xee" * (at + len(expected) + 3))
            write_with(twin, around, at, message, len(expected))
            assert around == b"\xee" * at + expected + b"\xee" * 3


@each_twin
@pytest.mark.parametrize(
    ("at", "size", "message"),
    [
        (0, 95, Message("t", body=b"b", properties=b"p")),  # a byte more than it has
        (0, 93, Message("t", body=b"b", properties=b"p")),
        (-1, 94, Message("t", body=b"b", properties=b"p")),
        (7, 94, Message("t", body=b"b", properties=b"p")),  # runs out of the buffer
        (2**62, 94, Message("t", body=b"b", properties=b"p")),
        (0, 94, Message("t", body=b"b", properties=b"p", born_host=b"short")),
        (0, 94, Message("t", body=b"b", properties=b"p", store_host=b"s" * 20)),
        (0, 92 + 128, Message("t" * 128, body=b"b")),
        (0, 92 + 2**15, Message("t", properties=b"p" * 2**15)),
    ],
)
def test_a_record_that_does_not_fit_is_an_error_and_not_a_crash(
    twin: Any, at: int, size: int, message: Message
) -> None:
    buffer = bytearray(100)
    with pytest.raises(ValueError, match=r"record"):
        write_with(twin, buffer, at, message, size)
    assert buffer == bytes(100)


@each_twin
def test_a_record_cannot_be_written_to_a_closed_mapping(twin: Any) -> None:
    mapped = mmap.mmap(-1, 4096)
    mapped.close()
    with pytest.raises(ValueError, match="closed"):
        write_with(twin, mapped, 0, Message("t", body=b"b", properties=b"p"), 94)


# --- copying what entries point at ------------------------------------------------------------------------------------


QUEUE_ID, FIRST_OFFSET, TOPIC = 3, 40, b"orders"
_LOG_START = 2**40


@cache
def make_log() -> tuple[bytes, list[tuple[int, int]]]:
    """A piece of a log with records of one queue, and where they lie."""
    data, places = b"", []
    for number in range(6):
        hosts = bytes(range(20 if number % 2 else 8))
        message = Message(
            "orders",
            QUEUE_ID,
            body=b"b" * (30 * number),
            properties=b"k\x01v",
            sys_flag=0x30 if number % 2 else 0,
            born_host=hosts,
            store_host=hosts,
            queue_offset=FIRST_OFFSET + number,
            position=_LOG_START + len(data),
        )
        record = encode_record(message)
        places.append((message.position, len(record)))
        data += record
    return data, places


def count_plainly(entries: list[tuple[int, int]], log: bytes, end: int, count_max: int, bytes_max: int) -> list[bytes]:
    """The readable statement."""
    found: list[bytes] = []
    for number, (position, size) in enumerate(entries[:count_max]):
        at = position - _LOG_START
        if not (size > 0 and at >= 0 and position + size <= min(end, _LOG_START + len(log))):
            break
        if found and sum(map(len, found)) + size > bytes_max:
            break
        record = inspect_record(log, at, at + size, False, position)
        if type(record) is not RecordView or record.size != size or record.topic != TOPIC:
            break
        if (record.queue_id, record.queue_offset) != (QUEUE_ID, FIRST_OFFSET + number):
            break
        found.append(log[at : at + size])
    return found


@each_reading_twin
@given(
    wrong=st.dictionaries(st.integers(0, 5), st.tuples(st.integers(-200, 200), st.integers(-100, 100)), max_size=2),
    flips=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from([0, 3, 5, 7, 15, 20, 27, 30, 35]), st.integers(0, 7)), max_size=2
    ),
    end=st.integers(-5, 3000),
    count_max=st.integers(0, 8),
    bytes_max=st.integers(-1, 1200),
)
def test_counting_and_gathering_messages(
    twin: ModuleType,
    wrong: dict[int, tuple[int, int]],
    flips: list[tuple[int, int, int]],
    end: int,
    count_max: int,
    bytes_max: int,
) -> None:
    log, places = make_log()
    changed = bytearray(log)
    for number, byte, bit in flips:
        changed[places[number][0] - _LOG_START + byte] ^= 1 << bit
    entries = [(at + wrong.get(n, (0, 0))[0], size + wrong.get(n, (0, 0))[1]) for n, (at, size) in enumerate(places)]
    raw = b"".join(struct.pack(">qiq", position, size, 1) for position, size in entries)
    wanted = count_plainly(entries, bytes(changed), _LOG_START + end, count_max, bytes_max)
    count, size = twin.count_messages(
        raw, bytes(changed), _LOG_START, _LOG_START + end, count_max, bytes_max, QUEUE_ID, FIRST_OFFSET, TOPIC
    )
    assert (count, size) == (len(wanted), sum(map(len, wanted)))
    joined = twin.gather_records(raw, bytes(changed), _LOG_START, count, size)
    assert bytes(joined) == b"".join(wanted)
    for number, record in enumerate(wanted):
        assert twin.is_message(record, places[number][0], QUEUE_ID, FIRST_OFFSET + number, TOPIC)
        assert not twin.is_message(record, places[number][0], QUEUE_ID, FIRST_OFFSET + number, b"Orders")
        assert not twin.is_message(record, places[number][0], QUEUE_ID, FIRST_OFFSET + number + 1, TOPIC)


@each_reading_twin
@given(
    entries=st.lists(
        st.tuples(st.integers(-1, 90), st.sampled_from([-1, 0, 1, 5, 20, 0x7FFFFFFF])), min_size=1, max_size=8
    ),
    log_end=st.integers(0, 120),
)
def test_finding_disorder_in_a_queue(twin: ModuleType, entries: list[tuple[int, int]], log_end: int) -> None:
    raw = b"".join(struct.pack(">qiq", position, size, 1) for position, size in entries)
    last, wanted = (0, 0), 0
    for position, size in entries:
        if position < 0 or size <= 0:
            break
        if size != 0x7FFFFFFF:
            if (position < sum(last) and (position, size) != last) or position + size > log_end:
                break
            last = (position, size)
        wanted += 1
    assert twin.find_disorder(raw, len(raw), 0, 0, log_end) == (wanted * 20, *last)
