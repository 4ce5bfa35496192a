"""Options: Java's keys and defaults, `.conf` files, bounds, and what contradicts itself."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._broker.options import BrokerOptions
from eruca._filterserver.options import FilterServerOptions
from eruca._ground.config import (
    FlushMode,
    StoreOptions,
    check_bounds,
    from_properties,
    info_of,
    option,
    parse_delay_levels,
    parse_value,
)
from eruca._ground.javaconf import parse_conf
from eruca._nameserver.options import NameServerOptions
from eruca.errors import ConfigError

# What a 4.9 broker has when nothing is configured.
JAVA_DEFAULTS = {
    "mappedFileSizeCommitLog": 1_073_741_824,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "messageIndexEnable": True,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "maxMessageSize": 4_194_304,
    "flushDiskType": FlushMode.ASYNC,
    "flushIntervalCommitLog": 500,
    "flushCommitLogLeastPages": 4,
    "flushCommitLogThoroughInterval": 10_000,
    "syncFlushTimeout": 5000,
    "flushIntervalConsumeQueue": 1000,
    "transientStorePoolEnable": False,
    "transientStorePoolSize": 5,
    "commitIntervalCommitLog": 200,
    "warmMapedFileEnable": False,
    "fileReservedTime": 72,
    "deleteWhen": "04",
    "diskMaxUsedSpaceRatio": 75,
    "cleanFileForciblyEnable": True,
    "checkCRCOnRecover": True,
    "osPageCacheBusyTimeOutMills": 1000,
}


# --- declarations ---------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_a_four_nine_broker() -> None:
    options = StoreOptions()
    by_key = {info.java: getattr(options, name) for name, info in info_of(StoreOptions).items()}
    assert {key: by_key[key] for key in JAVA_DEFAULTS} == JAVA_DEFAULTS
    check_bounds(options)


def test_every_option_is_declared_whole() -> None:
    infos = info_of(StoreOptions)
    assert set(infos) == {field.name for field in dataclasses.fields(StoreOptions)}
    assert len({info.java for info in infos.values()}) == len(infos)
    for name, info in infos.items():
        assert info.doc and not info.doc.endswith("."), name
        if type(getattr(StoreOptions(), name)) is int:
            assert info.unit, name


@pytest.mark.parametrize("options", [StoreOptions, BrokerOptions, NameServerOptions, FilterServerOptions])
def test_every_number_has_bounds(options: type) -> None:
    kinds = {name: kind for name, kind in get_type_hints(options).items() if kind is int}
    infos = info_of(options)
    for name in kinds.keys() & infos.keys():
        info, default = infos[name], getattr(options(), name)
        assert info.low is not None and info.high is not None, name
        assert info.low <= default <= info.high, name
        # A wait that is made of it fits into what event loops and Java take.
        assert info.unit != "ms" or info.high <= 2**31 - 1 or name == "accept_sends_from_ms", name
        # Twenty, because one of them is rounded up to whole entries of this number of bytes.
        for wrong in (info.low - 20, info.high + 1):
            with pytest.raises(ConfigError, match=info.java):
                from_properties(options, {info.java: str(wrong)})
        for wrong_text in ("9" * 5000, "²", "1_000", "٣", "", "1e3"):
            with pytest.raises(ConfigError, match=info.java):
                from_properties(options, {info.java: wrong_text})


@pytest.mark.parametrize("hours", ["²", "24", "now", "", ";", "004", "9" * 5000])
def test_hours_of_the_day_are_checked_wherever_they_come_from(hours: str) -> None:
    with pytest.raises(ConfigError, match="deleteWhen"):
        from_properties(StoreOptions, {"deleteWhen": hours})
    assert from_properties(StoreOptions, {"deleteWhen": "4; 23;"}).delete_hours == "4; 23;"


def test_a_secret_does_not_show_in_a_repr() -> None:
    options = from_properties(BrokerOptions, {"etcdEndpoints": "http://root:hunter2@10.0.0.1:2379"})
    assert "hunter2" not in repr(options)
    assert options.etcd_endpoints.endswith("2379")


def test_facts_are_found_on_a_class_and_on_an_object() -> None:
    @dataclass
    class Small:
        count: int = option(3, "theCount", "how many", unit="things", low=1, high=5, mutable=True)
        plain: int = 7

    assert list(info_of(Small)) == list(info_of(Small())) == ["count"]
    assert info_of(Small)["count"].mutable and not info_of(Small)["count"].secret


# --- values ---------------------------------------------------------------------------------------------------------


def test_properties_become_typed_values() -> None:
    options = from_properties(
        StoreOptions,
        {
            "mappedFileSizeCommitLog": " 8192 ",
            "messageIndexEnable": "FALSE",
            "flushDiskType": "SYNC_FLUSH",
            "deleteWhen": "03;04",
            "brokerName": "not ours",
        },
    )
    assert (options.commitlog_segment_bytes, options.index_enabled) == (8192, False)
    assert (options.flush_mode, options.delete_hours) == (FlushMode.SYNC, "03;04")
    assert options.retention_hours == 72


@pytest.mark.parametrize(
    ("key", "text", "what"),
    [
        ("mappedFileSizeCommitLog", "big", "whole number"),
        ("mappedFileSizeCommitLog", "1.5", "whole number"),
        ("mappedFileSizeCommitLog", "", "whole number"),
        ("messageIndexEnable", "yes", "true or false"),
        ("flushDiskType", "LAZY", "ASYNC_FLUSH, SYNC_FLUSH"),
        ("mappedFileSizeCommitLog", "4095", "the minimum is 4096 bytes"),
        ("diskMaxUsedSpaceRatio", "9", "the minimum is 10 percent"),
        ("diskMaxUsedSpaceRatio", "96", "the maximum is 95 percent"),
        ("maxIndexNum", "1", "the minimum is 2"),
    ],
)
def test_a_bad_value_is_refused_with_its_key(key: str, text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        from_properties(StoreOptions, {key: text})
    assert f"{key}={text}" in str(caught.value)


def test_text_stays_text() -> None:
    assert parse_value("k", "  a b  ", str) == "a b"


def test_a_queue_segment_holds_whole_entries() -> None:
    sizes = {20: 20, 21: 40, 39: 40, 40: 40, 6_000_000: 6_000_000}
    made = {size: StoreOptions(consumequeue_segment_bytes=size).consumequeue_segment_bytes for size in sizes}
    assert made == sizes


def test_a_buffer_in_memory_contradicts_sync_flush() -> None:
    with pytest.raises(ConfigError, match="needs flushDiskType=ASYNC_FLUSH"):
        StoreOptions(transient_enabled=True, flush_mode=FlushMode.SYNC)
    assert StoreOptions(transient_enabled=True).transient_enabled


# --- .conf files ----------------------------------------------------------------------------------------------------


def test_a_conf_file_of_a_broker_is_read() -> None:
    text = (
        "# a broker\n"
        "brokerClusterName = DefaultCluster\n"
        "! another comment\n"
        "\n"
        "  namesrvAddr=10.0.0.1:9876;10.0.0.2:9876\r\n"
        "deleteWhen: 04\n"
        "messageDelayLevel=1s 5s \\\n"
        "    10s\n"
        "storePathRootDir=C\\:\\\\store\n"
        "fileReservedTime=48\n"
        "fileReservedTime=72\n"
        "flag\n"
    )
    assert parse_conf(text) == {
        "brokerClusterName": "DefaultCluster",
        "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876",
        "deleteWhen": "04",
        "messageDelayLevel": "1s 5s 10s",
        "storePathRootDir": "C:\\store",
        "fileReservedTime": "72",
        "flag": "",
    }


def test_an_even_number_of_backslashes_ends_a_line() -> None:
    assert parse_conf("a=x\\\\\nb=y") == {"a": "x\\", "b": "y"}
    assert parse_conf("a=x\\") == {"a": "x"}
    assert parse_conf("# comment \\\nb=y") == {"b": "y"}


@given(
    st.dictionaries(st.from_regex(r"[a-zA-Z]{1,12}", fullmatch=True), st.from_regex(r"[\w./;=: -]*", fullmatch=True))
)
def test_plain_values_come_back(pairs: dict[str, str]) -> None:
    pairs = {key: "".join(value.split()) for key, value in pairs.items()}
    assert parse_conf("\n".join(f"{key}={value}" for key, value in pairs.items())) == pairs


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert all(key == key.strip() for key in parse_conf(text))


# --- delay levels ---------------------------------------------------------------------------------------------------


def test_the_default_levels_are_javas() -> None:
    levels = parse_delay_levels(StoreOptions().delay_levels)
    assert len(levels) == 18
    assert (levels[0], levels[2], levels[4], levels[17]) == (1000, 10_000, 60_000, 7_200_000)
    assert parse_delay_levels("1d  2h") == [86_400_000, 7_200_000]


@pytest.mark.parametrize("text", ["", "  ", "1", "s", "1w", "-1s", "1.5s", "1s x"])
def test_levels_that_are_no_times_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        parse_delay_levels(text)
