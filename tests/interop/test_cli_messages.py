"""`eruca send` and `eruca tail` do the same with Eruca and with the Java name server and broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eruca._cli.main import main
from tests.clients.members import poll
from tests.integration.cli.upprocess import Up
from tests.interop.javapeer import JavaBroker, JavaNameServer, Peer
from tests.patience import PATIENCE_S

ARRIVE_SECONDS_MAX = PATIENCE_S


@pytest.fixture(scope="module", params=["eruca", "java"])
def address(request: pytest.FixtureRequest, peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home: Path = tmp_path_factory.mktemp("cli")
    if request.param == "eruca":
        with Up(home) as up:
            yield up.address
        return
    sizes = {"mappedFileSizeCommitLog": 16 * 1024 * 1024, "mappedFileSizeConsumeQueue": 60_000}
    with (
        JavaNameServer(peer, home / "namesrv") as nameserver,
        JavaBroker(peer, nameserver.address, home / "store", name="cli-broker", home=home / "broker", properties=sizes),
    ):
        yield nameserver.address


def run(address: str, *arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(main, [*arguments, "-n", address, "-o", "json"])
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def list_bodies(address: str, *arguments: str) -> list[str]:
    return [row["body"] for row in run(address, "tail", *arguments)]


def send(address: str, topic: str, *arguments: str, stored: int) -> list[dict[str, Any]]:
    """Send, and wait until the topic has this many: Java's broker stores first and puts into queues a moment later."""
    rows = run(address, "send", topic, *arguments)
    assert any(len(list_bodies(address, topic, "--from", "earliest")) >= stored for _ in poll(ARRIVE_SECONDS_MAX))
    return rows


def test_a_topic_makes_itself_and_its_messages_are_read(address: str) -> None:
    how = ("--tags", "a", "--keys", "k1 k2", "--property", "who=me")
    (sent,) = send(address, "CliFirst", "héllo", *how, stored=1)
    assert sent["status"] == "STORED"
    (row,) = run(address, "tail", "CliFirst")
    assert (row["body"], row["tags"], row["keys"], row["properties"]["who"]) == ("héllo", "a", ["k1", "k2"], "me")
    assert (row["queue"], row["offset"], row["message_id"]) == (sent["queue"], sent["offset"], sent["message_id"])


def test_order_tags_and_places_to_begin(address: str) -> None:
    send(address, "CliTagged", "1", "2", "--tags", "a", "--shard", "s", stored=2)
    send(address, "CliTagged", "3", "4", "--tags", "b", "--shard", "s", stored=4)
    assert list_bodies(address, "CliTagged", "--from", "earliest") == ["1", "2", "3", "4"]
    assert list_bodies(address, "CliTagged", "--tags", "b") == ["3", "4"]
    assert list_bodies(address, "CliTagged", "--count", "1") == ["4"]
    assert list_bodies(address, "CliTagged", "--from", "latest") == []
    assert list_bodies(address, "CliTagged", "--from", "2020-01-01", "--count", "3") == ["1", "2", "3"]


def test_many_are_sent_and_read(address: str) -> None:
    send(address, "CliMany", "m{n}", "--count", "300", stored=300)
    assert set(list_bodies(address, "CliMany", "--from", "earliest")) == {f"m{n}" for n in range(1, 301)}


def test_a_group_goes_on_where_it_stopped(address: str) -> None:
    send(address, "CliShared", "1", "2", "3", "--shard", "s", stored=3)
    assert list_bodies(address, "CliShared", "--group", "CliGroup", "--count", "2") == ["1", "2"]
    assert list_bodies(address, "CliShared", "--group", "CliGroup") == ["3"]
    assert list_bodies(address, "CliShared", "--group", "CliGroup") == []


def test_what_is_refused_is_explained(address: str) -> None:
    for arguments, says in (
        (["tail", "CliNowhere"], f"topic CliNowhere has no route: name server {address} does not know it"),
        (["send", "SCHEDULE_TOPIC_XXXX", "x"], "only brokers send to the topic"),
    ):
        result = CliRunner().invoke(main, [*arguments, "-n", address])
        assert result.exit_code == 1
        assert says in result.stderr
