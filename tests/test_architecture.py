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
    part = text[text.index(heading) : text.index(end)]
    return sorted({found for found in _NAME.findall(part)})


NAMES = _list_names("## The map of the server rooms", "## The clients")


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


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert not _exists("store.messagestore.MessageStore.appendix")
    assert not _exists("store.nowhere")
