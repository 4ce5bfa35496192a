"""What all subcommands share."""

from __future__ import annotations

import logging

import click
import pytest
from click.testing import CliRunner

from eruca._cli.main import COMMANDS, main
from eruca.errors import RequestRefused

# What an impostor of a server may send: a second line, and a command for the terminal.
HOSTILE = "no\x1b[2J\x1b]0;title\x07 way"


@click.command()
def refused() -> None:
    """Hear it from a server, and fail."""
    logging.getLogger("eruca.client").warning("told: %s", HOSTILE)
    raise RequestRefused(1, HOSTILE)


def test_what_a_server_says_does_not_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "refused", f"{__name__}:refused")
    done = CliRunner().invoke(main, ["refused"])
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert [line[: line.index("no")] for line in lines] == ["eruca: warning: told: ", "eruca: "]
    assert all(r"no\x1b[2J\x1b]0;title\x07 way" in line for line in lines)
    assert "\x1b" not in done.output and "\x07" not in done.output
