"""The guide about mqadmin: its table has every command, and names commands of ours that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from eruca._cli.main import main
from eruca._cli.mqadmin.table import COMMANDS
from tests.paths import REPOSITORY

PAGES = [REPOSITORY / "docs" / "guide" / "mqadmin.md", REPOSITORY / "docs" / "zh" / "guide" / "mqadmin.md"]
_ROW = re.compile(r"^\| `(\w+)`(?:, `(\w+)`)? \| (.+) \| `(eruca [^`]+)` \|$", re.MULTILINE)


def list_commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that is not a group, by its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from list_commands(command, (*path, name))
        else:
            yield " ".join(("eruca", *path, name)), command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parts[-3])
def test_the_table_has_every_command(page: Path) -> None:
    rows = _ROW.findall(page.read_text(encoding="utf-8"))
    assert {name: (alias, instead) for name, alias, _, instead in rows} == {
        command.name: (command.alias, command.instead) for command in COMMANDS.values()
    }
    assert len(rows) == len(COMMANDS) == 57


def test_the_table_says_what_the_help_says() -> None:
    about = {name: about for name, _, about, _ in _ROW.findall(PAGES[0].read_text(encoding="utf-8"))}
    assert about == {command.name: command.about for command in COMMANDS.values()}


@pytest.mark.parametrize("name", COMMANDS)
def test_our_own_command_exists(name: str) -> None:
    words, _, rest = COMMANDS[name].instead.partition(" -")
    command = dict(list_commands(main))[words]
    known = {flag for parameter in command.params for flag in parameter.opts}
    for flag in re.findall(r"(?<!\S)--?[\w-]+", f"-{rest}" if rest else ""):
        assert flag in known, f"{COMMANDS[name].instead}: no {flag}"
