"""`eruca group`, `eruca lag` and `eruca client` against a broker, with a member and without."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from eruca._cli.main import main
from eruca.sync import Consumer, Message, Producer
from tests.integration.admin.staging import send, stage
from tests.integration.broker.conftest import allow_new_files
from tests.integration.cli.commands import Commands

__all__ = ["allow_new_files"]


@contextmanager
def stuck_member(cli: Commands, group: str) -> Iterator[Consumer]:
    """A member whose handler waits with the first message it gets until the block ends."""
    taken, go_on = threading.Event(), threading.Event()
    consumer = Consumer(cli.nameserver, group=group, start="earliest", drain=0)

    @consumer.handler("orders", concurrency=1)
    def wait(message: Message) -> None:
        taken.set()
        go_on.wait()

    with consumer:
        assert taken.wait(60)
        try:
            yield consumer
        finally:
            go_on.set()


@pytest.fixture(autouse=True)
def left_behind(cli: Commands) -> None:
    """A group that has offsets and no member: it consumed nothing."""
    cli.change("offset", "reset", "billing", "orders", "--to", "earliest")


def list_names(cli: Commands, *arguments: str) -> list[str]:
    return [row["name"] for row in cli.rows("group", "list", *arguments)]


def read_settings(cli: Commands, group: str) -> list[dict[str, Any]]:
    return [row["settings"] for row in cli.rows("group", "list", group, "--settings")]


def test_groups_are_listed(cli: Commands) -> None:
    assert "billing" in list_names(cli) and "billing" in list_names(cli, "--topic", "orders")
    assert "TOOLS_CONSUMER" not in list_names(cli) and "TOOLS_CONSUMER" in list_names(cli, "--system")
    assert "no group consumes nothing" in cli.run("group", "list", "--topic", "nothing").stderr
    assert "eruca group create NAME" in cli.run("group", "list", "zzz").stderr


def test_a_group_without_members_is_wrong_if_messages_wait(cli: Commands) -> None:
    shown = cli.run("group", "show", "billing", code=3)
    assert "6 messages wait and no member is connected" in shown.stderr
    found = cli.document("group", "show", "billing", code=3)
    assert (found["lag"], found["members"], len(found["queues"])) == (6, [], 2)
    stuck = [queue["stuck_on"] for queue in found["queues"]]
    assert all(message["topic"] == "orders" and message["offset"] == 0 and message["keys"] for message in stuck)
    assert all(queue["lag_time"] > 0 for queue in found["queues"])
    assert stuck[0]["message_id"] in shown.stdout
    cli.run("offset", "skip", "billing", "orders", "--yes")
    assert cli.run("group", "show", "billing").stderr == ""


def test_a_member_owns_its_queues_and_is_stuck_on_a_message(cli: Commands) -> None:
    show = ["group", "show", "holders", "-n", cli.nameserver]
    with stuck_member(cli, "holders") as consumer:
        cli.wait_until(
            lambda: "without an owner" not in CliRunner().invoke(main, show).stderr, "every queue has an owner"
        )
        found = cli.document("group", "show", "holders")
        (member,) = found["members"]
        assert {queue["owner"] for queue in found["queues"]} == {member["client_id"]}
        assert (found["kind"], found["model"], found["lag"]) == ("push", "clustering", 6)
        shown = cli.run("group", "show", "holders").stdout
        assert member["client_id"] in shown and "next message of" in shown
        assert [row["client_id"] for row in cli.rows("group", "members", "holders")] == [member["client_id"]]
        running = cli.document("client", "show", "holders", member["client_id"])
        assert {held["queue"] for held in running["queues"]} == {0, 1}
        assert "subscriptions" in cli.run("client", "show", "holders", member["client_id"]).stdout
        assert "Thread" in cli.run("client", "stack", "holders", member["client_id"]).stdout
        rows = cli.rows("client", "offsets", "holders", "orders")
        assert {(row["client_id"], row["queue"]) for row in rows} == {
            (member["client_id"], 0),
            (member["client_id"], 1),
        }
        assert "do not differ" in cli.run("group", "differences", "holders").stderr
        refused = cli.run("offset", "shift", "holders", "orders", "--by=1", "--yes", code=1)
        assert "1 connected member" in refused.stderr
        assert consumer is not None
    assert "no member of group holders is connected" in cli.run("group", "members", "holders", code=3).stderr


def test_producers_are_listed(cli: Commands) -> None:
    assert "no producer of group nobody is connected" in cli.run("client", "producers", "nobody").stderr
    with Producer(cli.nameserver, group="senders") as producer:
        producer.send("orders", b"one more")
        cli.wait_until(lambda: bool(cli.rows("client", "producers", "senders")), "the broker knows the producer")
        (row,) = cli.rows("client", "producers", "senders")
        assert (row["group"], row["broker"]) == ("senders", "embedded")
        assert row["client_id"] in cli.run("client", "producers").stdout


def test_a_group_is_created_and_that_is_undone(cli: Commands) -> None:
    changed = cli.check_change(lambda: list_names(cli), "group", "create", "audit", "--retries", "3", "--no-broadcast")
    after = changed["changes"][0]["after"]
    assert (after["retries"], after["broadcast"]) == (3, False)


def test_settings_of_a_group_are_changed_and_that_is_undone(cli: Commands) -> None:
    cli.run("group", "create", "settled", "--retries", "3")
    cli.check_change(lambda: read_settings(cli, "settled"), "group", "update", "settled", "--retries", "5")
    cli.check_change(lambda: read_settings(cli, "settled"), "group", "update", "settled", "--no-consume")
    assert "nothing to change" in cli.run("group", "update", "settled", code=2).stderr
    cli.run("group", "update", "settled", "--no-consume", "--yes")
    assert "eruca group update settled --consume" in cli.run("group", "show", "settled", code=3).stderr
    assert "eruca group" in cli.run("group", "update", "nobody", "--retries", "5", code=1).stderr


def test_a_group_is_deleted_only_with_yes(cli: Commands) -> None:
    cli.run("group", "create", "doomed")
    assert "pass --yes" in cli.run("group", "delete", "doomed", code=1).stderr
    assert cli.document("group", "delete", "doomed", "--dry-run")["changes"][0]["outcome"] == "planned"
    assert "doomed" in list_names(cli)
    cli.run("group", "delete", "doomed", "--yes")
    assert "doomed" not in list_names(cli)
    assert "eruca group list" in cli.run("group", "show", "doomed", code=1).stderr


def test_delays(cli: Commands) -> None:
    rows = cli.rows("group", "delays", "billing", "orders")
    assert [row["queue"] for row in rows] == [0, 1] and all(row["delay"] >= 0 for row in rows)
    assert "late by" in cli.run("group", "delays", "billing", "orders").stdout
    assert "no broker has a topic elsewhere" in cli.run("group", "delays", "billing", "elsewhere", code=1).stderr


# --- lag --------------------------------------------------------------------------------------------------------------


def test_lag_of_all_groups(cli: Commands) -> None:
    stage(cli.nameserver, lambda admin: send(admin, "orders", 1))
    (row,) = cli.rows("lag", "billing")
    assert (row["group"], row["topic"], row["queues"]) == ("billing", "orders", 2)
    assert row["lag"] >= 7 and row["lag_time"] > 0
    queues = cli.rows("lag", "billing", "--queues", "--topic", "orders")
    assert sum(queue["lag"] for queue in queues) == row["lag"]
    assert "billing" in {each["group"] for each in cli.rows("lag")}
    assert "waiting" in cli.run("lag").stdout


def test_lag_of_what_is_not_there(cli: Commands) -> None:
    """A name that is not there is not taken for a group that is not behind."""
    for above in ([], ["--above", "10"]):
        told = cli.run("lag", "biling", *above, code=3)
        assert told.stdout == "" and "eruca: group biling has no offsets (`eruca group list`" in told.stderr
    told = cli.run("lag", "billing", "biling", code=3)
    assert "orders" in told.stdout and "group biling has no offsets" in told.stderr
    told = cli.run("lag", "billing", "--topic", "elsewhere", code=3)
    assert told.stderr == "eruca: no broker has a topic elsewhere (`eruca topic list` shows the topics)\n"
    stage(cli.nameserver, lambda admin: admin.topics.create("quiet"))
    told = cli.run("lag", "billing", "--topic", "quiet", code=3)
    assert "group billing has no offsets in topic quiet" in told.stderr
    assert "no group has offsets in topic quiet" in cli.run("lag", "--topic", "quiet").stderr


def test_lag_above_a_number_is_wrong(cli: Commands) -> None:
    assert [row["group"] for row in cli.rows("lag", "billing", "--above", "3", code=3)] == ["billing"]
    nothing = cli.run("lag", "billing", "--above", "1000000")
    assert "no group is more than 1000000 messages behind" in nothing.stderr
    cli.run("lag", "--queues", "--above", "0", code=3)
