"""The page about operations is right: its commands run, and it explains every alert and every dashboard there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.clients.test_guide import check_page, run_page
from tests.monitoring.queries import list_rules, read_dashboards
from tests.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "guide" / "operations.md"
PAGES = [PAGE, REPOSITORY / "docs" / "zh" / "guide" / PAGE.name]
_ROW = re.compile(r"^\| `([\w-]+)` \|", re.MULTILINE)


def list_rows(page: Path, prefix: str) -> list[str]:
    """The first columns of the tables that begin with some letters."""
    return [name for name in _ROW.findall(page.read_text(encoding="utf-8")) if name.startswith(prefix)]


def test_its_commands_run(tmp_path: Path) -> None:
    check_page(PAGE, run_page(PAGE, tmp_path))


@pytest.mark.parametrize("page", PAGES, ids=["en", "zh"])
def test_every_alert_is_explained(page: Path) -> None:
    assert list_rows(page, "Eruca") == [rule["alert"] for rule in list_rules()]


@pytest.mark.parametrize("page", PAGES, ids=["en", "zh"])
def test_every_dashboard_is_explained(page: Path) -> None:
    assert {f"{name}.json" for name in list_rows(page, "eruca-")} == read_dashboards().keys()
