"""The table of faults in docs/TESTING.md: each command to replay one still finds a test."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.paths import REPOSITORY

COMMANDS = re.findall(r"`(make test-[^`]*)`", (REPOSITORY / "docs" / "TESTING.md").read_text(encoding="utf-8"))
REPLAYS = sorted({command for command in COMMANDS if " -k" in command or "'-k" in command or '"-k' in command})
# Tests whose names come from data: those data lie in these folders too.
_NAMED_BY_DATA = {"interop", "clients", "delivery", "replication", "spark"}


@cache
def list_tests(suite: str) -> list[str]:
    """The tests of a suite: path and name in lower case, and the text of the module where data may name a test."""
    found = []
    for folder in (suite, "property") if suite == "unit" else (suite,):
        for path in sorted((REPOSITORY / "tests" / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            found += [describe(path, node) for node in ast.walk(ast.parse(text)) if is_test(node)]
            if suite in _NAMED_BY_DATA:
                found.append(f"{path} {text}".lower())
    if suite in _NAMED_BY_DATA:
        found += [path.read_text(encoding="utf-8").lower() for path in (REPOSITORY / "tests" / suite).rglob("*.java")]
    return found


def is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")


def describe(path: Path, node: ast.AST) -> str:
    # What decorators say is here for the names of their parameters.
    return f"{path.relative_to(REPOSITORY)}::{ast.unparse(node).split('):', 1)[0]}".lower()


@pytest.mark.parametrize("command", REPLAYS)
def test_a_replay_finds_its_test(command: str) -> None:
    suite = command.split()[1].removeprefix("test-")
    (arguments,) = [word.removeprefix("ARGS=") for word in shlex.split(command) if word.startswith("ARGS=")]
    words = shlex.split(arguments)
    expression = Expression.compile(words[words.index("-k") + 1])

    def occurs_in(text: str) -> bool:
        def occurs(name: str, /, **_: str | int | bool | None) -> bool:
            # Which system a case runs on is the first part of its name.
            return name.lower().removeprefix("eruca-") in text

        return expression.evaluate(occurs)

    assert any(map(occurs_in, list_tests(suite)))


def test_there_are_replays() -> None:
    assert len(REPLAYS) > 100
