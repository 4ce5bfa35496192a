"""Values as Java's mqadmin prints them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from eruca._admin.settings import GroupSettings, TopicSettings
from eruca._cli.mqadmin import javatext
from eruca.errors import ConfigError

MOMENT = datetime(2026, 11, 15, 7, 21, 6, 123_000).astimezone()


def test_times() -> None:
    assert javatext.show_time(MOMENT) == "2026-11-15 07:21:06"
    assert javatext.show_time_ms(MOMENT) == "2026-11-15 07:21:06,123"
    assert javatext.show_time_compact(MOMENT) == "20261115072106123"
    assert (javatext.show_time(None, "N/A"), javatext.show_time_ms(None), javatext.to_ms(None)) == ("N/A", "", 0)
    assert javatext.show_time_compact(None).endswith("000")


def test_times_are_read() -> None:
    assert javatext.parse_java_time("-s", "2026-11-15#07:21:06:123") == MOMENT
    assert javatext.parse_java_time("-s", "1700000000000") == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert javatext.parse_java_time("-s", "-1") == datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=1)
    for text in ("", "yesterday", "2026-11-15", "2026-13-15#07:21:06:123", "2026-11-15 07:21:06", "9" * 18):
        with pytest.raises(ConfigError, match=r"-s .* is not a time"):
            javatext.parse_java_time("-s", text)


def test_permissions() -> None:
    assert [javatext.permission_letters(number) for number in (0, 2, 4, 6, 7)] == ["-", "W", "R", "RW", "RWX"]
    assert [javatext.permission_marks(letters) for letters in ("-", "W", "R", "RW", "RWX")] == [
        "---",
        "-W-",
        "R--",
        "RW-",
        "RWX",
    ]
    for number in (-1, 8):
        with pytest.raises(ConfigError, match=f"{number} is not a permission"):
            javatext.permission_letters(number)


def test_settings() -> None:
    settings = TopicSettings(read_queues=3, write_queues=2, permission="R", ordered=True, system_flag=2)
    assert javatext.show_topic("orders", settings) == (
        "TopicConfig [topicName=orders, readQueueNums=3, writeQueueNums=2, perm=R--, topicFilterType=SINGLE_TAG,"
        " topicSysFlag=2, order=true]"
    )
    assert javatext.show_group("billing", GroupSettings(broadcast=False, retries=3)) == (
        "SubscriptionGroupConfig [groupName=billing, consumeEnable=true, consumeFromMinEnable=true,"
        " consumeBroadcastEnable=false, retryQueueNums=1, retryMaxTimes=3, brokerId=0,"
        " whichBrokerWhenConsumeSlowly=1, notifyConsumerIdsChangedEnable=true]"
    )


def test_versions() -> None:
    assert javatext.java_version("4.9.7") == "V4_9_7"
    assert javatext.java_version("5.0.0-SNAPSHOT") == "V5_0_0_SNAPSHOT"
    assert javatext.java_version("6 or later") == "HIGHER_VERSION"
    assert (javatext.java_version_number("4.9.7"), javatext.java_version_number("?")) == (407, 0)


def test_json_is_valid_where_fastjson_leaves_out_quotes() -> None:
    text = javatext.show_json({"b": {0: "x"}, "a": []})
    assert text == '{\n\t"a":[],\n\t"b":{\n\t\t"0":"x"\n\t}\n}'
    assert json.loads(text) == {"a": [], "b": {"0": "x"}}
    rows = {"rows": [{"n": [1, 2]}], "none": None}
    assert javatext.show_json(rows) == '{\n\t"none":null,\n\t"rows":[\n\t\t{\n\t\t\t"n":[1,2]\n\t\t}\n\t]\n}'
    assert json.loads(javatext.show_json(rows)) == rows
