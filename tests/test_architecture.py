"""The page about the architecture: the names of functions on it exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

_PAGE = Path(__file__).parents[1] / "docs" / "ARCHITECTURE.md"
# A room without its underscore, modules of it, and at the end a class with a method, a class or a function.
_NAME = re.compile(r"`((?:broker|core|ground|net|nameserver|client|spark|store|storetools|wire)(?:\.\w+)+)`")


def _list_names(heading: str, end: str) -> list[str]:
    text = _PAGE.read_text()
    part = text[text.index(heading) : text.index(end) if end else len(text)]
    return sorted({found for found in _NAME.findall(part)})


NAMES = _list_names("## The map of the server rooms", "## The clients")
# From here on a section about a room leaves out its name: `store.digests` of the room `spark` is `spark.store.digests`.
LATER_NAMES = [name for name in _list_names("## The clients", "") if not name.endswith(".conf")]


def _list_modules_at_the_top() -> list[str]:
    """The modules that the section about Spark lists at the top of the room."""
    text = _PAGE.read_text()
    row = re.search(r"^\| at the top \| (.*) \|$", text[text.index("## Spark\n") :], re.MULTILINE)
    assert row is not None
    return [name for name in re.findall(r"`(\w+)`", row[1]) if name != "format"]


def _exists(name: str) -> bool:
    parts = ["eruca", *f"_{name}".split(".")]
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[count:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


def test_the_ways_through_the_rooms_name_functions() -> None:
    assert len(NAMES) >= 30
    assert len([name for name in NAMES if name.startswith("store.")]) >= 12


@pytest.mark.parametrize("name", NAMES)
def test_a_name_on_the_page_exists(name: str) -> None:
    assert _exists(name), f"{name} is on the page and not in the code"


@pytest.mark.parametrize("name", LATER_NAMES)
def test_a_name_in_a_later_section_exists(name: str) -> None:
    assert _exists(name) or _exists(f"spark.{name}"), f"{name} is on the page and not in the code"


@pytest.mark.parametrize("name", _list_modules_at_the_top())
def test_a_module_of_spark_exists(name: str) -> None:
    assert _exists(f"spark.{name}"), f"{name} is on the page and not in the code"


def test_the_rows_of_a_batch_are_those_of_the_code() -> None:
    from eruca._spark.parsing import BATCH_ROWS

    assert f"{BATCH_ROWS:,} rows per batch" in _PAGE.read_text()
    assert len(LATER_NAMES) >= 25 and len(_list_modules_at_the_top()) >= 10


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert not _exists("store.messagestore.MessageStore.appendix")
    assert not _exists("store.nowhere")
