"""`eruca broker`, `eruca nameserver` and `eruca delayed` against a broker and a name server."""

from __future__ import annotations

from typing import Any

import pytest

from eruca._testing.embedded import EmbeddedBroker
from eruca.sync import Producer
from tests.integration.broker.conftest import allow_new_files
from tests.integration.cli.commands import Commands

__all__ = ["allow_new_files"]


def test_brokers_are_listed(cli: Commands, operated: EmbeddedBroker) -> None:
    (row,) = cli.rows("broker", "list")
    assert (row["broker"], row["address"], row["answers"], row["kind"]) == ("embedded", operated.address, True, "eruca")
    assert operated.address in cli.run("broker", "list").stdout
    missing = cli.run("broker", "list", "--cluster", "elsewhere", code=1)
    assert "there are clusters named DefaultCluster" in missing.stderr


def test_what_a_broker_reports(cli: Commands) -> None:
    (row,) = cli.rows("broker", "show", "embedded")
    assert row["broker"] == "embedded" and row["log_end"] > 0 and isinstance(row["uptime"], float)
    assert "oldest message" in cli.run("broker", "show", "embedded").stdout
    (raw,) = cli.rows("broker", "show", "embedded", "--raw")
    assert raw["brokerVersion"] == row["raw"]["brokerVersion"]
    assert "brokerVersionDesc" in cli.run("broker", "show", "embedded", "--raw").stdout
    unknown = cli.run("broker", "show", "nobody", code=1)
    assert "there are brokers named embedded" in unknown.stderr


def test_traffic_and_counters(cli: Commands) -> None:
    (row,) = cli.rows("broker", "stats")
    assert row["broker"] == "embedded"
    assert "in today" in cli.run("broker", "stats", "--broker", "embedded").stdout
    (counter,) = cli.rows("broker", "counter", "TOPIC_PUT_NUMS", "orders")
    assert (counter["key"], counter["broker"]) == ("orders", "embedded")
    cli.run("broker", "counter", "TOPIC_PUT_NUMS", "never-used", code=3)


def read_option(cli: Commands, server: str, key: str) -> Any:
    (row,) = cli.rows(server, "config", "get", key)
    return row["options"][key]


def test_options_are_read(cli: Commands) -> None:
    assert read_option(cli, "broker", "flushDiskType") == "ASYNC_FLUSH"
    everything = cli.rows("broker", "config", "get", "--broker", "embedded")[0]["options"]
    assert everything["brokerName"] == "embedded" and len(everything) > 50
    unknown = cli.run("broker", "config", "get", "flushDiskTyp", code=3)
    assert "did you mean flushDiskType" in unknown.stderr
    assert read_option(cli, "nameserver", "orderMessageEnable") == "false"


@pytest.mark.parametrize(
    ("server", "setting"), [("broker", "fileReservedTime=47"), ("nameserver", "orderMessageEnable=true")]
)
def test_an_option_is_changed_and_that_is_undone(cli: Commands, server: str, setting: str) -> None:
    key, _, value = setting.partition("=")
    changed = cli.check_change(lambda: read_option(cli, server, key), server, "config", "set", setting)
    assert changed["changes"][0]["after"] == {key: value}


def test_wrong_options_are_refused(cli: Commands) -> None:
    assert "KEY=VALUE" in cli.run("broker", "config", "set", "fileReservedTime", code=2).stderr
    assert "set twice" in cli.run("broker", "config", "set", "a=1", "a=2", code=2).stderr
    fixed = cli.run("broker", "config", "set", "listenPort=1", code=1)
    assert "listenPort" in fixed.output
    unknown = cli.document("broker", "config", "set", "listenPrt=1", code=1)["changes"][0]
    assert "listenPrt is not an option (eruca config list --mutable" in unknown["reason"]


