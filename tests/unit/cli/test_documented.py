"""Every command that a page, an alert, an error or a help text names is one, with the flags it is named with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from eruca._cli.main import main
from tests.paths import REPOSITORY

_PLACES = ("*.md", "docs/**/*.md", "examples/*.md", "deploy/**/*.yml", "deploy/**/*.json")
PAGES = sorted(path for place in _PLACES for path in REPOSITORY.glob(place))
SOURCES = sorted((REPOSITORY / "src").rglob("*.py"))
# In a page or text: between backquotes, or a line of an example.
_QUOTED = re.compile(r"`(?:make up; )?(eruca [a-z][^`]*)`")
_LINE = re.compile(r"^\s*(eruca [a-z].*)$", re.MULTILINE)
_WORD = re.compile(r"'[^']*'|\"[^\"]*\"|\S+")
# What follows a command in an example: a comment after two blanks, another command of the shell.
_END = re.compile(r"\s{2,}\S.*|\s+[#>|&;]\s?.*|\s+\|\|.*")
# What servers sign begins like a command.
_SIGNED = {"eruca answer 1", "eruca replication handshake 1"}
# A word that stands for commands.
_STANDS_FOR_SOME = re.compile(r"^(?:\.\.\.|[A-Z][A-Z-]*|<\w+>|\S*[|/]\S*|\w+VALUE)$")


def list_texts(path: Path) -> Iterator[str]:
    """The text of a page, or the string literals of a source, docstrings included."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "VALUE" for part in node.values]
            yield "".join(parts)


def list_named(path: Path) -> Iterator[str]:
    """The command lines that a file names."""
    for text in list_texts(path):
        for found in (*_QUOTED.finditer(text), *_LINE.finditer(text)):
            line = _END.sub("", found[1].partition("\n")[0]).strip(" .,:")
            if line not in _SIGNED:
                yield line


@cache
def find(words: tuple[str, ...]) -> click.Command | None:
    """The command with a path of names."""
    command: click.Command = main
    for word in words:
        found = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        if found is None:
            return None
        command = found
    return command


def explain(line: str) -> str:
    """What is wrong with a command line; empty if nothing is."""
    words = _WORD.findall(line)[1:]
    path: list[str] = []
    while words and isinstance(find(tuple(path)), click.Group) and not words[0].startswith("-"):
        if _STANDS_FOR_SOME.match(words[0]):
            return ""
        path.append(words.pop(0))
        if find(tuple(path)) is None:
            return f"there is no command {' '.join(path)}"
    command = find(tuple(path))
    assert command is not None
    if path[:1] == ["admin"]:
        return ""
    # Without a subcommand, servers start.
    params = [*command.params, *getattr(find((*path, "start")), "params", ())]
    known = {flag for parameter in params for flag in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help"} | ({"--version"} if not path else set())
    for word in words:
        flag = word.partition("=")[0].strip("[],")
        if re.fullmatch(r"--[a-z][a-z-]*", flag) and flag not in known:
            return f"eruca {' '.join(path)} has no {flag}"
    return ""


@pytest.mark.parametrize("path", [*PAGES, REPOSITORY / "src"], ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_named_commands_exist(path: Path) -> None:
    files = SOURCES if path.is_dir() else [path]
    named = [(file, line) for file in files for line in list_named(file)]
    wrong = [f"{file.name}: `{line}`: {why}" for file, line in named if (why := explain(line))]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("eruca topic create orders --queues 4", ""),
        ("eruca topic make orders", "there is no command topic make"),
        ("eruca topic create orders --count 4", "has no --count"),
        ("eruca topics", "there is no command topics"),
        ("eruca dlq list|show", ""),
        ("eruca admin topicList -c", ""),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str, reason: str) -> None:
    assert reason in explain(line) and bool(reason) == bool(explain(line))
