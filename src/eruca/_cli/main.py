"""The `eruca` command: what all subcommands share, and where each of them is."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import Any

import click

from eruca import __version__
from eruca._ground.printable import show_safely
from eruca.errors import ErucaError

# A subcommand is imported when it is called, so that `eruca store` does not wait for the libraries of others.
COMMANDS = {
    "up": "eruca._cli.serve:up",
    "init": "eruca._cli.init:init",
    "send": "eruca._cli.send:send",
    "tail": "eruca._cli.tail:tail",
    "nameserver": "eruca._cli.serve:nameserver",
    "broker": "eruca._cli.serve:broker",
    "filterserver": "eruca._cli.filterserver:filterserver",
    "dlq": "eruca._cli.dlq:dlq",
    "txn": "eruca._cli.txn:txn",
    "offset": "eruca._cli.offset:offset",
    "cluster": "eruca._cli.cluster:cluster",
    "config": "eruca._cli.config:config",
    "store": "eruca._cli.store:store",
    "pipeline": "eruca._cli.pipeline:pipeline",
    "demo": "eruca._cli.demo:demo",
}

# The exit status that shells report for a program ended by a closed pipe (128 + SIGPIPE).
_EXIT_BROKEN_PIPE = 141


class Failure(click.ClickException):
    """An error that Eruca raised on purpose, printed as one line."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        """Print the line; the message contains the hint."""
        click.echo(f"eruca: {show_safely(self.message)}", file=file, err=file is None)


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
        click.echo(f"eruca: {record.levelname.lower()}: {show_safely(record.getMessage())}", err=True)


@click.group(
    cls=MainGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog='Tab completion: eval "$(_ERUCA_COMPLETE=bash_source eruca)" (or zsh_source, fish_source).',
)
@click.version_option(__version__, prog_name="eruca")
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
      eruca dlq list                  messages that consumers gave up on
      eruca offset show GROUP         how far a consumer group is
      eruca offset reset G T --to -2h consume the last two hours again
      eruca txn list                  undecided transactions
      eruca cluster list              masters and slaves
    \b
    Look into a store directory:
      eruca store stat DIR            topics, queues, offsets, sizes
      eruca store verify DIR          check every record, entry and table

    `eruca COMMAND --help` has more examples for each command.

    Results go to stdout; progress, warnings and errors go to stderr. The exit status is 0 on success, 1 on an error and
    2 if the command line is invalid.
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
