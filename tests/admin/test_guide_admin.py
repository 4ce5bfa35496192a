"""The page about the admin is right: every block runs, and prints what the page says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from eruca.admin import Admin
from tests.admin.stage import list_methods
from tests.clients.test_guide import check_page, run_page
from tests.interop.brokers import Cluster
from tests.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "guide" / "admin.md"


def read_table() -> dict[str, bool]:
    """The methods of the table, and whether each changes something: those after the semicolon."""
    rows = re.findall(r"^\| `(\w+)` \| (`.*`) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    found: dict[str, bool] = {}
    for part, methods in rows:
        looking, _, changing = methods.partition(";")
        for changes, names in enumerate((looking, changing)):
            found |= {f"{part}.{method}": bool(changes) for method in re.findall(r"`(\w+)`", names)}
    return found


def test_the_table_has_every_method() -> None:
    assert sorted(read_table()) == sorted(list_methods())


def test_what_changes_something_has_a_dry_run_and_nothing_else_has() -> None:
    admin = Admin("127.0.0.1:1")
    for name, changes in read_table().items():
        part, _, method = name.partition(".")
        parameters = inspect.signature(getattr(getattr(admin, part), method)).parameters
        assert ("dry_run" in parameters) == changes, name


def test_the_guide_is_right(tmp_path: Path) -> None:
    check_page(PAGE, run_page(PAGE, tmp_path))


def test_the_guide_is_right_on_either_system(cluster: Cluster, tmp_path: Path) -> None:
    check_page(PAGE, run_page(PAGE, tmp_path, cluster.name_server))
