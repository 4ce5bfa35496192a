"""The ledger and the comparison of logs detect the errors they are meant to detect."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eruca._ground.config import StoreOptions, from_properties
from eruca._store.messagestore import open_store
from eruca._testing.clock import VirtualClock
from eruca._wire.ids import encode_offset_id
from eruca._wire.record import Record
from tests.replication.load import NO_ANSWER, TOPIC, Ledger, make_body, read_number
from tests.replication.segments import (
    Stored,
    compare_logs,
    find_tail,
    list_diverged,
    list_segments,
    read_diverged,
    read_log,
)

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
SEGMENT = 8192
OPTIONS = from_properties(StoreOptions, {"mappedFileSizeCommitLog": str(SEGMENT)})


def write_store(root: Path, count: int, *, seed: int = 0) -> list[Record]:
    """A store with numbered messages in two queues."""
    store = open_store(root, OPTIONS, clock=VirtualClock(1_700_000_000_000 + seed))
    bodies = [make_body(number) for number in range(count)]
    messages = [
        store.append(Record(topic=TOPIC, queue_id=number % 2, body=body, store_host=HOST))
        for number, body in enumerate(bodies)
    ]
    store.close()
    return messages


def note_all(messages: list[Record]) -> Ledger:
    ledger = Ledger()
    for message in messages:
        attempt = ledger.begin()
        ledger.note(attempt, 0, message.queue_id, message.queue_offset, encode_offset_id(HOST, message.position))
    return ledger


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    messages = write_store(tmp_path, 100)
    records = list(read_log(tmp_path))
    assert [record.position for record in records] == [message.position for message in messages]
    assert [read_number(record.body) for record in records] == list(range(100))
    assert find_tail(tmp_path) == records[-1].position + records[-1].size
    assert len(list_segments(tmp_path)) > 2
    assert note_all(messages).list_faults(records) == []


@pytest.mark.parametrize("at", [0, 100, SEGMENT - 1, SEGMENT + 500])
def test_one_different_byte_is_found(tmp_path: Path, at: int) -> None:
    write_store(tmp_path / "one", 100)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    tail = find_tail(tmp_path / "one")
    same = compare_logs(tmp_path / "one", tmp_path / "two")
    assert (same.is_same, same.end, same.segments) == (True, tail, len(list_segments(tmp_path / "one")))
    path = tmp_path / "two" / "commitlog" / f"{at // SEGMENT * SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[at % SEGMENT] ^= 1
    path.write_bytes(data)
    found = compare_logs(tmp_path / "one", tmp_path / "two", tail)
    assert (found.is_same, found.difference) == (False, at)


def test_a_missing_segment_and_a_shorter_log_are_told(tmp_path: Path) -> None:
    write_store(tmp_path / "one", 100)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two" / "commitlog" / f"{SEGMENT:020d}").unlink()
    assert compare_logs(tmp_path / "one", tmp_path / "two", 2 * SEGMENT).missing == (f"{SEGMENT:020d}",)
    write_store(tmp_path / "three", 30)
    short = compare_logs(tmp_path / "one", tmp_path / "three")
    assert short.is_same
    assert short.end == find_tail(tmp_path / "three")
    # A slave that began later has fewer segments; what both have counts.
    (tmp_path / "two" / "commitlog" / f"{0:020d}").unlink()
    assert compare_logs(tmp_path / "one", tmp_path / "two").begin == 2 * SEGMENT


def test_what_was_acknowledged_and_is_not_there_is_told(tmp_path: Path) -> None:
    messages = write_store(tmp_path, 20)
    ledger = note_all(messages)
    attempt = ledger.begin()
    ledger.note(attempt, 0, 1, 10, encode_offset_id(HOST, find_tail(tmp_path)))
    (fault,) = ledger.list_faults(list(read_log(tmp_path)))
    assert "acknowledged and lost: 1" in fault


def test_what_was_not_acknowledged_may_be_there_or_not(tmp_path: Path) -> None:
    messages = write_store(tmp_path, 20)
    ledger = note_all(messages[:10])
    for code in (NO_ANSWER, 11, 12, 14):
        for _ in range(5):
            ledger.note(ledger.begin(), code)
    assert ledger.list_faults(list(read_log(tmp_path))) == []
    assert ledger.acknowledged == 10
    assert "5 answered 12" in ledger.summarise()


def test_another_message_at_an_acknowledged_place_is_told(tmp_path: Path) -> None:
    messages = write_store(tmp_path, 20)
    ledger = note_all(messages)
    ledger.attempts[3].number, ledger.attempts[5].number = 5, 3
    faults = ledger.list_faults(list(read_log(tmp_path)))
    assert any("something else is there: 2" in fault for fault in faults)


def test_two_acknowledgements_for_one_place_are_told(tmp_path: Path) -> None:
    messages = write_store(tmp_path, 20)
    ledger = note_all(messages)
    attempt = ledger.begin()
    first = messages[4]
    ledger.note(attempt, 0, first.queue_id, first.queue_offset, encode_offset_id(HOST, first.position))
    faults = ledger.list_faults(list(read_log(tmp_path)))
    assert any("two messages acknowledged for one place" in fault for fault in faults)


def test_an_order_that_one_log_cannot_have_is_told(tmp_path: Path) -> None:
    ledger = note_all(write_store(tmp_path, 4))
    assert ledger.list_disorder() == []
    # The first in the log was sent when the last had been answered.
    ledger.attempts[0].begun = ledger.attempts[3].answered + 1
    ledger.attempts[0].answered = ledger.attempts[0].begun + 1
    assert "another order" in ledger.list_disorder()[0]


def test_a_hole_in_a_queue_and_an_unknown_message_are_told(tmp_path: Path) -> None:
    records = [
        Stored(0, 10, TOPIC, 0, 0, make_body(0), is_half=False),
        Stored(10, 10, TOPIC, 0, 2, make_body(1), is_half=False),
        Stored(20, 10, TOPIC, 1, 0, make_body(99), is_half=False),
    ]
    ledger = Ledger()
    for _ in range(2):
        ledger.note(ledger.begin(), 12)
    faults = ledger.list_faults(records)
    assert any("queue 0 has offset 2" in fault for fault in faults)
    assert any("nobody sent: 1" in fault for fault in faults)


def test_a_tail_that_was_set_aside_is_read(tmp_path: Path) -> None:
    messages = write_store(tmp_path, 100)
    begin, end = messages[20].position, find_tail(tmp_path)
    whole = b"".join(path.read_bytes() for path in list_segments(tmp_path).values())
    folder = tmp_path / "eruca-diverged"
    folder.mkdir()
    (folder / f"3-{begin}-{end}.log").write_bytes(whole[begin:end])
    (path,) = list_diverged(tmp_path)
    assert [read_number(record.body) for record in read_diverged(path)] == list(range(20, 100))


def test_pauses_are_measured_from_the_kill_to_the_next_acknowledgement() -> None:
    ledger = Ledger()
    for begun, answered, code in ((0.0, 0.1, 0), (0.9, 1.2, NO_ANSWER), (0.95, 3.0, 0), (1.5, 3.5, 0), (4.0, 4.1, 0)):
        attempt = ledger.begin()
        ledger.note(attempt, code)
        attempt.begun, attempt.answered = begun, answered
    assert ledger.find_pauses([1.0]) == [2.5]
