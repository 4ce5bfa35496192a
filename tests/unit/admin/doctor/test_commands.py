"""Commands of findings can be copied into a shell, whatever strangers called their groups."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

import eruca._admin.doctor
from eruca._ground.commandlines import write_command


def find_commands() -> Iterator[ast.expr]:
    """Every expression in the doctor's modules that becomes the command of a finding."""
    for path in sorted(Path(*eruca._admin.doctor.__path__).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "command":
                yield node.value


def test_no_command_is_put_together_without_quotes() -> None:
    commands = list(find_commands())
    assert len(commands) >= 20
    pasted = [ast.unparse(each) for each in commands if any("eruca " in text for text in list_pasted(each))]
    assert pasted == []


def list_pasted(expression: ast.expr) -> Iterator[str]:
    """The f-strings of an expression."""
    return (ast.unparse(node) for node in ast.walk(expression) if isinstance(node, ast.JoinedStr))


def test_a_name_stays_one_word() -> None:
    name = 'x\'; touch here; "$(id)" `id` #'
    assert shlex.split(write_command("group", "show", name)) == ["eruca", "group", "show", name]
    assert write_command("topic", "update", "orders", "--queues", 8) == "eruca topic update orders --queues 8"
