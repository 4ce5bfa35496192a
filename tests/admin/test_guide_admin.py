"""The page about the admin is right: every block runs, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.admin.stage import list_methods
from tests.clients.test_guide import check_page, run_page
from tests.interop.brokers import Cluster
from tests.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "guide" / "admin.md"


def test_the_table_has_every_method() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (`.*`) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = [f"{part}.{method}" for part, methods in rows for method in re.findall(r"`(\w+)`", methods)]
    assert sorted(listed) == sorted(list_methods())


def test_the_guide_is_right(tmp_path: Path) -> None:
    check_page(PAGE, run_page(PAGE, tmp_path))


def test_the_guide_is_right_on_either_system(cluster: Cluster, tmp_path: Path) -> None:
    check_page(PAGE, run_page(PAGE, tmp_path, cluster.name_server))