def test_producers_leave_a_broker_and_come_back(cli: Commands) -> None:
    def look() -> list[str]:
        return [broker["permission"] for broker in cli.document("route", "show", "orders")["brokers"]]

    assert "pass --yes" in cli.run("broker", "permission", "embedded", "R", code=1).stderr
    changed = cli.check_change(look, "broker", "permission", "embedded", "R")
    assert changed["changes"][0]["where"] == cli.nameserver
    # What is writable already is not changed, and there is nothing to undo.
    (change,) = (again := cli.document("broker", "permission", "embedded", "RW"))["changes"]
    assert (change["outcome"], change["before"]) == ("unchanged", change["after"]) and change["after"] > 0
    assert again["undo"] == []


@pytest.mark.parametrize("what", ["queues", "topics", "log"])
def test_files_are_cleaned_only_with_yes(cli: Commands, what: str) -> None:
    assert "pass --yes" in cli.run("broker", "clean", what, code=1).stderr
    (planned,) = cli.document("broker", "clean", what, "--dry-run")["changes"]
    assert (planned["where"], planned["outcome"]) == ("embedded", "planned")
    assert planned["reason"].startswith("deletes ") and "unknown" not in planned["reason"]
    (done,) = cli.document("broker", "clean", what, "--broker", "embedded", "--yes")["changes"]
    assert done["outcome"] == "done"


# --- name servers -----------------------------------------------------------------------------------------------------


def test_name_servers_are_listed(cli: Commands) -> None:
    (row,) = cli.rows("nameserver", "list")
    assert (row["address"], row["answers"], row["brokers"]) == (cli.nameserver, True, 1)
    two = Commands(f"{cli.nameserver};127.0.0.1:1")
    result = two.run("nameserver", "list", code=3)
    assert "127.0.0.1:1 does not answer" in result.stderr and cli.nameserver in result.stdout


def test_keys_and_values(cli: Commands) -> None:
    def look() -> list[dict[str, Any]]:
        return cli.rows("nameserver", "kv", "list", "limits")

    assert "eruca nameserver kv set" in cli.run("nameserver", "kv", "list", "limits").stderr
    cli.check_change(look, "nameserver", "kv", "set", "limits", "orders", "1000")
    cli.run("nameserver", "kv", "set", "limits", "orders", "1000")
    cli.check_change(look, "nameserver", "kv", "set", "limits", "orders", "2000")
    assert list(cli.rows("nameserver", "kv", "get", "limits", "orders")[0]["values"].values()) == ["1000"]
    assert "1000" in cli.run("nameserver", "kv", "get", "limits", "orders").stdout
    assert "pass --yes" in cli.run("nameserver", "kv", "delete", "limits", "orders", code=1).stderr
    cli.check_change(look, "nameserver", "kv", "delete", "limits", "orders")
    assert "there is no key" in cli.run("nameserver", "kv", "get", "limits", "bills", code=3).stderr


# --- delayed messages -------------------------------------------------------------------------------------------------


def test_delayed_messages_are_listed_and_cancelled(cli: Commands) -> None:
    assert "no message waits" in cli.run("delayed", "list", "-t", "orders").stderr
    with Producer(cli.nameserver, group="senders") as producer:
        name = producer.send("orders", b"call back", keys="call-1", timer=3600).message_id
    cli.wait_until(lambda: bool(cli.rows("delayed", "list")), "the message waits")
    (row,) = cli.rows("delayed", "list", "--topic", "orders")
    assert (row["message_id"], row["keys"], row["level"]) == (name, ["call-1"], 0)
    assert name in cli.run("delayed", "list", "--broker", "embedded").stdout
    assert "pass --yes" in cli.run("delayed", "cancel", "orders", name, code=1).stderr
    (planned,) = cli.rows("delayed", "cancel", "orders", name, "--dry-run")
    assert planned["outcome"] == "planned" and cli.rows("delayed", "list")
    assert "1 cancelled" in cli.run("delayed", "cancel", "orders", name, "--yes").stderr
    cli.wait_until(lambda: not cli.rows("delayed", "list"), "nothing waits")
    unknown = cli.run("delayed", "cancel", "orders", "C0000202000000000000000000000000", "--yes", code=1)
    assert "1 failed" in unknown.stderr


def test_levels(cli: Commands) -> None:
    assert {row["broker"] for row in cli.rows("delayed", "levels")} <= {"embedded"}
    cli.run("delayed", "levels")
