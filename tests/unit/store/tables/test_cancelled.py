"""Files of cancelled messages: what was saved is there again, and a save writes only what is new."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eruca._store.filesystem import LocalFileSystem
from eruca._store.tables.cancelled import Cancelled, CancelledFiles, digest_key, digest_topic
from eruca.errors import StoreFull


def make(path: Path, disk: LocalFileSystem | None = None) -> CancelledFiles:
    return CancelledFiles(disk or LocalFileSystem(), path)


def entry(key: str, until_ms: int = 99, topic: str = "Orders") -> Cancelled:
    return Cancelled(digest_topic(topic), digest_key(key), until_ms)


def sizes(path: Path) -> list[int]:
    return [file.stat().st_size for file in sorted((path / "cancelled").iterdir())]


def test_what_was_added_is_there_again_in_order(tmp_path: Path) -> None:
    files = make(tmp_path)
    assert files.load() == []
    files.add([entry("one"), entry("two", topic="Bills")])
    files.add([entry("one", 7)])
    again = make(tmp_path)
    assert again.load() == [entry("one"), entry("two", topic="Bills"), entry("one", 7)]
    again.add([entry("three")])
    assert make(tmp_path).load()[3:] == [entry("three")]


def test_a_save_writes_only_what_is_new_and_a_name_of_any_length_takes_the_same_room(tmp_path: Path) -> None:
    files = make(tmp_path)
    files.load()
    files.add([entry(f"{number}" + "k" * 30_000) for number in range(1000)])
    files.add([entry("short")])
    assert sizes(tmp_path) == [12 + 1000 * 32, 12 + 32]


def test_one_file_replaces_all_others(tmp_path: Path) -> None:
    files = make(tmp_path)
    files.load()
    for number in range(31):
        files.add([entry(str(number))])
    assert not files.should_replace(31)
    files.add([entry("31")])
    assert files.should_replace(32)
    files.replace([entry("31")])
    assert len(sizes(tmp_path)) == 1 and make(tmp_path).load() == [entry("31")]
    # As after a crash in between: what an older file has does not count more.
    (tmp_path / "cancelled" / f"{1:012}").write_bytes((tmp_path / "cancelled" / f"{33:012}").read_bytes())
    files.replace([entry("31", 1)])
    assert make(tmp_path).load()[-1] == entry("31", 1)


def test_entries_that_are_over_take_no_room_for_long(tmp_path: Path) -> None:
    files = make(tmp_path)
    files.load()
    files.add([entry(str(number)) for number in range(5000)])
    assert not files.should_replace(500) and files.should_replace(100)


@pytest.mark.parametrize("data", [b"", b"ETC1", b"ETC1" + bytes(8) + b"x", b"ETC0" + bytes(8)])
def test_a_damaged_file_costs_only_what_it_had(tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    files = make(tmp_path)
    files.load()
    files.add([entry("one")])
    files.add([entry("two")])
    (tmp_path / "cancelled" / f"{1:012}").write_bytes(data)
    assert make(tmp_path).load() == [entry("two")]
    assert "is unreadable, messages that were cancelled may be delivered" in caplog.text


def test_every_bit_of_an_entry_counts(tmp_path: Path) -> None:
    files = make(tmp_path)
    files.load()
    files.add([entry("one")])
    path = tmp_path / "cancelled" / f"{1:012}"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert make(tmp_path).load() == []


def test_the_file_of_an_earlier_version_is_read_and_replaced(tmp_path: Path) -> None:
    old = tmp_path / "cancelled.json"
    old.write_text(json.dumps({"Orders one": 5, "Bills a b": 6}))
    files = make(tmp_path)
    found = files.load()
    assert found == [entry("one", 5), entry("a b", 6, "Bills")]
    assert files.should_replace(2)
    files.replace(found)
    assert not old.exists() and not files.should_replace(2)
    assert make(tmp_path).load() == found


@pytest.mark.parametrize("content", [b"nonsense", b'{"\xef((": 1}'])
def test_a_damaged_file_of_an_earlier_version_is_an_empty_one(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "cancelled.json").write_bytes(content)
    assert make(tmp_path).load() == []


class FullDisk(LocalFileSystem):
    """Has no room."""

    def write_file(self, path: Path, data: bytes) -> None:
        raise StoreFull("no space")


def test_nothing_is_lost_when_the_disk_is_full(tmp_path: Path) -> None:
    files = make(tmp_path)
    files.load()
    files.add([entry("one")])
    full = make(tmp_path, FullDisk())
    full.load()
    for write in (full.add, full.replace):
        with pytest.raises(StoreFull):
            write([entry("two")])
    assert make(tmp_path).load() == [entry("one")]


def test_nothing_is_left_when_it_is_discarded(tmp_path: Path) -> None:
    files = make(tmp_path)
    files.load()
    files.add([entry("one")])
    (tmp_path / "cancelled.json").write_text("{}")
    files.discard()
    assert make(tmp_path).load() == [] and sizes(tmp_path) == []
