"""The JSON tables: never half-written, readable by Java, and Java's by us, of 4.9 and of 3.x."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._store import jsonfile as jsonfile_module
from eruca._store.tables import tables as tables_module
from eruca._store.tables.tables import TableFile, Tables, encode_table
from eruca._testing.faults import CrashMode, Fault, SimulatedDisk
from eruca._wire.bodies import (
    ConsumerOffsets,
    DelayOffsets,
    GroupConfig,
    GroupConfigTable,
    JsonBody,
    TopicConfig,
    TopicConfigTable,
    encode_json,
)
from eruca.errors import StoreError, StoreFull, StoreIOError, TableCorrupt, TableFull
from tests.unit.store.samples import ROOT, make_disk

DIRECTORY = ROOT / "config"
OFFSETS = DIRECTORY / "consumerOffset.json"
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def make_tables(disk: SimulatedDisk) -> Tables:
    """The tables of a store on a disk."""
    return Tables(disk, DIRECTORY)


def offsets(number: int) -> ConsumerOffsets:
    """A table with one offset."""
    return ConsumerOffsets(offset_table={"t@g": {0: number}})


def put_file(disk: SimulatedDisk, path: Path, data: bytes) -> None:
    """Write a file as another program would."""
    disk.make_directory(DIRECTORY)
    disk.write_file(path, data)


# --- round trips ----------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(max_size=20), st.dictionaries(INT32, INT64, max_size=5), max_size=5))
def test_consumer_offsets_come_back(table: dict[str, dict[int, int]]) -> None:
    tables = make_tables(make_disk())
    tables.consumer_offsets.save(ConsumerOffsets(offset_table=table))
    assert tables.consumer_offsets.load().offset_table == table


@given(st.dictionaries(INT32, INT64, max_size=20))
def test_delay_offsets_come_back(table: dict[int, int]) -> None:
    tables = make_tables(make_disk())
    tables.delay_offsets.save(DelayOffsets(offset_table=table))
    assert tables.delay_offsets.load().offset_table == table


def test_missing_tables_are_empty() -> None:
    tables = make_tables(make_disk())
    assert tables.topics.load() == TopicConfigTable()
    assert tables.groups.load() == GroupConfigTable()
    assert tables.consumer_offsets.load().offset_table == {}
    assert tables.delay_offsets.load().offset_table == {}


def test_what_we_write_is_strict_json_with_quoted_numbers_as_keys() -> None:
    """Java's reader takes quoted keys of its integer maps as well as bare ones."""
    disk = make_disk()
    make_tables(disk).consumer_offsets.save(ConsumerOffsets(offset_table={"t@g": {0: 5, 1: 2}}))
    assert json.loads(disk.read_file(OFFSETS)) == {"offsetTable": {"t@g": {"0": 5, "1": 2}}}
    make_tables(disk).delay_offsets.save(DelayOffsets(offset_table={2: 1}))
    assert json.loads(disk.read_file(DIRECTORY / "delayOffset.json")) == {"offsetTable": {"2": 1}}
    assert disk.list(DIRECTORY) == ["consumerOffset.json", "delayOffset.json"]


# --- what Java wrote ------------------------------------------------------------------------------------------------


def test_bare_keys_of_fastjson_are_read() -> None:
    disk = make_disk()
    put_file(disk, OFFSETS, b'{\n\t"offsetTable":{"TopicTest@g":{0:5,1:2\n\t\t},"%RETRY%g@g":{0:1}\n\t}\n}')
    put_file(disk, DIRECTORY / "delayOffset.json", b'{\n\t"offsetTable":{2:1,3:9223372036854775807}\n}')
    tables = make_tables(disk)
    assert tables.consumer_offsets.load().offset_table == {"TopicTest@g": {0: 5, 1: 2}, "%RETRY%g@g": {0: 1}}
    assert tables.delay_offsets.load().offset_table == {2: 1, 3: 2**63 - 1}


def test_topics_and_groups_of_four_nine_are_read() -> None:
    disk = make_disk()
    put_file(
        disk,
        DIRECTORY / "topics.json",
        b'{"dataVersion":{"counter":3,"timestamp":1700000000000},"topicConfigTable":{"T":{"order":false,"perm":6,'
        b'"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}}}',
    )
    put_file(
        disk,
        DIRECTORY / "subscriptionGroup.json",
        b'{"dataVersion":{"counter":1,"timestamp":7},"subscriptionGroupTable":{"g":{"brokerId":0,'
        b'"consumeBroadcastEnable":true,"consumeEnable":false,"consumeFromMinEnable":true,"groupName":"g",'
        b'"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":5,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}',
    )
    tables = make_tables(disk)
    topics, groups = tables.topics.load(), tables.groups.load()
    topic = topics.topic_config_table["T"]
    assert (topic.read_queue_nums, topic.write_queue_nums, topics.data_version.counter) == (4, 8, 3)
    assert topics.data_version.timestamp == 1_700_000_000_000
    group = groups.subscription_group_table["g"]
    assert (group.retry_max_times, group.consume_enable, groups.data_version.timestamp) == (5, False, 7)
    tables.topics.save(topics)
    tables.groups.save(groups)
    assert (tables.topics.load(), tables.groups.load()) == (topics, groups)


