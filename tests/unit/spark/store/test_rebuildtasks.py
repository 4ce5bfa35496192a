"""Consume-queue segments and index files written whole are the bytes that the store writes entry by entry."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._spark.pipelines.rebuild import find_odd_queues, read_survey, share_out
from eruca._spark.store.entryrows import IndexFileName, QueueFile, read_index_rows, read_queue_rows
from eruca._spark.store.rebuildtasks import write_index_file, write_queue_segment
from eruca._store.filesystem import LocalFileSystem
from eruca._store.log.scan import Damage
from eruca._store.queues.consumequeue import ENTRY, ConsumeQueue
from eruca._store.queues.indexfile import file_bytes
from eruca.errors import StoreError
from tests.kernels import load_twins
from tests.readable import put_index_entries

SEGMENT = 200
TWINS = load_twins("eruca._spark.kernel.derived")


def write(where: Path, number: int, offsets: list[int], positions: list[int]) -> bool:
    sizes = np.arange(100, 100 + len(offsets), dtype=np.int32)
    codes = np.arange(-3, len(offsets) - 3, dtype=np.int64)
    return write_queue_segment(
        where, SEGMENT, number, np.array(offsets, np.int64), np.array(positions, np.int64), sizes, codes
    )


@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 10), (3, 4), (9, 1), (20, 10), (25, 5)])
def test_a_segment_is_what_the_queue_writes(tmp_path: Path, first: int, count: int) -> None:
    offsets, positions = list(range(first, first + count)), list(range(1000, 1000 + 50 * count, 50))
    assert write(tmp_path / "mine" / "0", first // 10, offsets, positions)
    queue = ConsumeQueue(LocalFileSystem(), tmp_path / "theirs" / "0", SEGMENT, topic="t", queue_id=0)
    if first:
        queue.start_at(first)
    for at, position in enumerate(positions):
        queue.reserve(1)
        queue.add(position, 100 + at, at - 3)
    queue.close()
    (mine,), (theirs,) = (list((tmp_path / name / "0").iterdir()) for name in ("mine", "theirs"))
    assert (mine.name, mine.read_bytes()) == (theirs.name, theirs.read_bytes())
    rows = [
        row
        for batch in read_queue_rows([QueueFile("s", str(mine), "t", 0, first // 10 * 10, SEGMENT, True)])
        for row in batch.to_pylist()
    ]
    assert [row["queueOffset"] for row in rows if row["position"]] == offsets
    assert [row["position"] for row in rows if row["position"]] == positions


@pytest.mark.parametrize(
    ("number", "offsets", "positions"),
    [
        (0, [0, 2], [10, 20]),
        (0, [0, 0], [10, 20]),
        (0, [0, 1], [20, 10]),
        (0, [0, 1], [10, 10]),
        (0, [-1, 0], [10, 20]),
        (-1, [-5], [10]),
        (0, [9, 10], [10, 20]),
        (2**58, [2**62 + 1], [10]),
    ],
)
def test_entries_that_make_no_segment_are_refused(
    tmp_path: Path, number: int, offsets: list[int], positions: list[int]
) -> None:
    assert not write(tmp_path / "0", number, offsets, positions)
    assert not list(tmp_path.iterdir())


KEYS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 9), min_size=1, max_size=4), st.integers(-900, 90_000)
    ),
    min_size=1,
    max_size=20,
)


@given(records=KEYS, slots=st.integers(1, 30), begin=st.sampled_from([0, -5, 1_700_000_000_000]))
def test_an_index_file_is_what_the_store_writes(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[list[int], int]], slots: int, begin: int
) -> None:
    entries = 100
    expected = bytearray(file_bytes(slots, entries))
    hashes: list[int] = []
    positions: list[int] = []
    times: list[int] = []
    for at, (own, elapsed) in enumerate(records):
        put_index_entries(expected, slots, own, 7 + 100 * at, begin + elapsed)
        hashes += own
        positions += [7 + 100 * at] * len(own)
        times += [begin + elapsed] * len(own)
    path = tmp_path_factory.mktemp("index") / "file"
    write_index_file(
        path, slots, entries, np.array(hashes, np.int32), np.array(positions, np.int64), np.array(times, np.int64)
    )
    assert path.read_bytes() == bytes(expected)
    (batch,) = read_index_rows([IndexFileName("s", str(path), slots, entries, False)])
    assert batch.column("keyHash").to_pylist() == hashes
    assert batch.column("position").to_pylist() == positions
    assert batch.column("reason").null_count == len(hashes)


def test_an_index_file_has_room_for_one_less(tmp_path: Path) -> None:
    one = np.ones(10, np.int32)
    longs = np.ones(10, np.int64)
    with pytest.raises(StoreError, match="do not fit"):
        write_index_file(tmp_path / "file", 5, 10, one, longs, longs)
    write_index_file(tmp_path / "file", 5, 11, one, longs, longs)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())
def test_entries_stay_inside_their_file(twin: ModuleType) -> None:
    longs, ints = np.arange(1, 4, dtype=np.int64), np.arange(5, 8, dtype=np.int32)
    queue = np.zeros(60, np.uint8)
    twin.put_queue_entries(queue, longs, ints, -longs)
    assert list(ENTRY.iter_unpack(queue.tobytes())) == [(1, 5, -1), (2, 6, -2), (3, 7, -3)]
    for out, sizes, codes in [(queue[:59], ints, longs), (queue, ints[:2], longs), (queue, ints, longs[:2])]:
        with pytest.raises(ValueError, match="3 entries"):
            twin.put_queue_entries(out, longs, sizes, codes)
    index = np.zeros(file_bytes(2, 4), np.uint8)
    expected = bytearray(len(index))
    for key_hash, position in zip(ints.tolist(), longs.tolist(), strict=True):
        put_index_entries(expected, 2, [key_hash], position, position)
    twin.put_index_entries(index, 2, ints, longs, longs)
    assert index.tobytes() == bytes(expected)
    with pytest.raises(ValueError, match="not inside"):
        twin.put_index_entries(np.zeros(file_bytes(2, 3), np.uint8), 2, ints, longs, longs)
    with pytest.raises(ValueError, match="length"):
        twin.put_index_entries(index, 2, ints, longs[:2], longs)


def test_stretches_are_shared_out_among_index_files() -> None:
    shares, bases = share_out({5: 3, 0: 4, 2: 10, 9: 3}, capacity=8)
    assert shares == [(0, 0), (2, 0), (2, 1), (5, 1), (5, 2), (9, 2)][: len(shares)]
    assert bases == {0: 0, 1: 4, 2: 14}
    assert share_out({}, 8) == ([], {})


def test_queues_whose_segments_do_not_fit_together_are_odd() -> None:
    def row(
        queue: int, segment: int, first: int, last: int, begin: int, end: int, dense: bool = True
    ) -> dict[str, object]:
        return {
            "topic": "t", "queueId": queue, "segment": segment, "dense": dense, "first": first, "last": last,
            "firstPosition": begin, "lastPosition": end,
        }  # fmt: skip

    written = [
        row(0, 1, 10, 12, 50, 60),
        row(0, 0, 3, 9, 10, 40),
        row(1, 0, 0, 8, 10, 40),
        row(1, 1, 10, 12, 50, 60),
        row(2, 0, 0, 9, 10, 60),
        row(2, 1, 10, 12, 50, 70),
        row(3, 0, 0, 9, 10, 60, dense=False),
    ]
    assert find_odd_queues(written) == {("t", 1), ("t", 2), ("t", 3)}


def test_damage_of_neighbours_is_one_range() -> None:
    def stretch(number: int, *damage: tuple[int, int, bool, str], records: int = 1) -> dict[str, object]:
        return {
            "stretch": number, "records": records, "bytes": 10 * records, "first": 100 + number, "last": 200 + number,
            "keys": 2 * records,
            "damage": [
                dict(zip(("physicalOffset", "size", "isRecord", "reason"), each, strict=True)) for each in damage
            ],
        }  # fmt: skip

    survey = read_survey(
        [stretch(2, (30, 10, True, "CRC")), stretch(0, (20, 10, False, "zeros"), (90, 5, True, "CRC"))]
    )
    assert survey.damage == [Damage(20, 20, "zeros"), Damage(90, 5, "CRC")]
    assert sorted(survey.bad_positions) == [30, 90]
    assert (survey.records, survey.bytes, survey.first_ms, survey.last_ms) == (2, 20, 100, 202)
    assert survey.keys == {0: 2, 2: 2}
