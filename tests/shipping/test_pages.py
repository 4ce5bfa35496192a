"""The pages about coming from elsewhere, deploying and errors are right: blocks run, tables have everything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eruca import errors
from tests.clients.test_guide import check_page, run_page
from tests.paths import REPOSITORY
from tools import charts
from tools.project import read_project

DOCS = REPOSITORY / "docs"
COMING = sorted((DOCS / "from").glob("*.md"))
_ROW = re.compile(r"^\| `(\w+)` \|[^|]+(?:\\\|[^|]*)*\| ([\w ]+) \|", re.MULTILINE)


@pytest.mark.parametrize("page", COMING, ids=lambda page: page.stem)
def test_every_block_runs(page: Path, tmp_path: Path) -> None:
    check_page(page, run_page(page, tmp_path))


def test_every_error_is_explained() -> None:
    rows = dict(_ROW.findall((DOCS / "ERRORS.md").read_text(encoding="utf-8")))
    assert list(rows) == sorted(errors.__all__)
    for name, again in rows.items():
        kind = getattr(errors, name)
        # Of these, each error decides for itself.
        if name in {"ErucaError", "RequestRefused", "SendFailed"}:
            assert again == "as the error says"
        else:
            assert again == ("yes" if kind.retryable else "no"), name


def test_every_extra_is_explained() -> None:
    text = (DOCS / "deploy" / "deploying.md").read_text(encoding="utf-8")
    table = re.search(r"^\| extra \|.*?(?=\n\n)", text, re.DOTALL | re.MULTILINE)
    assert table
    named = set(re.findall(r"`([a-z]+)`", table[0]))
    assert named >= read_project()["project"]["optional-dependencies"].keys()


def test_files_that_the_page_names_are_there() -> None:
    text = (DOCS / "deploy" / "deploying.md").read_text(encoding="utf-8")
    for path in re.findall(r"\bdeploy/[\w./*-]+", text):
        assert list(REPOSITORY.glob(path.rstrip("."))), path


def test_charts_are_up_to_date() -> None:
    assert charts.main("--check") == 0