def test_the_spellings_of_three_x_are_read_and_written_as_four_nine_spells() -> None:
    disk = make_disk()
    put_file(
        disk,
        DIRECTORY / "topics.json",
        b'{"dataVersion":{"counter":2,"timestatmp":1400000000000},"topicConfigTable":{"T":{"topicName":"T"}}}',
    )
    put_file(
        disk,
        DIRECTORY / "subscriptionGroup.json",
        b'{"dataVersion":{"counter":4,"timestatmp":9},"g":{"groupName":"g","retryMaxTimes":3}}',
    )
    tables = make_tables(disk)
    topics, groups = tables.topics.load(), tables.groups.load()
    assert (topics.data_version.counter, topics.data_version.timestamp) == (2, 1_400_000_000_000)
    assert list(topics.topic_config_table) == ["T"]
    assert (groups.data_version.counter, groups.data_version.timestamp) == (4, 9)
    assert groups.subscription_group_table["g"].retry_max_times == 3
    assert b"timestatmp" not in encode_table(topics) + encode_table(groups)
    assert json.loads(encode_table(groups))["subscriptionGroupTable"]["g"]["groupName"] == "g"


# --- one step -------------------------------------------------------------------------------------------------------


def test_the_previous_content_is_the_backup() -> None:
    disk = make_disk()
    table = make_tables(disk).consumer_offsets
    for number in range(3):
        table.save(offsets(number))
    assert disk.read_file(OFFSETS) == encode_table(offsets(2))
    assert disk.read_file(OFFSETS.with_name("consumerOffset.json.bak")) == encode_table(offsets(1))


def count_calls_of_a_save() -> int:
    """How many calls of the disk one save makes."""
    disk = make_disk()
    table = make_tables(disk).consumer_offsets
    table.save(offsets(1))
    calls = disk.calls
    table.save(offsets(2))
    return disk.calls - calls


class PowerCut(BaseException):
    """The power goes in the middle of a call."""


@pytest.mark.parametrize("mode", list(CrashMode))
@pytest.mark.parametrize("strict", [False, True])
def test_a_power_loss_at_any_call_leaves_the_old_or_the_new_table(mode: CrashMode, strict: bool) -> None:
    for cut in range(1, count_calls_of_a_save() + 2):
        for seed in range(5):
            disk = make_disk()
            disk.strict_datasync = strict
            table = make_tables(disk).consumer_offsets
            table.save(offsets(1))
            disk.sync_directory(DIRECTORY.parent)  # the store has synced its root long before
            disk.sync_directory(Path("/"))
            last = disk.calls + cut

            def stop(number: int, operation: str, path: str, last: int = last) -> None:
                if number >= last:
                    raise PowerCut

            disk.on_call = stop
            saved = True
            try:
                table.save(offsets(2))
            except PowerCut:
                saved = False
            disk.on_call = None
            left = make_tables(disk.crash(mode, seed=seed)).consumer_offsets.load().offset_table["t@g"][0]
            assert left == 2 if saved else left in (1, 2)


@pytest.mark.parametrize("fault", list(Fault))
def test_a_save_that_fails_at_any_call_leaves_a_whole_table(fault: Fault) -> None:
    for failing in range(1, count_calls_of_a_save() + 1):
        disk = make_disk()
        table = make_tables(disk).consumer_offsets
        table.save(offsets(1))
        disk.fail(disk.calls + failing, fault)
        saved = True
        try:
            table.save(offsets(2))
        except StoreError:
            saved = False
        left = make_tables(disk.kill()).consumer_offsets.load().offset_table["t@g"][0]
        assert left == 2 if saved else left in (1, 2)
        table.save(offsets(3))
        assert table.load() == offsets(3)


def test_a_backup_that_cannot_be_made_does_not_keep_a_table_from_being_saved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = make_disk()
    table = make_tables(disk).consumer_offsets
    table.save(offsets(1))
    disk.fail_next("read_file", Fault.EIO)
    with caplog.at_level(logging.WARNING):
        table.save(offsets(2))
    assert "no backup of consumerOffset.json" in caplog.text
    assert table.load() == offsets(2)


