"""Every command explains itself: a first line that fits a list, examples, and lines that fit a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from eruca._cli.main import main

COLUMNS_MAX = 80


def list_commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and subcommand."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from list_commands(command, (*path, name))


COMMANDS = [(), *list_commands(main)]


def read_help(words: tuple[str, ...]) -> str:
    result = CliRunner().invoke(main, [*words, "--help"], terminal_width=COLUMNS_MAX, max_content_width=COLUMNS_MAX)
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_has_an_example(words: tuple[str, ...]) -> None:
    text = read_help(words)
    assert any(line.startswith(("  Examples:", "  Start here:")) for line in text.splitlines()), text
    assert f"    eruca {' '.join(words)}".rstrip() in text


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_a_terminal(words: tuple[str, ...]) -> None:
    lines = read_help(words).splitlines()
    assert [line for line in lines if len(line) > COLUMNS_MAX or not line.isprintable()] == []


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_options_of_a_command_come_before_those_that_lead_to_the_cluster(words: tuple[str, ...]) -> None:
    own, _, cluster = read_help(words).partition("\nCluster:\n")
    assert "--account FILE" not in own
    assert not cluster or ("--tls-ca" in cluster and "--help" in own)


def test_the_help_of_up_has_the_defaults_of_up() -> None:
    words = " ".join(CliRunner().invoke(main, ["up", "--help"]).stdout.split())
    assert "logLevel: log events of this level and worse ones [default: WARNING]" in words
    words = " ".join(CliRunner().invoke(main, ["broker", "start", "--help"]).stdout.split())
    assert "logLevel: log events of this level and worse ones [default: INFO]" in words
