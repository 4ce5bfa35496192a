"""The command that undoes a change, from the call that the admin API names for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import click

from eruca._cli.connecting import name_cluster
from eruca._ground.commandlines import write_command
from eruca.admin import SavedOffsets, Undo

#: The command of each method that an undo may name. Its parameters have the names of the method's arguments.
COMMANDS = {
    "topics.create": "topic create",
    "topics.update": "topic update",
    "topics.set_permission": "topic permission",
    "topics.delete": "topic delete",
    "groups.create": "group create",
    "groups.update": "group update",
    "groups.delete": "group delete",
    "brokers.set_config": "broker config set",
    "brokers.wipe_write_permission": "broker permission",
    "brokers.add_write_permission": "broker permission",
    "nameservers.set_config": "nameserver config set",
    "nameservers.kv_put": "nameserver kv set",
    "nameservers.kv_delete": "nameserver kv delete",
    "nameservers.order_put": "topic order set",
    "nameservers.order_delete": "topic order delete",
    "accounts.create": "acl create",
    "accounts.update": "acl update",
    "accounts.delete": "acl delete",
    "accounts.set_white_addresses": "acl addresses set",
    "offsets.restore": "offset set",
}
# Arguments of a command that are not arguments of the method.
_FIXED = {
    "brokers.wipe_write_permission": {"permission": "R"},
    "brokers.add_write_permission": {"permission": "RW"},
}


def write_undo(undo: Iterable[Undo]) -> list[str]:
    """Return the command lines of calls, with the options that lead to the same cluster."""
    return [write_command(*words, *name_cluster()) for words in list_undo(undo)]


def list_undo(undo: Iterable[Undo]) -> list[list[str]]:
    """Return the words of the commands, without those that lead to a cluster."""
    return [words for call in undo for words in _write_calls(call)]


def _write_calls(call: Undo) -> Iterator[list[str]]:
    if call.method == "offsets.restore":
        yield from _write_restores(call.arguments)
        return
    path = COMMANDS[call.method].split()
    command = find_command(path)
    given = {**call.arguments, **_FIXED.get(call.method, {})}
    yield [*path, *write_parameters(command, given)]


def _write_restores(arguments: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield a command for each topic."""
    saved: SavedOffsets = arguments["saved"]
    group = arguments.get("group") or saved.group
    for topic, rows in groupby(saved.offsets, key=lambda row: row.topic):
        places = [f"{row.broker}:{row.queue}={row.offset}" for row in rows]
        yield [*COMMANDS["offsets.restore"].split(), group, topic, *places]


def find_command(path: Sequence[str]) -> click.Command:
    """Return the command with a path of names."""
    from eruca._cli.main import main

    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None, path
        command = found
    return command


def write_parameters(command: click.Command, given: Mapping[str, Any]) -> list[str]:
    """Return the words that set the parameters of a command: its arguments first, then its options."""
    arguments: list[str] = []
    options: list[str] = []
    for parameter in command.params:
        value = given.get(parameter.name or "")
        if value is None:
            continue
        if isinstance(parameter, click.Argument):
            arguments += _split(value)
        elif isinstance(parameter, click.Option):
            options += _write_option(parameter, value)
    return [*arguments, *options]


def _write_option(option: click.Option, value: Any) -> list[str]:
    flag = max(option.opts, key=len)
    if option.is_flag:
        if value:
            return [flag]
        return [max(option.secondary_opts, key=len)] if option.secondary_opts else []
    words = []
    for word in _split(value):
        words += [f"{flag}={word}"] if word.startswith("-") or not word else [flag, word]
    return words


def _split(value: Any) -> list[str]:
    """Return a value as words: each of a list, and `name=value` for each entry of a mapping."""
    if isinstance(value, Mapping):
        return [f"{name}={item}" for name, item in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [str(item) for item in value]
    return [str(value)]
