"""Stores for the tests of what reads them: with everything a log can hold, whole and damaged."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from eruca._ground.config import StoreOptions, from_properties
from eruca._store.messagestore import open_store
from eruca._store.queues.consumequeue import ENTRY
from eruca._testing.clock import VirtualClock
from eruca._wire.names import HALF_TOPIC, SCHEDULE_TOPIC
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record
from eruca._wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.store_samples import OPTIONS, PROPERTIES, START_MS, find_segment, flip, patch

GOLDEN_NAMES = ("clean", "killed", "torn", "rebuild")
GOLDEN_SIZES = {"mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "500", "maxIndexNum": "2000"}
HOST_V4 = bytes((127, 0, 0, 1)) + struct.pack(">i", 10911)


def make_rich_store(root: Path, rounds: int = 40, *, options: StoreOptions = OPTIONS) -> list[Record]:
    """A store with delayed messages, transactions, a deleted topic that was made again, and odd properties."""
    clock = VirtualClock(START_MS)
    store = open_store(root, replace(options, message_bytes_max=4096), clock=clock)
    stored: list[Record] = []

    def add(topic: str, queue_id: int, body: bytes, properties: dict[str, str], sys_flag: int = 0) -> None:
        message = Record(
            topic,
            queue_id,
            body=body,
            properties=encode_properties(properties),
            sys_flag=sys_flag,
            born_timestamp=clock.now_ms() - 5,
            born_host=HOST_V4,
            store_host=HOST_V4,
        )
        stored.append(store.append(message))

    for number in range(rounds):
        clock.advance(700)
        keys = {"KEYS": f"key-{number}  common", "UNIQ_KEY": f"{number:032X}", "TAGS": f"Tag{number % 3}"}
        add("Orders", number % 3, f"order {number} ".encode() * 9, keys)
        add("Bills", 0, b"", {"TAGS": "grün", "KEYS": "schlüssel 😀"})
        add("Plain", 0, b"no properties", {})
        add(SCHEDULE_TOPIC, 2, b"later", {"DELAY": str(number % 20), "REAL_TOPIC": "Orders", "REAL_QID": "0"})
        add(HALF_TOPIC, 0, b"half", keys | {"REAL_TOPIC": "Orders"})
        add("Orders", 1, b"prepared", keys, TRANSACTION_PREPARED)
        add("Orders", 1, b"rolled back", keys, TRANSACTION_ROLLBACK)
        add("Orders", 1, b"committed", keys, TRANSACTION_COMMIT)
        add("Gone", 0, b"of a topic that goes", keys)
        if number == rounds // 2:
            store.detach_topic("Gone")()
    store.close()
    return stored


def make_removals_of_queues(root: Path) -> None:
    """Have a store say of each queue what it says of removed topics, as a slave does whose master made them again."""
    path = root / "config" / "removedTopics.json"
    removed = json.loads(path.read_bytes())
    assert set(removed) == {"Gone"}
    path.write_text(json.dumps({"Gone/0": removed["Gone"], "Gone/1": 1 << 40, "Go/0": 1 << 40}))


# -- what can be wrong with one ----------------------------------------------------------------------------------------


def keep_whole(root: Path, stored: list[Record]) -> None:
    """Nothing."""


def rot_a_body(root: Path, stored: list[Record]) -> None:
    """A bit of one body turned over: its CRC is wrong, its lengths are right."""
    path, at = find_segment(root, stored[27].position)
    flip(path, at + 90)


def rot_neighbours(root: Path, stored: list[Record]) -> None:
    """Two records in a row."""
    for number in (45, 46):
        path, at = find_segment(root, stored[number].position)
        flip(path, at + 92)


def lose_a_page(root: Path, stored: list[Record]) -> None:
    """Zeros over several records."""
    path, at = find_segment(root, stored[60].position)
    patch(path, at, bytes(1500))


def lose_the_begin_of_a_segment(root: Path, stored: list[Record]) -> None:
    """Zeros where the second segment begins."""
    path, _ = find_segment(root, OPTIONS.commitlog_segment_bytes)
    patch(path, 0, bytes(700))


def expire(root: Path, stored: list[Record]) -> None:
    """The first two segments deleted, as retention does."""
    for path in sorted((root / "commitlog").iterdir())[:2]:
        path.unlink()


def repeat_offsets(root: Path, stored: list[Record]) -> None:
    """A record that claims an offset its queue has already, and one that claims to be far ahead."""
    orders = [message for message in stored if message.topic == "Bills"]
    for number, offset in ((12, 3), (20, 2**40)):
        path, at = find_segment(root, orders[number].position)
        patch(path, at + 20, struct.pack(">q", offset))


def tear_the_end(root: Path, stored: list[Record]) -> None:
    """The last record written in part."""
    path, at = find_segment(root, stored[-1].position)
    patch(path, at + 100, bytes(stored[-1].size - 100))


def go_bad_with_name(root: Path, stored: list[Record]) -> None:
    """A record of a topic that no directory can be named after."""
    message = stored[9]
    path, at = find_segment(root, message.position)
    topic_at = at + 88 + len(message.body) + 1
    patch(path, topic_at, b"../etc"[: len(message.topic)])


Harm = Callable[[Path, list[Record]], None]
HARMS: tuple[Harm, ...] = (
    keep_whole,
    rot_a_body,
    rot_neighbours,
    lose_a_page,
    lose_the_begin_of_a_segment,
    expire,
    tear_the_end,
    go_bad_with_name,
)


# -- comparing ---------------------------------------------------------------------------------------------------------


def read_files(directory: Path) -> dict[str, bytes]:
    """Every file under a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def compare_derived(ours: Path, theirs: Path, *, only_written: bool = False) -> tuple[int, int]:
    """Assert that consume queues and index of two stores are the same bytes; returns how many files of each there are.

    Queues are compared by name. An index file is named after the moment it was made, so the files are compared in their
    order, which is that of the first positions in them. With `only_written` segments without an entry do not count:
    Java makes the next one in advance.
    """
    queues, expected = read_files(ours / "consumequeue"), read_files(theirs / "consumequeue")
    if only_written:
        expected = {name: data for name, data in expected.items() if any(data)}
    assert sorted(queues) == sorted(expected)
    for name, data in expected.items():
        assert queues[name] == data, name
    index = [list_index(root / "index") for root in (ours, theirs)]
    assert len(index[0]) == len(index[1])
    for at, (one, other) in enumerate(zip(*index, strict=True)):
        assert one == other, f"index file {at}"
    return len(queues), len(index[0])


def list_index(directory: Path) -> list[bytes]:
    """The index files in their order."""
    files = [path.read_bytes() for path in directory.iterdir()] if directory.is_dir() else []
    return sorted(files, key=lambda data: struct.unpack_from(">q", data, 16))


def count_entries(root: Path) -> int:
    """How many entries the consume queues have, without fillers."""
    total = 0
    for data in read_files(root / "consumequeue").values():
        total += sum(1 for _, size, _ in ENTRY.iter_unpack(data) if 0 < size < 2**31 - 1)
    return total


def copy_store(root: Path, name: str) -> Path:
    """A copy beside it."""
    copy = root.with_name(name)
    shutil.copytree(root, copy)
    return copy


def make_options() -> StoreOptions:
    """The sizes of the small stores."""
    return from_properties(StoreOptions, PROPERTIES)
