"""A batch stored in one pass leaves the same files as its messages one after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eruca._ground.config import StoreOptions
from eruca._store.encodedbatch import BatchFacts
from eruca._store.messagestore import MessageStore, open_store
from eruca._store.queues.indexfile import HEADER
from eruca._testing.clock import VirtualClock
from eruca._wire.batch import BatchItem, decode_batch, encode_batch, find_ends
from eruca._wire.digest import index_prefix
from eruca._wire.record import Record, decode_record
from eruca.errors import StoreFull
from tests.kernels import load_twins
from tests.readable import digest, put_index_entries

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
OPTIONS = StoreOptions(
    commitlog_segment_bytes=64 * 1024, consumequeue_segment_bytes=2000, index_slots=50, index_entries=200
)
FACTS = BatchFacts(0, 1_700_000_000_000, HOST, HOST, 3, b"WAIT\x01true\x02CLUSTER\x01c")
TWINS = {
    kind: (batches, load_twins("eruca._store.kernel.dispatch")[kind])
    for kind, batches in load_twins("eruca._wire.kernel.batches").items()
}
Twins = tuple[ModuleType, ...]


def make_messages(topic: str, queue_id: int, items: list[BatchItem], facts: BatchFacts = FACTS) -> list[Record]:
    """What the long way of a broker makes of a batch."""

    def join(own: bytes) -> bytes:
        return own + facts.shared if not own or own.endswith(b"\x02") else own + b"\x02" + facts.shared

    return [
        Record(
            topic,
            queue_id,
            item.flag,
            item.body,
            join(item.properties),
            facts.sys_flag,
            facts.born_timestamp,
            facts.born_host,
            0,
            facts.store_host,
            facts.reconsume_times,
        )
        for item in items
    ]


def read_files(root: Path) -> dict[str, bytes]:
    """All that a store wrote of messages; an index file is named by the time, which is the same here."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for folder in ("commitlog", "consumequeue", "index")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


def open_small(root: Path) -> MessageStore:
    return open_store(root, OPTIONS, clock=VirtualClock())


_values = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02\x00"), min_size=1, max_size=12)
_properties = st.lists(
    st.tuples(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "T", "TIMER", "KEYS2"]), _values), max_size=4
)


def encode(pairs: list[tuple[str, str]], *, trailing: bool) -> bytes:
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
    return text + b"\x02" if trailing and text else text


_items = st.builds(
    lambda flag, body, pairs, trailing: BatchItem(flag, body, encode(pairs, trailing=trailing)),
    st.integers(-(2**31), 2**31 - 1),
    st.binary(min_size=1, max_size=300),
    _properties,
    st.booleans(),
)
_batches = st.lists(st.tuples(st.integers(0, 1), st.lists(_items, min_size=1, max_size=12)), min_size=1, max_size=12)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(batches=_batches)
def test_both_ways_leave_the_same_files(tmp_path_factory: pytest.TempPathFactory, batches: Any) -> None:
    home = tmp_path_factory.mktemp("stores")
    fast, slow = open_small(home / "fast"), open_small(home / "slow")
    taken = 0
    for queue_id, items in batches:
        data = encode_batch(items)
        messages = slow.append_batch(make_messages("T", queue_id, items))
        stored = fast.append_encoded("T", queue_id, data, FACTS)
        if stored is None:  # at the end of a file of the index
            fast.append_batch(make_messages("T", queue_id, items))
            continue
        taken += 1
        last = messages[-1]
        assert (stored.messages, stored.offset) == (len(items), messages[0].queue_offset)
        assert stored.end == last.position + last.size
        assert stored.size == sum(message.size for message in messages)
        assert stored.ids == ",".join(
            (HOST + message.position.to_bytes(8, "big")).hex().upper() for message in messages
        )
    assert taken >= 1
    fast.close()
    slow.close()
    assert read_files(home / "fast") == read_files(home / "slow")


