"""The pages about the clients are right: every block runs, and prints what the page says."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path

import pytest

from eruca import ClientOptions, Consumer, Flow, Offsets, Producer, Rebalance, Retry
from tests.clients.guidepage import Block, read_blocks
from tests.interop.brokers import Cluster
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S

GUIDE = REPOSITORY / "docs" / "guide" / "clients.md"
CHINESE = REPOSITORY / "docs" / "zh"
PAGES = [REPOSITORY / "README.md", GUIDE]
# Pages in English and where they are in Chinese.
TRANSLATIONS = {
    REPOSITORY / "README.md": CHINESE / "README.md",
    **{page: CHINESE / "guide" / page.name for page in sorted(GUIDE.parent.glob("*.md"))},
}
SECONDS_MAX = PATIENCE_S


def run_page(page: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the blocks of a page in a separate process, whose files are in `home`."""
    without = {key: value for key, value in os.environ.items() if not key.startswith(("ERUCA_", "NAMESRV_"))}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.clients.guidepage", str(page), *arguments],
        cwd=home,
        env={**without, "HOME": str(home), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_does_what_the_page_says(page: Path, tmp_path: Path) -> None:
    check_page(page, run_page(page, tmp_path))


@pytest.mark.whole
def test_the_guide_is_right_on_a_cluster_of_either_kind(cluster: Cluster, tmp_path: Path) -> None:
    check_page(GUIDE, run_page(GUIDE, tmp_path, cluster.name_server))


def check_page(page: Path, run: subprocess.CompletedProcess[str]) -> None:
    """Assert that all blocks of a page ran."""
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr
    count = len(read_blocks(page))
    assert count and f"\n{count} blocks\n" in run.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```python\nprint(1)\n```\n\n```\n2\n```\n", "line 2 printed ['1']"),
        ("```python\nprint(1)\n```\n", "line 2 printed ['1']"),
        ("text\n\n```python\nfrom eruca import Prodcuer\n```\n", "Prodcuer"),
        ("```sh run\neruca pipeline checkpoint show gone\n```\n", "it has no offsets"),
        ("```python endless\nimport asyncio\n\nawait asyncio.sleep(0)\n```\n\n```\n1\n```\n", "is not endless"),
    ],
)
def test_a_block_that_does_something_else_is_found(text: str, said: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    run = run_page(page, tmp_path)
    assert run.returncode == 1
    assert said in run.stderr


@pytest.mark.parametrize("page", TRANSLATIONS, ids=lambda page: page.name)
def test_the_blocks_of_a_translation_are_those_of_the_page(page: Path) -> None:
    translation = TRANSLATIONS[page]
    assert [_strip(block) for block in read_blocks(translation)] == [_strip(block) for block in read_blocks(page)]
    assert _count_sections(translation) == _count_sections(page) > 0


# The Chinese comparison has a paragraph for each task where the English one has a table, and says so.
@pytest.mark.parametrize(
    "page", [page for page in TRANSLATIONS if page.name not in {"README.md", "comparison.md"}], ids=str
)
def test_a_translation_has_the_tables_and_lists_of_the_page(page: Path) -> None:
    assert _list_shapes(TRANSLATIONS[page]) == _list_shapes(page)


@pytest.mark.parametrize("page", TRANSLATIONS, ids=lambda page: page.name)
def test_a_translation_shows_the_commands_and_settings_of_the_page(page: Path) -> None:
    assert _list_fences(TRANSLATIONS[page]) == _list_fences(page) != []


def _list_fences(page: Path) -> list[tuple[str, list[str]]]:
    """The language of each fenced block of a page, and its lines without what follows two blanks: comments."""
    fences = re.findall(r"^```(.*?)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [
        (info, [part for line in text.splitlines() if (part := re.split(r"(?<=\S)  +|#", line)[0].rstrip())])
        for info, text in fences
    ]


def _list_shapes(page: Path) -> list[tuple[str, int]]:
    """The tables and lists of a page, in order, with the number of their rows or entries."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    shapes: list[tuple[str, int]] = []
    for block in re.split(r"\n{2,}", text):
        rows = len(re.findall(r"^\|", block, re.MULTILINE))
        entries = len(re.findall(r"^(?:- |\d+\. )", block, re.MULTILINE))
        shapes += [(kind, count) for kind, count in (("table", rows), ("list", entries)) if count]
    return shapes


def _count_sections(page: Path) -> int:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return len(re.findall(r"^## ", text, re.MULTILINE))


def _strip(block: Block) -> tuple[str, bool, tuple[str, ...]]:
    """A block without its comments, which may be in another language."""
    text = block.text if block.commands else ast.unparse(ast.parse(block.text))
    return text, block.endless, block.printed


def test_everything_public_is_in_the_guide() -> None:
    import eruca

    text = GUIDE.read_text(encoding="utf-8")
    assert [name for name in eruca.__all__ if name not in text and name != "__version__"] == []


def test_every_attribute_of_what_is_public_is_in_a_guide() -> None:
    import eruca

    words = set(re.findall(r"\w+", "".join(page.read_text(encoding="utf-8") for page in GUIDE.parent.glob("*.md"))))
    kinds = [kind for name in eruca.__all__ if isinstance(kind := getattr(eruca, name), type)]
    names = {name for kind in kinds if not issubclass(kind, Exception) for name in dir(kind)} - {*dir(int)}
    assert {"ack", "send_soon", "cached_max"} <= names
    assert sorted(name for name in names - words if not name.startswith("_")) == []


# The tables of options: how a header names what has them, on both pages.
OPTION_TABLES: dict[str, tuple[Callable[..., object], ...]] = {
    "`ClientOptions`": (ClientOptions,),
    "`Producer`": (Producer,),
    "`send`": (Producer.send,),
    "`handler(": (Consumer.handler,),
    "`Consumer`": (Consumer,),
    "group": (Flow, Retry, Rebalance, Offsets),
}
_HEADER = re.compile(
    r"^\| (?:option of |argument of )?(`(?:ClientOptions|Producer|send|Consumer)`|`handler\(|group|组) ?"
)
# What every client has, and the arguments that are always passed.
_NOT_OPTIONS = {"self", "nameservers", "options", "topic", "body"}
_NUMBER = re.compile(r"\d[\d,.]*")


def read_option_tables(page: Path) -> dict[str, list[tuple[str, str]]]:
    """The options and what is said of their defaults, by table; `Flow.batch` where a table has several classes."""
    tables: dict[str, list[tuple[str, str]]] = {}
    name = owner = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if found := _HEADER.match(line):
            name, owner = found[1].replace("组", "group"), ""
        elif not line.startswith("|"):
            name = ""
        elif name and not line.startswith("| ---"):
            cells = [cell.strip(" |") for cell in line.split(" |")]
            if name == "group":
                owner = cells.pop(0).strip("`") or owner
            options = [f"{owner}.{word}".lstrip(".") for word in re.findall(r"`(\w+)`", cells[0])]
            # Defaults that need more words follow a semicolon; the table of `send` has none.
            said = "" if name == "`send`" else re.split("[;\uff1b]", cells[1])[0]
            each = re.split(", |、", said)
            tables.setdefault(name, []).extend(
                zip(options, each if len(each) == len(options) else [said] * len(options), strict=True)
            )
    return tables


def list_options(table: str) -> dict[str, object]:
    """The options that a table should have, with their defaults."""
    return {
        f"{function.__name__}.{name}" if table == "group" else name: each.default
        for function in OPTION_TABLES[table]
        for name, each in signature(function).parameters.items()
        if table == "`ClientOptions`" or name not in _NOT_OPTIONS
    }


def say_default(value: object) -> set[str]:
    """How a table may say a default; empty if it may say anything."""
    if isinstance(value, bool):
        return {"yes" if value else "no"}
    if isinstance(value, int | float):
        return {f"{value:g}", f"{value}", f"{value:,}", f"{value:g} s", f"{value / 60:g} min", f"{value / 2**20:g} MiB"}
    return {value, f"`{value}`"} if isinstance(value, str) and value else set()


@pytest.mark.parametrize("table", OPTION_TABLES)
def test_the_tables_of_options_have_every_option_and_its_default(table: str) -> None:
    rows = read_option_tables(GUIDE)[table]
    options = list_options(table)
    assert sorted(name for name, _ in rows) == sorted(options)
    wrong = [(name, said) for name, said in rows if said and said not in (say_default(options[name]) or {said})]
    assert wrong == []


@pytest.mark.parametrize("table", OPTION_TABLES)
def test_a_translated_table_has_the_same_options_and_numbers(table: str) -> None:
    def read(page: Path) -> list[tuple[str, list[str]]]:
        return [(name, _NUMBER.findall(said)) for name, said in read_option_tables(page)[table]]

    assert read(TRANSLATIONS[GUIDE]) == read(GUIDE)
