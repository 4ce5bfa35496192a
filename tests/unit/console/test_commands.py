"""Commands that pages have to copy are commands of our own command line; tests/console tries those of whole pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import takewhile

import click

from eruca._cli.main import COMMANDS, main
from tests.paths import REPOSITORY

_CONSOLE = REPOSITORY / "src" / "eruca" / "_console"
_IN_TEMPLATE = re.compile(r"visit\.command\(([^)]*)\)")


def test_the_commands_in_the_code_and_in_the_templates_exist() -> None:
    found = {tuple(words) for words in [*_list_in_code(), *_list_in_templates()]}
    assert len(found) > 30
    assert [words for words in sorted(found) if not _exists(words)] == []
    assert not _exists(("broker", "runtime"))


def _list_in_code() -> Iterator[list[str]]:
    for path in _CONSOLE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            items: list[ast.expr] = []
            if isinstance(node, ast.List):
                items = node.elts
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "command":
                items = node.args
            words = [each.value if isinstance(each, ast.Constant) else None for each in items]
            literal = [str(word) for word in takewhile(lambda word: isinstance(word, str), words)]
            if literal and literal[0] in COMMANDS:
                yield literal


def _list_in_templates() -> Iterator[list[str]]:
    for path in _CONSOLE.rglob("*.html"):
        for found in _IN_TEMPLATE.finditer(path.read_text(encoding="utf-8")):
            words = takewhile(lambda word: word[:1] == '"', (word.strip() for word in found[1].split(",")))
            yield [word.strip('"') for word in words]


def _exists(words: tuple[str, ...]) -> bool:
    """Whether the words lead to a command; those behind it are its arguments."""
    command: click.Command | None = main
    for word in words:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), word)
    return command is not None
