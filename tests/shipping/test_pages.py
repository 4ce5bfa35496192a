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
# What the blocks of the guides here define is called in the suites of delivery, replication, security and clients.
DEFINING = [DOCS / "guide" / f"{name}.md" for name in ("delivery", "integrations", "replication", "security")]
COMING = [*sorted((DOCS / "from").glob("*.md")), *DEFINING]
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


def test_what_a_server_says_when_it_does_not_start_is_what_it_says() -> None:
    text = (DOCS / "deploy" / "deploying.md").read_text(encoding="utf-8")
    table = text.partition("## When it does not start")[2].partition("\n\n## ")[0]
    said = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(said) >= 4
    source = " ".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "src").rglob("*.py"))
    for message in said:
        assert all(part in source for part in re.split(r"\.\.\.|broker-a", message)), message


def test_tests_that_pages_name_are_there() -> None:
    missing = {
        f"{page.name}: {path}"
        for page in [*DOCS.rglob("*.md"), *REPOSITORY.glob("*.md")]
        for path in re.findall(r"`(tests/[\w/]+\.\w+)`", page.read_text(encoding="utf-8"))
        if not (REPOSITORY / path).exists()
    }
    assert missing == set()


def test_the_page_writes_accounts_as_the_user_of_the_image() -> None:
    """Servers cannot read files of root in the volume, and the address of a container is soon gone."""
    text = (DOCS / "deploy" / "deploying.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^podman run .*eruca init .*$", text, re.MULTILINE)
    assert "--user" not in command and "0.0.0.0" not in command
    folder = command.split("eruca init ")[1].split()[0]
    made = (REPOSITORY / "deploy" / "image" / "Containerfile").read_text(encoding="utf-8")
    assert re.search(rf"install -d -m 0750 -o 10001 -g 10001 .*{folder}\b", made)


def test_charts_are_up_to_date() -> None:
    assert charts.main("--check") == 0