@pytest.mark.parametrize(
    ("items", "facts"),
    [
        ([BatchItem(0, b"x", b"TIMER_DELAY_MS\x015")], FACTS),
        ([BatchItem(0, b"x", b"a\x01" + b"b" * 32760)], FACTS),
        ([BatchItem(0, b"x", b"")], FACTS._replace(sys_flag=0x10)),
        ([BatchItem(0, b"x", b"")], FACTS._replace(sys_flag=0x4)),
        ([BatchItem(0, b"x", b"")], FACTS._replace(shared=b"")),
        ([BatchItem(0, b"x", b"")], FACTS._replace(shared=b"a\x01\0")),
        ([BatchItem(0, b"x" * (2**22 + 1), b"")], FACTS),
        ([], FACTS),
    ],
)
def test_what_is_unusual_goes_the_long_way(tmp_path: Path, items: list[BatchItem], facts: BatchFacts) -> None:
    store = open_small(tmp_path)
    before = store.log.tail
    assert store.append_encoded("T", 0, encode_batch(items), facts) is None
    assert store.append_encoded("SCHEDULE_TOPIC_XXXX", 0, encode_batch([BatchItem(0, b"x", b"")]), FACTS) is None
    assert store.log.tail == before
    assert store.append_encoded("T", 0, encode_batch([BatchItem(0, b"x", b"")]), FACTS) is not None
    store.close()
    assert store.append_encoded("T", 0, encode_batch([BatchItem(0, b"x", b"")]), FACTS) is None


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    with pytest.raises(StoreFull, match="does not fit in a segment"):
        store.append_encoded("T", 0, encode_batch([BatchItem(0, b"x" * 70_000, b"")]), FACTS)
    store.close()


@given(st.lists(_items, min_size=1, max_size=6), st.data())
def test_sizes_that_lie_are_seen(items: list[BatchItem], data: st.DataObject) -> None:
    """Measuring a batch detects everything that decoding it does."""
    raw = bytearray(encode_batch(items))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    for twin, _ in TWINS.values():
        count = twin.measure_batch(bytes(raw), 10, 91, 65535)[0]
        try:
            decoded = decode_batch(bytes(raw))
        except Exception:
            assert count == -1
        else:
            assert count in (len(decoded), -1)


class Entries:
    """A consume queue in memory, which begins at offset 77."""

    def __init__(self, count: int) -> None:
        self.max_offset = 77
        self.data = bytearray(20 * count + 40)
        self.count = count

    def find_room(self) -> tuple[bytearray, int, int]:
        """Where the next entries go."""
        return self.data, 20, self.count

    def add_run(self, count: int, end_position: int) -> None:
        """Entries were written."""
        self.max_offset += count


def write(twins: Twins, items: list[BatchItem], **wrong: Any) -> tuple[bytes, bytes, bytes, bytes, int]:
    batch, other = twins
    data, base = encode_batch(items), 1 << 40
    _, size, _, words, _ = batch.measure_batch(data, len(FACTS.shared), 92, 32767)
    log, queue = bytearray(size + 20), Entries(len(items))
    index, ids = bytearray(40 + 4 * 7 + 20 * (words + 2)), bytearray(33 * len(items) - 1)
    given: dict[str, Any] = {
        "log": log,
        "at": 10,
        "size": size,
        "data": data,
        "head": batch.make_head(2, 0, 5, HOST, 6, HOST, 0),
        "tail": b"\1T",
        "shared": FACTS.shared,
        "queue_offset": 77,
        "position": base + 10,
        "ids": ids,
    }
    batch.write_batch(**given | wrong)
    replayer = other.Replayer(lambda topic, number: other.Lane("T", number, index_prefix("T")), lambda name: queue)
    stop, _, written, _, trouble = replayer.run(log, 10, 10 + size, base, None, True, index, 7, words + 2)
    assert trouble is None and stop <= 10 + size
    return bytes(log), bytes(queue.data), bytes(index), bytes(ids), written