def test_a_full_disk_is_told() -> None:
    disk = make_disk()
    table = make_tables(disk).consumer_offsets
    table.save(offsets(1))
    disk.full = True
    with pytest.raises(StoreFull):
        table.save(offsets(2))
    assert table.load() == offsets(1)


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"", b"  \n", b"{", b"null", b"[]", b'{"offsetTable":3}', b"\xff\xfe", b"{empty}"])
def test_a_damaged_table_is_taken_from_its_backup_and_it_says_so(
    damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = make_disk()
    table = make_tables(disk).consumer_offsets
    table.save(offsets(1))
    table.save(offsets(2))
    disk.write_file(OFFSETS, damage)
    with caplog.at_level(logging.WARNING):
        assert table.load() == offsets(1)
    assert "consumerOffset.json.bak was used instead" in caplog.text
    table.save(offsets(3))
    assert disk.read_file(OFFSETS.with_name("consumerOffset.json.bak")) == encode_table(offsets(1))  # not the damage


def test_a_missing_table_with_a_backup_is_taken_from_it_and_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Java deletes the old file before it renames the new one."""
    disk = make_disk()
    put_file(disk, OFFSETS.with_name("consumerOffset.json.bak"), encode_table(offsets(7)))
    with caplog.at_level(logging.WARNING):
        assert make_tables(disk).consumer_offsets.load() == offsets(7)
    assert "consumerOffset.json is missing; consumerOffset.json.bak was used instead" in caplog.text


@pytest.mark.parametrize(
    ("table", "backup"), [(b"{", None), (b"{", b""), (b"", b"{"), (None, b"{"), (b"{", b"[1]"), (b"{'empty':1}", None)]
)
def test_two_damaged_tables_are_an_error_and_not_an_empty_table(table: bytes | None, backup: bytes | None) -> None:
    disk = make_disk()
    for path, data in ((OFFSETS, table), (OFFSETS.with_name("consumerOffset.json.bak"), backup)):
        if data is not None:
            put_file(disk, path, data)
    with pytest.raises(TableCorrupt, match="unreadable") as caught:
        make_tables(disk).consumer_offsets.load()
    assert "by hand" in caught.value.hint


def test_a_table_too_large_to_be_ours_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonfile_module, "TABLE_BYTES_MAX", 100)
    disk = make_disk()
    put_file(disk, OFFSETS, b" " * 101)
    with pytest.raises(TableCorrupt, match="larger than 100 bytes"):
        make_tables(disk).consumer_offsets.load()


def test_no_table_is_written_that_a_start_would_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = make_disk()
    table = make_tables(disk).consumer_offsets
    table.save(offsets(1))
    monkeypatch.setattr(jsonfile_module, "TABLE_BYTES_MAX", len(encode_table(offsets(1))))
    with pytest.raises(TableFull, match="a start reads at most"):
        table.save(offsets(11))
    assert table.load() == offsets(1)


@given(st.binary(max_size=200) | st.text(alphabet='{}[]:",0a \\u\n', max_size=60).map(str.encode))
def test_no_content_gives_an_unexpected_error(data: bytes) -> None:
    disk = make_disk()
    kinds: list[tuple[str, type[Any]]] = [
        ("topics.json", TopicConfigTable),
        ("subscriptionGroup.json", GroupConfigTable),
        ("consumerOffset.json", ConsumerOffsets),
        ("delayOffset.json", DelayOffsets),
    ]
    for name, kind in kinds:
        put_file(disk, DIRECTORY / name, data)
        table: TableFile[Any] = TableFile(disk, DIRECTORY / name, kind)
        try:
            loaded = table.load()
        except TableCorrupt:
            continue
        table.save(loaded)
        assert table.load() == loaded


def test_a_table_that_cannot_be_read_now_is_not_taken_for_damaged() -> None:
    """An older content would move offsets back; the caller may try again."""
    disk = make_disk()
    table = make_tables(disk).consumer_offsets
    table.save(offsets(1))
    table.save(offsets(2))
    disk.fail_next("read_file", Fault.EIO)
    with pytest.raises(StoreIOError):
        table.load()
    assert table.load() == offsets(2)


LARGE_TABLES = [
    TopicConfigTable(topic_config_table={f"topic-{n}": TopicConfig(topic_name=f"topic-{n}") for n in range(1201)}),
    GroupConfigTable(subscription_group_table={f"g{n}": GroupConfig(group_name=f"g{n}") for n in range(1000)}),
    ConsumerOffsets(offset_table={f"topic@g{n}": {0: n, 1: 7} for n in range(501)}),
    DelayOffsets(offset_table={n: n for n in range(600)}),
    ConsumerOffsets(offset_table={'"offsetTable": {}': {0: 1}, **{f"a\u2028{n}": {} for n in range(777)}}),
]


@pytest.mark.parametrize("table", LARGE_TABLES, ids=lambda table: table.__class__.__name__)
def test_a_large_table_is_written_in_parts_as_a_whole_would_be(table: JsonBody) -> None:
    assert encode_table(table) == msgspec.json.format(encode_json(table), indent=1)


def test_no_part_of_a_large_table_keeps_other_threads_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def measure(body: JsonBody) -> bytes:
        data = encode_json(body)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(tables_module, "encode_json", measure)
    encode_table(LARGE_TABLES[0])
    assert max(sizes) < len(encode_json(LARGE_TABLES[0])) / 2
