"""The `eruca` command: what all subcommands share, and where each of them is."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import Any

import click

from eruca import __version__
from eruca.errors import ErucaError

# A subcommand is imported when it is called, so that `eruca store` does not wait for libraries of another one.
COMMANDS = {
    "up": "eruca._cli.serve:up",
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

# What a shell reports for a program that a closed pipe ended (128 + SIGPIPE), as for `cat x | head`.
_EXIT_BROKEN_PIPE = 141


class Failure(click.ClickException):
    """An error Eruca raised on purpose, as one line."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        """Print the line; the hint is already part of it."""
        click.echo(f"eruca: {self.message}", file=file, err=file is None)


class MainGroup(click.Group):
    """The group of all subcommands: imports them late and turns errors into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order they are documented."""
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
        """Run the subcommand; an `ErucaError` becomes one line and exit status 1, never a traceback."""
        try:
            return super().invoke(ctx)
        except ErucaError as error:
            raise Failure(" ".join(str(error).split())) from error
        except BrokenPipeError:
            _forget_stdout()
            ctx.exit(_EXIT_BROKEN_PIPE)


def _forget_stdout() -> None:
    """Send what is still buffered nowhere: the reader has gone, and Python would complain at exit."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


class _EchoHandler(logging.Handler):
    """Log records as lines on stderr, wherever that goes at the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"eruca: {record.levelname.lower()}: {record.getMessage()}", err=True)


@click.group(
    cls=MainGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog='Tab completion: eval "$(_ERUCA_COMPLETE=bash_source eruca)" (or zsh_source, fish_source).',
)
@click.version_option(__version__, prog_name="eruca")
@click.option("-v", "--verbose", count=True, help="Say more on stderr; twice for everything.")
@click.pass_context
def main(ctx: click.Context, verbose: int) -> None:
    """Eruca, a message system that speaks the protocol and keeps the files of Apache RocketMQ 4.9.

    \b
    Examples:
      eruca up                         a running system: name server and broker, data in ./eruca-data
      eruca send hello "a message"     send, in another terminal
      eruca tail hello --follow        read
      eruca dlq list                   messages that consumers gave up on; also show, resend, export
      eruca offset reset G T --to -2h  let group G consume the last two hours of topic T again
      eruca txn list                   transactions that nobody has decided
      eruca cluster list               masters and slaves; also lag, promote, demote
      eruca store stat DIR             what is in a store directory
      eruca store verify DIR           is every record, entry and table as it should be?
      eruca pipeline --help            jobs on Spark: archive, query, statistics, replay, audit
      eruca store verify --help        more about one command

    What a command has to say goes to stdout, and everything else (progress, warnings, errors) to stderr. The exit
    status is 0 when all is well, 1 when something is wrong, 2 when the command line cannot be understood.
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
