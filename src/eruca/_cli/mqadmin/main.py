"""`eruca admin`: commands with the names and flags of Java's mqadmin."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from eruca._cli.connecting import add_nameserver_option, make_options, parse_nameservers, use_account_file
from eruca._cli.grouping import SectionedCommand
from eruca._cli.mqadmin.commandline import Command, Line, Work, describe_usage, parse
from eruca._cli.mqadmin.table import COMMANDS, find_command
from eruca._cli.running import run_loop

if TYPE_CHECKING:
    from eruca._client.options import ClientOptions

_TIMEOUT_FLAG = "timeoutMillis"


@click.command(cls=SectionedCommand, context_settings={"allow_interspersed_args": False})
@click.argument(
    "words",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[NAME [FLAGS]...]",
    shell_complete=lambda context, _parameter, incomplete: suggest_names(context.params.get("words") or (), incomplete),
)
@add_nameserver_option
def admin(words: Sequence[str], nameservers: str) -> None:
    """Run a command of mqadmin: scripts work if `mqadmin` is replaced by `eruca admin`.

    \b
    Examples:
      eruca admin                          list the commands
      eruca admin help updateTopic         the flags of one
      eruca admin updateTopic -n 10.0.0.1:9876 -c DefaultCluster -t orders
      eruca admin consumerProgress -g billing

    NAME and FLAGS are those of mqadmin 4.9.7, and what is printed has the same columns. The exit status is 1 if
    something failed, where mqadmin's is 0. The account is taken from conf/tools.yml below ROCKETMQ_HOME, as mqadmin
    does, unless --account or the environment names one. Options of `eruca admin` itself precede NAME.
    """
    if not words:
        click.echo(_list_commands())
        return
    if words[0] == "help" and len(words) == 2:
        click.echo(describe_help(_choose(words[1])))
        return
    command = _choose(words[0])
    line = parse(command, words[1:])
    if line.has("h"):
        click.echo(describe_help(command))
        return
    if line.has("n"):
        nameservers = parse_nameservers(line.text("n"))
    _choose_account()
    timeout = line.number("t") / 1000 if line.has("t") and _has_timeout(command) else command.timeout
    run_loop(_run(line, replace(make_options(nameservers), call_timeout=timeout)))


def suggest_names(words: Sequence[str], incomplete: str) -> list[CompletionItem]:
    """Suggest names of commands for a shell."""
    if words and words[0] != "help":
        return []
    return [CompletionItem(name) for name in COMMANDS if name.lower().startswith(incomplete.lower())]


def _has_timeout(command: Command) -> bool:
    return any(flag.name == _TIMEOUT_FLAG for flag in command.flags)


async def _run(line: Line, options: ClientOptions) -> None:
    from eruca._admin.admin import Admin
    from eruca._cli.mqadmin.call import Call, Output

    module, _, name = line.command.target.partition(":")
    work: Work = getattr(importlib.import_module(module), name)
    out = Output()
    async with Admin(options=options) as cluster:
        await work(Call(cluster, line, out))
    if out.failed:
        sys.exit(1)


def _choose_account() -> None:
    """Use the file in which mqadmin looks for an account, unless one was named."""
    home = os.environ.get("ROCKETMQ_HOME")
    if home and not os.environ.get("ERUCA_ACCESS_KEY"):
        path = Path(home, "conf", "tools.yml")
        if path.is_file():
            use_account_file(path)


# --- help -----------------------------------------------------------------------------------------------------------


def _choose(name: str) -> Command:
    command = find_command(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else "`eruca admin` lists all commands"
        raise click.UsageError(f"mqadmin has no command {name!r}; {hint}")
    return command


def _list_commands() -> str:
    lines = ["The commands of mqadmin:"]
    lines += [f"   {command.name:<23} {command.about}" for command in COMMANDS.values()]
    lines += ["", "`eruca admin help NAME` shows the flags of a command."]
    return "\n".join(lines)


def describe_help(command: Command) -> str:
    """Return the help of a command."""
    about = f"{command.about}."
    alias = f"\nAlso called {command.alias}." if command.alias else ""
    return f"{about}{alias}\n\n{describe_usage(command)}\n\nOur own command: {command.instead}"
