"""What changes in words, secrets in options, and what is wrong with a group."""

from __future__ import annotations

from typing import Any

import click
import msgspec
import pytest

from eruca._cli.changing import describe_change
from eruca._cli.choosing import parse_full_place, parse_place
from eruca._cli.groupviews import list_faults
from eruca._cli.messagerows import describe_sent, say_body
from eruca._cli.serverconfig import hide_changes, hide_secrets, is_secret, parse_settings, view_configs
from eruca._client.produce.outgoing import Receipt, SendStatus
from eruca._wire.bodies import MessageQueue
from eruca.admin import (
    Account,
    Change,
    Changed,
    Difference,
    Group,
    GroupMember,
    GroupOnBroker,
    GroupQueue,
    GroupSettings,
    Listed,
    Problem,
    ServerConfig,
    TopicSettings,
    Undo,
    WhiteAddresses,
)
from eruca.errors import ConfigError

FOUR = TopicSettings(read_queues=4, write_queues=4)


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (FOUR, msgspec.structs.replace(FOUR, read_queues=8, ordered=True), "read_queues 4 -> 8\nordered no -> yes"),
        (FOUR, FOUR, ""),
        ({"a": "1"}, {"a": "2"}, "a 1 -> 2"),
        ({}, {"a": "2"}, "a - -> 2"),
        (None, "x", "new: x"),
        ("x", None, "deleted: x"),
        (None, {"a": None, "b": True}, "new: a=-, b=yes"),
        (10, 0, "10 -> 0"),
        ("x", "x", "x"),
        (None, None, ""),
    ],
)
def test_a_change_in_words(before: Any, after: Any, shown: str) -> None:
    assert describe_change(Change(where="b", before=before, after=after, outcome="done")) == shown


def test_lists_are_described_without_brackets() -> None:
    def describe(before: Any, after: Any) -> str:
        return describe_change(Change(where="b", before=before, after=after, outcome="planned"))

    assert describe(["h:1", "h:2"], ["h:1"]) == "h:1, h:2 -> h:1"
    white = [WhiteAddresses(broker="b", addresses=each) for each in ([], ["10.1.2.*", "10.1.3.7"])]
    assert describe(*white) == "addresses none -> 10.1.2.*, 10.1.3.7"
    account = Account(
        broker="b",
        access_key="webshop",
        admin=False,
        white_addresses="",
        default_topic="DENY",
        default_group="SUB",
        topics={"orders": "PUB|SUB"},
        groups={},
    )
    assert describe(None, account).endswith("default_group=SUB, topics=orders=PUB|SUB, groups=none")


# --- options ------------------------------------------------------------------------------------------------------


def test_secrets_are_hidden() -> None:
    options = {"brokerSecretKey": "s", "tls.server.keyPassword": "s", "listenPort": "1", "emptySecret": ""}
    hidden = {"brokerSecretKey": "******", "tls.server.keyPassword": "******"}
    assert hide_secrets(options) == options | hidden
    assert is_secret("someJavaPassword") and is_secret("etcdPassword") and not is_secret("brokerName")


def test_a_secret_is_not_set_back() -> None:
    change = Change(where="b", before={"etcdPassword": "old"}, after={"etcdPassword": "new"}, outcome="done")
    undo = [Undo(method="brokers.set_config", arguments={"options": {"etcdPassword": "old"}, "broker": "b"})]
    hidden = hide_changes(Changed(name="etcdPassword", changes=[change], undo=undo))
    assert hidden.undo == [] and "old" not in repr(hidden) and "new" not in repr(hidden)
    mixed = [Undo(method="brokers.set_config", arguments={"options": {"etcdPassword": "old", "a": "1"}, "broker": "b"})]
    (call,) = hide_changes(Changed(name="a", changes=[], undo=mixed)).undo
    assert call.arguments == {"options": {"a": "1"}, "broker": "b"}