@given(st.lists(_items, min_size=1, max_size=6))
def test_built_and_plain_agree(items: list[BatchItem]) -> None:
    found = [write(twins, items) for twins in TWINS.values()]
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("twins", TWINS.values(), ids=TWINS.keys())
@pytest.mark.parametrize("count", [1, 31, 32])
def test_a_message_has_as_many_index_entries_as_keys(twins: Twins, count: int) -> None:
    keys = " ".join(f"k{number}" for number in range(count))
    items = [BatchItem(0, b"x", f"KEYS\x01{keys}".encode()), BatchItem(0, b"y", b"KEYS\x01last")]
    index, written = write(twins, items)[2::2]
    plain = bytearray(len(index))
    for position, names in (((1 << 40) + 10, keys), (HEADER.unpack_from(index, 0)[3], "last")):
        put_index_entries(plain, 7, digest(f"KEYS\x01{names}".encode(), index_prefix("T"))[1], position, 6)
    assert (index, written) == (bytes(plain), count + 1)


@pytest.mark.parametrize("count", [33, 200])
def test_a_message_of_a_batch_may_have_very_many_keys(tmp_path: Path, count: int) -> None:
    store = open_store(tmp_path, replace(OPTIONS, index_entries=1000), clock=VirtualClock())
    keys = " ".join(f"k{number}" for number in range(count))
    items = [BatchItem(0, b"x", f"KEYS\x01{keys}".encode()), BatchItem(0, b"y", b"KEYS\x01last")]
    stored = store.append_encoded("T", 0, encode_batch(items), FACTS)
    assert stored is not None
    assert store.index is not None and store.index.files[-1].next_entry == count + 2
    for key, body in (("k0", b"x"), (f"k{count - 1}", b"x"), ("last", b"y")):
        assert [decode_record(view).body for _, view in store.reader.find_by_key("T", key, 0, 2**62)] == [body]
    store.close()


@pytest.mark.parametrize("twins", TWINS.values(), ids=TWINS.keys())
def test_nothing_is_written_outside_a_buffer(twins: Twins) -> None:
    items = [BatchItem(0, b"x", b"KEYS\x01k")]
    for wrong in (
        {"log": bytearray(60)},
        {"at": -1},
        {"size": 50},
        {"size": 500, "log": bytearray(1000)},
        {"ids": bytearray(31)},
        {"head": bytes(80)},
        {"tail": b"t" * 257},
    ):
        with pytest.raises(ValueError, match=r"."):
            write(twins, items, **wrong)
    with pytest.raises(ValueError, match="IPv4"):
        twins[0].make_head(0, 0, 0, b"1234", 0, HOST, 0)


def test_the_ends_of_a_batch() -> None:
    items = [BatchItem(1, b"first", b"a\x01b"), BatchItem(2, b"middle", b""), BatchItem(3, b"last", b"c\x01d")]
    assert find_ends(encode_batch(items)) == (items[0], items[2], 3)
    assert find_ends(b"") is None
    assert find_ends(b"nonsense") is None


def test_a_batch_over_many_files_of_its_queue_is_written_in_one_go(tmp_path: Path) -> None:
    """Decoded message by message, a large one would take the loop half a second."""
    options = replace(OPTIONS, consumequeue_segment_bytes=20 * 7, index_entries=1000)
    fast = open_store(tmp_path / "fast", options, clock=VirtualClock())
    slow = open_store(tmp_path / "slow", options, clock=VirtualClock())
    items = [BatchItem(0, b"%d" % number, b"TAGS\x01a" if number % 2 else b"") for number in range(40)]
    for _ in range(3):
        stored = fast.append_encoded("T", 0, encode_batch(items), FACTS)
        assert stored is not None and stored.messages == 40
        slow.append_batch(make_messages("T", 0, items))
    queue = fast.queues.get("T", 0)
    assert queue is not None and (queue.max_offset, queue.next_offset) == (120, 120)
    fast.close()
    slow.close()
    assert read_files(tmp_path / "fast") == read_files(tmp_path / "slow")
