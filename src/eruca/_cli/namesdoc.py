"""Writes docs/API_NAMES.md from the public modules: `python -m eruca._cli.namesdoc docs/API_NAMES.md`."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

_INTRO = """\
# Public names

Every name you may import from Eruca, with one line each. Modules whose names start with an underscore are private and
may change at any time. This page is generated from the code (`make generate`); a test fails when it is out of date.
"""
_HEAD = "| name | what it is |\n| --- | --- |\n"
_FIXTURES = """\
## pytest fixtures

Every test can use them as soon as Eruca is installed: [testing with a real broker](guide/testing.md).
"""
_COMMENT = "#:"


def write_page() -> str:
    """Return the whole page."""
    parts = [_INTRO]
    for name in list_modules():
        module = importlib.import_module(name)
        if module.__all__:
            parts.append(f"## `{name}`\n\n{_read_first_paragraph(module)}\n\n{_HEAD}{_write_rows(module)}")
    fixtures = [f"| `{name}` | {_escape(_read_first_paragraph(fixture))} |\n" for name, fixture in _list_fixtures()]
    parts.append(f"{_FIXTURES}\n{_HEAD}{''.join(fixtures)}")
    return "\n".join(parts)


def list_modules() -> list[str]:
    """Return the dotted names of the modules that users may import, `eruca` first."""
    return ["eruca", *sorted(_find_modules("eruca"))]


def _find_modules(package: str) -> Iterator[str]:
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if "._" not in found.name:
            yield found.name
            if found.ispkg:
                yield from _find_modules(found.name)


def describe(module: ModuleType, name: str) -> str:
    """Return one line about a name of a module: its docstring, or the `#:` comment where it is assigned."""
    value = getattr(module, name)
    if isinstance(value, ModuleType) or inspect.isclass(value) or inspect.isroutine(value):
        return _read_first_paragraph(value)
    return _find_comment(module, name)


def _read_first_paragraph(value: Any) -> str:
    # A dataclass without a docstring gets its signature as one, and a class may inherit one.
    own = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
    text = inspect.cleandoc(own or "").split("\n\n")[0]
    if inspect.isclass(value) and text.startswith(f"{value.__name__}("):
        return ""
    return " ".join(text.split())


def _find_comment(module: ModuleType, name: str) -> str:
    source = inspect.getsource(module)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _find_comment(importlib.import_module(node.module), alias.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return _read_comment_above(source.splitlines()[: node.lineno - 1])
    return ""


def _read_comment_above(lines: list[str]) -> str:
    found: list[str] = []
    while lines and lines[-1].startswith(_COMMENT):
        found.insert(0, lines.pop().removeprefix(_COMMENT).strip())
    return " ".join(found)


def _write_rows(module: ModuleType, prefix: str = "") -> str:
    rows = []
    for name in module.__all__:
        rows.append(f"| `{prefix}{name}` | {_escape(describe(module, name))} |\n")
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            rows.append(_write_rows(value, f"{prefix}{name}."))
    return "".join(rows)


def _list_fixtures() -> Iterator[tuple[str, Any]]:
    # Imported by name: only tests import that room, and a page about it must not make this module depend on it.
    for name, value in vars(importlib.import_module("eruca._testing.plugin")).items():
        if name.startswith("eruca_") and value.__doc__:
            yield name, inspect.unwrap(value)


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(write_page(), encoding="utf-8")
