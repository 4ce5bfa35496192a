"""The page about troubleshooting is right: its commands run, and it explains every finding and every rule there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eruca._admin.doctor.checks import CHECKS, NOT_EXAMINED
from eruca.admin import Rules, Severity
from tests.clients.test_guide import check_page, run_page
from tests.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "guide" / "troubleshooting.md"
PAGES = [PAGE, REPOSITORY / "docs" / "zh" / "guide" / PAGE.name]


def list_rows(page: Path) -> dict[str, str]:
    """The second column of each row whose first one is a name."""
    return dict(re.findall(r"^\| `([\w-]+)` \| (.*?) \|", page.read_text(encoding="utf-8"), re.MULTILINE))


def test_its_commands_run(tmp_path: Path) -> None:
    check_page(PAGE, run_page(PAGE, tmp_path))


@pytest.mark.parametrize("page", PAGES, ids=["en", "zh"])
def test_every_finding_is_explained(page: Path) -> None:
    rows = list_rows(page)
    findings = {name for names in CHECKS.values() for name in names} | {NOT_EXAMINED}
    rules = {name: str(getattr(Rules(), name)) for name in Rules.__struct_fields__}
    assert rows.keys() == findings | rules.keys() | set(Severity)
    assert {name: rows[name] for name in rules} == rules
    assert all(any(severity in rows[name] for severity in Severity) for name in findings)
