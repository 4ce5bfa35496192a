"""Which changes take something away: commands ask before those."""

from __future__ import annotations

from typing import Any

import pytest

from eruca._cli.losing import ask_if_losing, list_losses
from eruca.admin import Account, Change, Changed, GroupSettings, TopicSettings


def topic(read_queues: int = 8, write_queues: int = 8, permission: str = "RW") -> TopicSettings:
    return TopicSettings(read_queues=read_queues, write_queues=write_queues, permission=permission)


def account(**fields: Any) -> Account:
    return Account(broker="broker-a", access_key="webshop", **fields)


@pytest.mark.parametrize(
    ("before", "after", "loss"),
    [
        (topic(), topic(read_queues=1), "Consumers read 1 instead of 8 queues"),
        (topic(), topic(permission="R"), "Producers are refused"),
        (topic(), topic(permission="W"), "Consumers get no messages"),
        (topic(), topic(read_queues=9, write_queues=1), ""),
        (GroupSettings(), GroupSettings(consume=False), "The group gets no more messages"),
        (GroupSettings(consume=False), GroupSettings(retries=1), ""),
        (account(admin=True), account(), "It is no longer an administrator"),
        (account(default_topic="PUB|SUB"), account(default_topic="SUB"), "It loses rights on every topic"),
        (account(topics={"orders": "PUB|SUB"}), account(topics={"orders": "SUB"}), "It loses rights on topic orders"),
        (account(groups={"billing": "SUB"}), account(), "It loses rights on group billing"),
        (account(), account(admin=True, topics={"orders": "PUB"}, default_group="SUB"), ""),
        ({"fileReservedTime": "72"}, {"fileReservedTime": "1"}, "Messages are deleted after 1 instead of 72 hours"),
        ({"fileReservedTime": "72"}, {"fileReservedTime": "96"}, ""),
        ({"brokerPermission": "6"}, {"brokerPermission": "4"}, "The permission of the broker shrinks from 6 to 4"),
        ({"brokerPermission": "4"}, {"brokerPermission": "6"}, ""),
    ],
)
def test_what_a_change_takes_away(before: Any, after: Any, loss: str) -> None:
    found = list_losses(before, after)
    assert [bool(text.startswith(loss)) for text in found] == [True] if loss else found == []


def test_the_question_names_what_is_lost_on_any_broker_and_is_left_out_otherwise() -> None:
    rows = [
        Change(where=broker, before=topic(), after=topic(read_queues=2), outcome="planned")
        for broker in ("broker-a", "broker-b")
    ]
    asked = ask_if_losing(Changed(name="T", changes=rows, warnings=["broker-a: 7 messages"]), "Change topic T?")
    assert asked == "Consumers read 2 instead of 8 queues; broker-a: 7 messages. Change topic T?"
    new = [Change(where="broker-a", before=None, after=topic(), outcome="planned")]
    assert ask_if_losing(Changed(name="T", changes=new), "Change topic T?") == ""
