"""The commands of mqadmin 4.9.7, with the flags that Java's tool has for each, and with our own command beside it."""

from __future__ import annotations

from eruca._cli.mqadmin.clientcommands import GROUPS, MESSAGES
from eruca._cli.mqadmin.commandline import Command
from eruca._cli.mqadmin.servercommands import ACCOUNTS, BROKERS, NAME_SERVERS, TOPICS

COMMANDS = {
    command.name: command for part in (TOPICS, GROUPS, MESSAGES, BROKERS, NAME_SERVERS, ACCOUNTS) for command in part
}
_BY_NAME = {name.lower(): command for command in COMMANDS.values() for name in (command.name, command.alias) if name}


def find_command(name: str) -> Command | None:
    """Return the command with a name or an alias, in upper or lower case."""
    return _BY_NAME.get(name.lower())
