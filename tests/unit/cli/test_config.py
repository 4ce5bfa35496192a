"""`eruca config`, and the page that is made from the same options."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eruca._cli.configdoc import write_page
from eruca._cli.main import main
from eruca._cli.optionlist import list_options
from tests.paths import REPOSITORY


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["config", *arguments])
    assert "Traceback" not in result.output
    return result


def explain(key: str) -> list[dict[str, Any]]:
    result = run("explain", key, "-o", "json")
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize(
    "name", ["flushIntervalCommitLog", "FLUSHINTERVALCOMMITLOG", "ERUCA_FLUSH_INTERVAL_COMMIT_LOG"]
)
def test_explain_tells_all_about_an_option(name: str) -> None:
    assert explain(name) == [
        {
            "key": "flushIntervalCommitLog",
            "of": "store",
            "meaning": "how often the commit log is synced",
            "default": "500",
            "default_3x": "1000",
            "unit": "ms",
            "values": "1 to 2147483647",
            "mutable": True,
            "effect": True,
            "coming": False,
            "variable": "ERUCA_FLUSH_INTERVAL_COMMIT_LOG",
            "flag": "--flush-interval-commit-log",
        }
    ]


def test_explain_for_people() -> None:
    shown = run("explain", "flushIntervalCommitLog", "flushDiskType", "sendMessageThreadPoolNums").stdout
    assert "1000 ms / 500 ms" in shown
    assert "can be changed" in shown
    assert "ASYNC_FLUSH or SYNC_FLUSH" in shown
    assert "no effect: one event loop does the work" in shown


def test_a_key_of_several_roles_is_explained_for_each() -> None:
    assert [facts["of"] for facts in explain("listenPort")] == ["broker", "name server", "filter server"]


def test_a_typing_error_gets_the_nearest_names() -> None:
    result = run("explain", "flushDiskTyp")
    assert result.exit_code == 1
    assert "flushDiskTyp is not a known option (did you mean flushDiskType" in result.stderr


@pytest.mark.parametrize(
    ("key", "older", "current"),
    [
        ("flushIntervalCommitLog", "1000", "500"),
        ("rocketmq.client.rebalance.waitInterval", "10000", "20000"),
        ("rocketmq.client.rebalance.lockInterval", "1000", "20000"),
        ("registerNameServerPeriod", "10000", "30000"),
        ("diskSpaceWarningLevelRatio", "85", "90"),
        ("topicNameLengthMax", "255", "127"),
        ("propertiesLengthMax", "65535", "32767"),
    ],
)
def test_both_values_are_told_where_3x_and_4_9_differ(key: str, older: str, current: str) -> None:
    (facts,) = explain(key)
    assert (facts["default_3x"], facts["default"]) == (older, current)
    assert f"| `{key}` | {older} | {current} |" in write_page()


def test_list_names_every_option_with_an_effect() -> None:
    shown = [json.loads(line)["key"] for line in run("list", "-o", "json").stdout.splitlines()]
    assert shown == [facts.key for facts in list_options() if not facts.no_effect]
    everything = run("list", "--all", "-o", "json").stdout.splitlines()
    assert len(everything) == len(list_options())
    mutable = [
        json.loads(line) for line in run("list", "--mutable", "--role", "broker", "-o", "json").stdout.splitlines()
    ]
    assert mutable
    assert all(row["mutable"] and row["of"] in ("broker", "store", "every server") for row in mutable)
    assert "flushDiskType" in run("list").stdout


def test_the_committed_page_is_current() -> None:
    committed = (REPOSITORY / "docs" / "CONFIG.md").read_text(encoding="utf-8")
    assert committed == write_page(), "run `make generate`"


def test_the_page_has_every_key() -> None:
    page = write_page()
    assert [facts.key for facts in list_options() if f"`{facts.key}`" not in page] == []
