"""`eruca topic` and `eruca route` against a broker."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.integration.broker.conftest import allow_new_files
from tests.integration.cli.commands import Commands

__all__ = ["allow_new_files"]


def read_settings(cli: Commands, topic: str) -> list[dict[str, Any]]:
    return [row["settings"] for row in cli.document("topic", "show", topic)["brokers"]]


def list_names(cli: Commands, *arguments: str) -> list[str]:
    return [row["name"] for row in cli.rows("topic", "list", *arguments)]


def test_a_topic_is_shown(cli: Commands) -> None:
    found = cli.document("topic", "show", "orders")
    assert (found["name"], found["kind"], len(found["queues"])) == ("orders", "normal", 2)
    assert sum(queue["end"] - queue["begin"] for queue in found["queues"]) == 6
    shown = cli.run("topic", "show", "orders", "--queues").stdout
    assert "messages   6" in shown and "first" in shown
    assert yaml.safe_load(cli.run("topic", "show", "orders", "-o", "yaml").stdout)["name"] == "orders"


def test_topics_are_listed(cli: Commands) -> None:
    assert list_names(cli) == ["orders"]
    assert list_names(cli, "ord") == ["orders"]
    assert "TBW102" in list_names(cli, "--kind", "system")
    (row,) = cli.rows("topic", "list", "--settings")
    assert (row["topic"], row["settings"]["permission"]) == ("orders", "RW")
    cut = cli.run("topic", "list", "--kind", "all", "--limit", "2")
    assert "there are more; --limit N shows more" in cut.stderr
    assert len(cli.rows("topic", "list", "--kind", "all", "--limit", "0")) > 2


def test_what_is_not_there_is_named_with_the_next_step(cli: Commands) -> None:
    nothing = cli.run("topic", "list", "zzz")
    assert nothing.stdout == "" and "no topic begins with zzz; `eruca topic create NAME`" in nothing.stderr
    assert "eruca topic create nowhere" in cli.run("topic", "show", "nowhere", code=1).stderr
    assert "eruca topic" in cli.run("topic", "update", "nowhere", "--queues", "3", code=1).stderr
    assert "eruca topic" in cli.run("route", "show", "nowhere", code=1).stderr
    assert "nothing to change" in cli.run("topic", "update", "orders", code=2).stderr


def test_a_topic_is_created_and_that_is_undone(cli: Commands) -> None:
    changed = cli.check_change(lambda: list_names(cli), "topic", "create", "bills", "--queues", "3")
    (change,) = changed["changes"]
    assert (change["before"], change["after"]["read_queues"], change["outcome"]) == (None, 3, "done")


def test_a_topic_that_is_there_is_not_changed_by_create(cli: Commands) -> None:
    assert "eruca topic update" in cli.run("topic", "create", "orders", "--queues", "7", code=1).stderr
    assert read_settings(cli, "orders")[0]["read_queues"] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["update", "orders", "--queues", "5"],
        ["update", "orders", "--ordered"],
        ["update", "orders", "--write-queues", "1"],
        ["permission", "orders", "R"],
    ],
    ids=" ".join,
)
def test_settings_are_changed_and_that_is_undone(cli: Commands, arguments: list[str]) -> None:
    cli.check_change(lambda: read_settings(cli, "orders"), "topic", *arguments)


def test_fewer_read_queues_are_asked_about_with_what_becomes_unreachable(cli: Commands) -> None:
    cli.run("topic", "create", "shrunk", "--queues", "4")
    for number in range(8):
        cli.run("send", "shrunk", f"m{number}")
    lost = sum(queue["end"] for queue in cli.document("topic", "show", "shrunk")["queues"] if queue["queue"])
    asked = cli.run("topic", "update", "shrunk", "--queues", "1", code=1).stderr
    assert "Consumers read 1 instead of 4 queues" in asked and "pass --yes" in asked
    assert f"embedded: {lost} messages in queues 1, 2, 3 are out of reach of consumers" in asked
    assert "Consumers get no messages" in cli.run("topic", "update", "shrunk", "--permission", "W", code=1).stderr
    assert read_settings(cli, "shrunk")[0]["read_queues"] == 4
    # What takes nothing away is not asked about.
    cli.run("topic", "update", "shrunk", "--queues", "5")
    planned = cli.document("topic", "update", "shrunk", "--queues", "1", "--dry-run")
    assert len(planned["warnings"]) == 1
    assert "warning: embedded: " in cli.run("topic", "update", "shrunk", "--queues", "1", "--yes").stderr
    cli.run("topic", "delete", "shrunk", "--yes")


def test_the_undo_of_a_deletion_says_that_the_messages_do_not_come_back(cli: Commands) -> None:
    cli.run("topic", "create", "short-lived")
    shown = cli.run("topic", "delete", "short-lived", "--yes").stdout
    assert "undo, without its messages: eruca topic create short-lived" in shown


def test_a_table_says_what_changed_and_how_to_undo_it(cli: Commands) -> None:
    cli.run("topic", "create", "paper")
    result = cli.run("topic", "update", "paper", "--queues", "9")
    assert "read_queues 8 -> 9" in result.stdout
    assert "undo: eruca topic update paper " in result.stdout and cli.nameserver in result.stdout
    assert result.stderr == "eruca: 1 done\n"
    assert cli.run("topic", "update", "paper", "--queues", "9").stderr == "eruca: 1 unchanged\n"


def test_a_topic_is_deleted_only_with_yes(cli: Commands) -> None:
    cli.run("topic", "create", "doomed")
    assert "pass --yes" in cli.run("topic", "delete", "doomed", code=1).stderr
    assert cli.document("topic", "delete", "doomed", "--dry-run")["changes"][0]["outcome"] == "planned"
    assert "doomed" in list_names(cli)
    cli.run("topic", "delete", "doomed", "--yes")
    assert "doomed" not in list_names(cli)


def test_unused_topics_are_listed(cli: Commands) -> None:
    cli.run("topic", "create", "idle")
    assert "idle" in list_names(cli, "--unused") and "orders" not in list_names(cli, "--unused")
    assert "--unused cannot be combined" in cli.run("topic", "list", "--unused", "--settings", code=2).stderr


def test_the_traffic_of_a_topic(cli: Commands) -> None:
    traffic = cli.document("topic", "stats", "orders")
    assert traffic["topic"] == "orders" and all(row["broker"] == "embedded" for row in traffic["stored"])
    assert "last minute" in cli.run("topic", "stats", "orders").stdout


def test_the_order_configuration(cli: Commands) -> None:
    def look() -> list[dict[str, Any]]:
        return cli.rows("nameserver", "kv", "list", "ORDER_TOPIC_CONFIG")

    cli.check_change(look, "topic", "order", "set", "orders", "embedded:2")
    missing = cli.run("topic", "order", "get", "orders", code=3)
    assert "eruca topic order set" in missing.stderr
    cli.run("topic", "order", "set", "orders", "embedded:2")
    assert list(cli.rows("topic", "order", "get", "orders")[0]["values"].values()) == ["embedded:2"]
    cli.check_change(look, "topic", "order", "delete", "orders")
    cli.run("topic", "order", "delete", "orders", "--yes")


def test_a_route(cli: Commands) -> None:
    found = cli.document("route", "show", "orders")
    (broker,) = found["brokers"]
    assert (broker["broker"], broker["read_queues"], broker["permission"]) == ("embedded", 2, "RW")
    assert broker["addresses"]["0"] in cli.run("route", "show", "orders").stdout
    (row,) = cli.rows("route", "compare", "orders")
    assert row["server"] == cli.nameserver and row["route"] == found
