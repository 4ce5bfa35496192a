"""The `eruca` command: what all subcommands share, and where each of them is."""

from __future__ import annotations

import difflib
import importlib
import logging
import os
import platform
import sys
from typing import Any

import click

from eruca import __version__
from eruca._cli.saying import say
from eruca.errors import ErucaError

# The commands in the order of --help: the module of each and what it does, in one line of 80 columns. A command is
# imported when it is called, so that `eruca store` does not wait for the libraries of others.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "up": ("eruca._cli.serve:up", "Start a name server and a broker in one process."),
        "init": ("eruca._cli.init:init", "Write a configuration with accounts and a certificate."),
        "demo": ("eruca._cli.demo:demo", "Take a tour of half a minute."),
        "broker": ("eruca._cli.broker:broker", "Start a broker; list, configure and clean brokers."),
        "nameserver": ("eruca._cli.nameserver:nameserver", "Start a name server; keys and values, configuration."),
        "filterserver": ("eruca._cli.filterserver:filterserver", "Start a filter server."),
    },
    "Messages": {
        "send": ("eruca._cli.send:send", "Send messages."),
        "tail": ("eruca._cli.tail:tail", "Show the messages of a topic as they arrive."),
        "message": ("eruca._cli.message:message", "Find messages by key, id, time or place; trace them."),
        "dlq": ("eruca._cli.dlq:dlq", "Dead letters: list, resend, export."),
        "txn": ("eruca._cli.txn:txn", "Transactions: list, resume, discard."),
        "delayed": ("eruca._cli.delayed:delayed", "Messages that wait for their time: list, cancel."),
    },
    "Operate": {
        "topic": ("eruca._cli.topic:topic", "Topics: list, create, change, delete."),
        "group": ("eruca._cli.group:group", "Consumer groups: members, owners, lag, stuck messages."),
        "client": ("eruca._cli.client:client", "Connected producers and consumers, what they are doing."),
        "doctor": ("eruca._cli.doctor:doctor", "What is wrong with the cluster, and what to do."),
        "top": ("eruca._cli.top:top", "Watch rates, lag, replication and disks live."),
        "lag": ("eruca._cli.lag:lag", "How far groups are behind, in messages and in time."),
        "offset": ("eruca._cli.offset:offset", "Consumer offsets: show, reset, skip, save, restore."),
        "route": ("eruca._cli.route:route", "Where the queues of a topic are."),
        "cluster": ("eruca._cli.cluster:cluster", "Masters and slaves: list, lag, change the master."),
        "acl": ("eruca._cli.acl:acl", "Accounts and their permissions."),
        "console": ("eruca._cli.console:console", "Serve the web console of one or more clusters."),
        "mcp": ("eruca._cli.mcp:mcp", "Let assistants look at a cluster (Model Context Protocol)."),
        "config": ("eruca._cli.config:config", "Explain the options of the servers."),
        "admin": ("eruca._cli.mqadmin.main:admin", "The commands of mqadmin, with their names and flags."),
    },
    "Store and data": {
        "store": ("eruca._cli.store:store", "Look into a store directory, check it, rebuild it."),
        "pipeline": ("eruca._cli.pipeline:pipeline", "Spark jobs: archive, query, statistics, replay."),
    },
}
COMMANDS = {name: target for section in SECTIONS.values() for name, (target, _summary) in section.items()}

# The exit status that shells report for a program ended by a closed pipe (128 + SIGPIPE).
_EXIT_BROKEN_PIPE = 141


class Failure(click.ClickException):
    """An error that Eruca raised on purpose, printed as one line."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        """Print the line; the message contains the hint."""
        say(self.message, file)


class MainGroup(click.Group):
    """The group of all subcommands. Imports them when they are used and prints errors as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they are documented."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a subcommand."""
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, name = target.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names; for a wrong name, the error has those that are similar."""
        if not ctx.resilient_parsing and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS)
            hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, without importing them."""
        width = max(map(len, COMMANDS))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                # All sections have their second column in the same place.
                formatter.write_dl([(name.ljust(width), summary) for name, (_target, summary) in section.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand. An `ErucaError` becomes one line and exit status 1, never a traceback."""
        try:
            return super().invoke(ctx)
        except ErucaError as error:
            raise Failure(" ".join(str(error).split())) from error
        except BrokenPipeError:
            _forget_stdout()
            ctx.exit(_EXIT_BROKEN_PIPE)


def _forget_stdout() -> None:
    """Discard what is still buffered: the reader has closed the pipe, and Python would complain at exit."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


class _EchoHandler(logging.Handler):
    """Writes log records as lines to the current stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {record.getMessage()}")


def _show_version(ctx: click.Context, _parameter: click.Parameter, is_asked: bool) -> None:
    """Print the version, and whether the inner loops are compiled, which decides how fast a broker is."""
    if is_asked and not ctx.resilient_parsing:
        from eruca._wire.kernel import reading

        kernels = {True: "compiled", False: "plain"}[reading.compiled]
        click.echo(f"eruca, version {__version__} (Python {platform.python_version()}, {kernels})")
        ctx.exit()


@click.group(
    cls=MainGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog='Tab completion: eval "$(_ERUCA_COMPLETE=bash_source eruca)" (or zsh_source, fish_source).',
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@click.option("-v", "--verbose", count=True, help="Log more to stderr; twice for everything.")
@click.pass_context
def main(ctx: click.Context, verbose: int) -> None:
    """A message broker with the protocol and files of Apache RocketMQ 4.9.

    \b
    Start here:
      eruca up                        name server and broker; data in ./eruca-data
      eruca send hello "a message"    send it, from another terminal
      eruca tail hello --follow       read it

    \b
    Operate a cluster, Eruca or Java:
      eruca topic create orders       8 queues on every broker
      eruca group show billing        members, owners, lag, stuck messages
      eruca lag                       which groups are behind
      eruca message find orders --key order-7
      eruca offset reset billing orders --to -2h

    `eruca COMMAND --help` has more examples for each command.

    Results go to stdout; progress, warnings and errors go to stderr. The exit status is 0 on success, 1 on an error, 2
    if the command line is invalid, and 3 if the answer shows that something is wrong or missing.
    """
    handler = _EchoHandler()
    logger = logging.getLogger("eruca")
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(max(logging.DEBUG, logging.WARNING - 10 * verbose))
    ctx.call_on_close(lambda: _quiet(logger, handler, before))


def _quiet(logger: logging.Logger, handler: logging.Handler, level: int) -> None:
    logger.removeHandler(handler)
    logger.setLevel(level)
