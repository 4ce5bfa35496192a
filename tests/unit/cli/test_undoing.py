"""The command that undoes a change: it exists, takes the arguments of the call, and names the same cluster."""

from __future__ import annotations

import inspect
import shlex
from datetime import UTC, datetime
from typing import Any

import click
import pytest
from click.testing import CliRunner

from eruca._cli.connecting import add_nameserver_option
from eruca._cli.undoing import COMMANDS, find_command, write_undo
from eruca.admin import Admin, SavedOffset, SavedOffsets, Undo

# Arguments of methods that no undo has.
_NEVER_UNDONE = {"dry_run", "secret_key"}


@pytest.mark.parametrize("method", COMMANDS)
def test_each_command_takes_the_arguments_of_its_method(method: str) -> None:
    part, _, name = method.partition(".")
    arguments = set(inspect.signature(getattr(getattr(Admin(), part), name)).parameters) - _NEVER_UNDONE
    parameters = {parameter.name for parameter in find_command(COMMANDS[method].split()).params}
    if method == "offsets.restore":
        assert parameters >= {"group", "topic", "places"}
    else:
        assert parameters >= arguments


@pytest.mark.parametrize(
    ("method", "arguments", "command"),
    [
        ("topics.delete", {"topic": "orders", "brokers": ["a", "b"]}, "topic delete orders --broker a --broker b"),
        (
            "topics.update",
            {"topic": "orders", "read_queues": 4, "ordered": False, "permission": "-"},
            "topic update orders --read-queues 4 --permission=- --no-ordered",
        ),
        ("topics.create", {"topic": "orders", "ordered": False}, "topic create orders"),
        ("groups.update", {"group": "g", "consume": True, "retries": 0}, "group update g --retries 0 --consume"),
        (
            "brokers.set_config",
            {"options": {"a": "1", "b": "x y"}, "broker": "m"},
            "broker config set a=1 'b=x y' --broker m",
        ),
        ("brokers.wipe_write_permission", {"broker": "m"}, "broker permission m R"),
        ("brokers.add_write_permission", {"broker": "m"}, "broker permission m RW"),
        ("nameservers.kv_put", {"namespace": "n", "key": "k", "value": "v"}, "nameserver kv set n k v"),
        ("nameservers.order_put", {"topic": "orders", "order": "a:4;b:4"}, "topic order set orders 'a:4;b:4'"),
        (
            "accounts.update",
            {"access_key": "shop", "admin": False, "topics": {"orders": "PUB|SUB"}, "white_addresses": ""},
            "acl update shop --no-admin --topic 'orders=PUB|SUB' --addresses=",
        ),
        ("accounts.set_white_addresses", {"addresses": ["10.1.2.*"]}, "acl addresses set '10.1.2.*'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_call_becomes_a_command(method: str, arguments: dict[str, Any], command: str) -> None:
    (line,) = write_undo([Undo(method=method, arguments=arguments)])
    assert line == f"eruca {command}"
    # It can be read back: the words set the same parameters.
    path = COMMANDS[method].split()
    words = shlex.split(line)[1 + len(path) :]
    with find_command(path).make_context("eruca", words, resilient_parsing=False) as context:
        for name, value in arguments.items():
            found = context.params[name]
            assert (list(found) if isinstance(found, tuple) else found) == value


def test_offsets_are_set_topic_by_topic() -> None:
    rows = [("bills", "a", 0, 7), ("orders", "a", 0, 1), ("orders", "b", 3, 2)]
    saved = SavedOffsets(
        group="g",
        taken_at=datetime.now(UTC),
        offsets=[SavedOffset(topic=t, broker=b, queue=q, offset=o) for t, b, q, o in rows],
    )
    assert write_undo([Undo(method="offsets.restore", arguments={"saved": saved, "group": "h"})]) == [
        "eruca offset set h bills a:0=7",
        "eruca offset set h orders a:0=1 b:3=2",
    ]


def test_it_leads_to_the_same_cluster() -> None:
    said: list[str] = []

    @click.command()
    @add_nameserver_option
    def change(nameservers: str) -> None:
        said.extend(write_undo([Undo(method="topics.delete", arguments={"topic": "t"})]))

    run = CliRunner().invoke
    where = ["-n", "h:1;i:2", "--tls-ca", "my ca.crt", "--tls"]
    assert run(change, where).exit_code == 0
    # What is set by variables is set for the next command too.
    assert run(change, env={"NAMESRV_ADDR": "h:3"}).exit_code == 0
    assert sorted(said[0].split(" --")) == sorted(["eruca topic delete t -n 'h:1;i:2'", "tls-ca 'my ca.crt'", "tls"])
    assert said[1] == "eruca topic delete t"
