"""`eruca message` against a broker, and the one shape that a message has as JSON in every command."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from eruca._cli.main import main
from eruca._testing.embedded import EmbeddedBroker
from eruca.sync import Consumer, Message, Producer
from tests.integration.admin.staging import bury, stage
from tests.integration.broker.conftest import allow_new_files
from tests.integration.cli.commands import Commands

__all__ = ["allow_new_files"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedBroker, Commands, str]]:
    """A broker whose files stay, its commands, and the directory of its store."""
    home = tmp_path_factory.mktemp("home")
    with EmbeddedBroker(home, hurry=True) as broker:
        cli = Commands(broker.nameserver)
        cli.run("topic", "create", "orders", "--queues", "2")
        cli.run(
            "send", "orders", "first", "second", "third", "-k", "order-7 customer-3", "-t", "paid", "--property", "n=1"
        )
        cli.run("send", "orders", "other", "-k", "order-8")
        stage(broker.nameserver, lambda admin: bury(admin, "billing", "orders", 1))
        directories = [path.parent for path in home.rglob("commitlog")]
        yield broker, cli, str(directories[0])


@pytest.fixture
def messages(shared: tuple[EmbeddedBroker, Commands, str]) -> Commands:
    return shared[1]


# --- one shape ----------------------------------------------------------------------------------------------------


def test_a_message_has_one_shape_everywhere(shared: tuple[EmbeddedBroker, Commands, str]) -> None:
    _, cli, directory = shared
    (sent,) = cli.rows("send", "orders", "same", "-k", "same-1", "-t", "paid", "--property", "who=me")
    (tailed,) = cli.rows("tail", "orders", "--key", "same-1")
    (found,) = cli.rows("message", "find", "orders", "--key", "same-1")
    shown = cli.document("message", "show", tailed["offset_id"])
    dumped = [row for row in map(json.loads, dump(directory).splitlines()) if row["message_id"] == tailed["message_id"]]
    (letter,) = cli.rows("dlq", "list", "billing")
    assert tailed == found == shown
    # What only these commands know.
    assert sent.pop("status") == "STORED" and dumped[0].pop("crc_ok") is True
    assert dumped[0] == {**tailed, "broker": ""}
    assert list(tailed) == list(sent) == list(letter) == list(dumped[0])
    assert list(cli.document("dlq", "show", "billing", letter["message_id"])) == list(tailed)
    known = {name: value for name, value in sent.items() if value is not None and name != "properties"}
    assert known == {name: tailed[name] for name in known}
    assert sent["properties"].items() <= tailed["properties"].items()
    assert {name for name in sent if sent[name] is None} == {
        "stored_in",
        "born_at",
        "stored_at",
        "born_host",
        "store_host",
        "size",
        "body_crc",
    }


def dump(directory: str) -> str:
    return CliRunner().invoke(main, ["store", "dump", directory, "--limit", "0", "-o", "json"]).stdout


def test_a_body_that_is_not_text(messages: Commands) -> None:
    with Producer(messages.nameserver, group="senders") as producer:
        producer.send("orders", b"\xff\xfe", keys="bytes-1")
    (row,) = messages.rows("message", "find", "orders", "--key", "bytes-1")
    assert row["body"] is None and base64.b64decode(row["body_base64"]) == b"\xff\xfe"
    assert "<2 bytes, not text>" in messages.run("message", "show", row["offset_id"]).stdout


def test_the_next_message_of_a_group_has_the_names_of_the_shape(messages: Commands) -> None:
    messages.change("offset", "reset", "late", "orders", "--to", "earliest")
    queues = messages.document("group", "show", "late", code=3)["queues"]
    head = next(queue["stuck_on"] for queue in queues if queue["stuck_on"])
    whole = messages.document("message", "show", head["offset_id"])
    assert head == {name: whole[name] for name in head}


# --- finding ------------------------------------------------------------------------------------------------------


def bodies(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["body"] for row in rows)


def test_messages_are_found_by_key_and_id(messages: Commands) -> None:
    rows = messages.rows("message", "find", "orders", "--key", "order-7")
    assert bodies(rows) == ["first", "second", "third"]
    assert rows[0]["keys"] == ["order-7", "customer-3"] and rows[0]["tags"] == "paid"
    (row,) = messages.rows("message", "find", "orders", "--id", rows[0]["message_id"])
    assert row == rows[0]
    assert rows[0]["message_id"] in messages.run("message", "find", "orders", "--key", "order-7").stdout
    limited = messages.run("message", "find", "orders", "--key", "order-7", "--limit", "1")
    assert "there are more" in limited.stderr


def test_messages_are_found_by_place_and_time(messages: Commands) -> None:
    (first,) = [row for row in messages.rows("message", "find", "orders", "--key", "order-7") if row["body"] == "first"]
    place = f"{first['broker']}:{first['queue']}"
    at = messages.rows("message", "find", "orders", "-q", place, "--offset", str(first["offset"]), "--limit", "1")
    assert at == [first]
    since = messages.rows("message", "find", "orders", "--from-time", first["stored_at"], "--tags", "paid")
    assert "first" in bodies(since) and "other" not in bodies(since)
    assert messages.rows("message", "find", "orders", "--to-time", "2001-01-01", code=3) == []


def test_nothing_found_is_a_status_with_the_next_step(messages: Commands) -> None:
    missing = messages.run("message", "find", "orders", "--key", "nobody", code=3)
    assert "no message with key nobody" in missing.stderr and "eruca tail" in missing.stderr
    assert "eruca topic" in messages.run("message", "find", "nowhere", "--key", "k", code=1).stderr
    unknown = messages.run("message", "show", "C0000202000000000000000000000000", "-t", "orders", code=1)
    assert "eruca message find orders --key" in unknown.stderr
    for arguments in (
        ["find", "orders", "--key", "k", "--id", "i"],
        ["find", "orders", "--offset", "1"],
        ["find", "orders", "--queue", "0"],
        ["find", "orders", "--key", "k", "--tags", "t"],
    ):
        messages.run("message", *arguments, code=2)


def test_one_message_is_shown(messages: Commands) -> None:
    (row,) = messages.rows("message", "find", "orders", "--key", "order-8")
    by_id = messages.document("message", "show", row["message_id"], "-t", "orders")
    assert by_id == messages.document("message", "show", row["offset_id"]) == row
    assert base64.b64decode(row["body_base64"]) == b"other"
    without_topic = messages.run("message", "show", row["message_id"], code=1).stderr
    assert "(a producer's id? add --topic TOPIC)" in without_topic
    shown = messages.run("message", "show", row["offset_id"]).stdout
    assert "other" in shown and "order-8" in shown and "UNIQ_KEY" in shown


def test_entries_of_a_queue(messages: Commands) -> None:
    found = messages.document("message", "entries", "orders", "embedded:0", "--count", "2")
    # A busy machine may have sent most of them to the other queue.
    assert found["end"] > 0 and [row["offset"] for row in found["rows"]] == list(range(min(2, found["end"])))
    assert "tags code" in messages.run("message", "entries", "orders", "embedded:0").stdout


# --- following ----------------------------------------------------------------------------------------------------


def test_who_consumed_a_message_and_consuming_it_again(messages: Commands) -> None:
    (row,) = messages.rows("message", "find", "orders", "--key", "order-8")
    seen: list[bytes] = []
    arrived = threading.Event()
    consumer = Consumer(messages.nameserver, group="readers", start="earliest")

    @consumer.handler("orders")
    def take(message: Message) -> None:
        seen.append(message.body)
        if message.body == b"other":
            arrived.set()

    with consumer:
        assert arrived.wait(60)
        (member,) = messages.rows("group", "members", "readers")
        count = seen.count(b"other")
        deliver = ["message", "deliver", row["offset_id"], "readers", member["client_id"]]
        assert "pass --yes" in messages.run(*deliver, code=1).stderr
        assert messages.document(*deliver, "--dry-run")["outcome"] == "planned"
        assert seen.count(b"other") == count
        assert messages.document(*deliver, "--yes")["outcome"] == "CR_SUCCESS"
        assert seen.count(b"other") == count + 1
        tracks = {track["group"]: track for track in messages.rows("message", "consumers", row["offset_id"])}
        assert "readers" in tracks
    assert "readers" in messages.run("message", "consumers", row["offset_id"]).stdout


def test_a_trace(messages: Commands) -> None:
    missing = messages.run("message", "trace", "C0000202000000000000000000000000", code=3)
    assert "nothing was traced" in missing.stderr


# --- tail and send ------------------------------------------------------------------------------------------------


def test_tail_takes_queues_offsets_and_keys(messages: Commands) -> None:
    messages.run("topic", "create", "tailed", "--queues", "2")
    for number in range(6):
        messages.run("send", "tailed", f"m{number}", "-k", f"k{number % 2}")
    everything = messages.rows("tail", "tailed", "--from", "earliest")
    assert len(everything) == 6
    for queue in (0, 1):
        wanted = [row for row in everything if row["queue"] == queue]
        assert messages.rows("tail", "tailed", "--queue", f"embedded:{queue}") == wanted
        assert messages.rows("tail", "tailed", "-q", str(queue), "--offset", "1") == wanted[1:]
    assert bodies(messages.rows("tail", "tailed", "--key", "k1")) == ["m1", "m3", "m5"]
    assert len(messages.rows("tail", "tailed", "--key", "k1", "--count", "2")) == 2
    for flag, value in (("--key", "k9"), ("--tags", "paid")):
        nothing = messages.run("tail", "tailed", flag, value, "--count", "1")
        assert nothing.stdout == "" and f"{value} among the last 10 messages of each of 2 queues" in nothing.stderr
        assert f"`eruca message find tailed {flag} {value}` searches all of it" in nothing.stderr
    assert "has no message from there" in messages.run("tail", "tailed", "--from", "latest").stderr
    assert "it has embedded:0, embedded:1" in messages.run("tail", "tailed", "--queue", "7", code=1).stderr
    assert "for example broker-a:0" in messages.run("tail", "tailed", "--queue", "x", code=2).stderr
    messages.run("tail", "tailed", "--offset", "1", "--from", "latest", code=2)