def test_settings_are_words() -> None:
    assert parse_settings(["a=1", " b = x=y "]) == {"a": "1", "b": "x=y"}
    for words in (["a"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(ConfigError):
            parse_settings(words)
    with pytest.raises(ConfigError) as caught:
        parse_settings(["brokerSecretKey:opensesame"])
    assert "opensesame" not in str(caught.value)


def test_options_of_several_servers() -> None:
    configs = [ServerConfig(where=name, address="h:1", options={"listenPort": "1", "z": name}) for name in ("a", "b")]
    view = view_configs(Listed(items=configs), ["LISTENPORT"])
    assert [row.options for row in view.value] == [{"listenPort": "1"}] * 2 and view.exit_code == 0
    missing = view_configs(Listed(items=configs), ["listenPrt"])
    assert missing.value == [] and missing.exit_code == 3 and "did you mean listenPort" in missing.empty
    partly = view_configs(Listed(items=configs), ["z", "listenPrt"])
    assert len(partly.value) == 2 and partly.exit_code == 3 and "did you mean listenPort" in partly.warnings[0]


def test_options_that_no_server_reports() -> None:
    """An option of another kind of server, and servers that do not answer."""
    other = view_configs(Listed(items=[ServerConfig(where="a", address="h:1", options={})]), ["listenPort"])
    said, _, near = other.empty.partition("; did you mean ")
    assert said == "no server reports an option listenPort" and "listenPort" not in near.rstrip("?").split(" or ")
    silent = view_configs(Listed(items=[], problems=[Problem(where="h:1", error="away")]), ["listenPort"])
    assert (silent.empty, silent.exit_code, list(silent.warnings)) == ("no server answers", 3, [])


# --- queues and bodies --------------------------------------------------------------------------------------------


def test_places() -> None:
    assert parse_place("broker-a:3") == ("broker-a", 3) and parse_place("3") == (None, 3)
    assert parse_full_place("a:b:3") == ("a:b", 3)
    for text in ("", "a", "a:", "-1", "a:x", "9999999999"):
        with pytest.raises(click.BadParameter):
            parse_place(text)
    with pytest.raises(click.BadParameter):
        parse_full_place("3")


def test_bodies_for_people() -> None:
    assert say_body("héllo".encode()) == "héllo"
    assert say_body("héllo".encode(), bytes_max=2) == "h..."
    assert say_body(b"\xff\xfe") == "<2 bytes, not text>"
    assert say_body(b"\xff" * 10, bytes_max=8) == "<10 bytes, not text>"


def test_a_sent_message_whose_offset_id_is_not_one() -> None:
    queue = MessageQueue("b", 1, "t")
    row = describe_sent("t", b"x", "", "", {}, Receipt(SendStatus.FLUSH_DISK_TIMEOUT, "id", "odd", queue, 7))
    assert (row["position"], row["status"], row["offset"]) == (None, "FLUSH_DISK_TIMEOUT", 7)


# --- what is wrong with a group -----------------------------------------------------------------------------------


def make_queue(number: int, lag: int, owner: str = "") -> GroupQueue:
    return GroupQueue(topic="orders", broker="b", queue=number, offset=0, end=lag, lag=lag, owner=owner)


MEMBER = GroupMember(client_id="c", address="h:1", language="JAVA", version="4.9.7", brokers=["b"])


def make_group(queues: list[GroupQueue], members: list[GroupMember], **more: Any) -> Group:
    defaults: dict[str, Any] = {"brokers": [], "subscriptions": [], "differences": []}
    return Group(name="g", members=members, queues=queues, lag=sum(queue.lag for queue in queues), **(defaults | more))


def test_a_healthy_group_has_no_faults() -> None:
    assert list_faults(make_group([make_queue(0, 5, "c"), make_queue(1, 0)], [MEMBER])) == []
    assert list_faults(make_group([make_queue(0, 0)], [])) == []
    # Members that do not tell what they own are not accused.
    assert list_faults(make_group([make_queue(0, 5)], [MEMBER])) == []


def test_faults_of_a_group() -> None:
    assert list_faults(make_group([make_queue(0, 5)], [])) == ["5 messages wait and no member is connected; start one"]
    queues = [make_queue(0, 5, "c"), *[make_queue(number, 1) for number in range(1, 6)]]
    (orphans,) = list_faults(make_group(queues, [MEMBER]))
    assert orphans == "messages wait in queues without an owner: orders b:1, orders b:2, orders b:3, ..."
    difference = Difference(topic="orders", by_member={"c": None})
    (differing,) = list_faults(make_group([], [MEMBER], differences=[difference]))
    assert "eruca group differences g" in differing
    paused = GroupOnBroker(broker="b", address="h:1", settings=GroupSettings(consume=False))
    (stopped,) = list_faults(make_group([], [MEMBER], brokers=[paused]))
    assert "eruca group update g --consume" in stopped
