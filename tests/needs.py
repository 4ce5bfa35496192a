"""Which tests need which tools, and what becomes of a test whose tool is missing.

A test needs what its marks say (`@needs("etcd")`), what the fixtures start that it asks for (`@starts("java")`), and
Java when that is the system it runs against. On a machine without the tool it is left out, and the end of the run says
how many tests need which missing tool. A test that starts a tool without saying so fails everywhere, not only where the
tool is missing: whatever starts one calls `expect_need`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from tests.tools import TOOLS, list_missing

F = TypeVar("F", bound=Callable[..., object])

# The parameters that name the system a test runs against: "eruca" or "java".
SYSTEM_PARAMETERS = ("cluster", "system")
NAMES = {tool: wanted.name for tool, wanted in TOOLS.items()}


def needs(*tools: str) -> pytest.MarkDecorator:
    """Mark a test, a module or a parameter that needs tools."""
    assert set(tools) <= NAMES.keys(), f"no such tool: {tools}"
    return pytest.mark.needs(*tools)


def starts(tool: str) -> Callable[[F], F]:
    """Say that a fixture starts a tool: a test that asks for the fixture, also through another, needs the tool."""
    assert tool in NAMES, f"no such tool: {tool}"

    def remember(fixture: F) -> F:
        fixture.__dict__["starts"] = tool
        return fixture

    return remember


def list_needs(item: pytest.Item) -> frozenset[str]:
    """The tools that a test needs."""
    marked = {tool for mark in item.iter_markers("needs") for tool in mark.args}
    if not isinstance(item, pytest.Function):
        return frozenset(marked)
    fixtures = [definitions[-1].func for definitions in item._fixtureinfo.name2fixturedefs.values()]
    asked = {fixture.__dict__["starts"] for fixture in fixtures if "starts" in getattr(fixture, "__dict__", {})}
    params = item.callspec.params if hasattr(item, "callspec") else {}
    systems = {"java" for name in SYSTEM_PARAMETERS if params.get(name) == "java"}
    return frozenset(marked | asked | systems)


def is_missing(tool: str) -> bool:
    """Whether this machine lacks a tool."""
    return bool(list_missing(tool))


def leave_out(items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], Counter[str]]:
    """The tests that cannot run here, and how many of them need each missing tool."""
    left_out, counts = [], Counter[str]()
    for item in items:
        if missing := [tool for tool in sorted(list_needs(item)) if is_missing(tool)]:
            left_out.append(item)
            counts.update(missing)
    return left_out, counts


def describe_left_out(total: int, counts: Counter[str]) -> str:
    """One line for the end of a run."""
    said = ", ".join(f"{count} need{'s' * (count == 1)} {NAMES[tool]}" for tool, count in counts.most_common())
    return f"left out: {total} test{'s' * (total != 1)}; {said}"


# The needs of the test that runs now; None outside of tests, where anything may be started.
_declared: frozenset[str] | None = None


def declare_needs(tools: frozenset[str] | None) -> None:
    """Say what the test that runs now may start."""
    global _declared  # noqa: PLW0603
    _declared = tools


def expect_need(tool: str) -> None:
    """Fail the test that starts a tool without saying that it needs it."""
    assert _declared is None or tool in _declared, f'a test that starts {NAMES[tool]} is marked needs("{tool}")'
