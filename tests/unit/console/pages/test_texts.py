"""Texts: every language has the same keys with the same values, and every key that a page names exists."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from eruca._console.groups.diagnosis import Sentence
from eruca._console.groups.writing import write_sentence
from eruca._console.pages.texts import LANGUAGES, Texts, choose_language, load_texts, texts_of
from eruca._console.pages.visit import Visit

ROOM = Path(__file__).parents[4] / "src" / "eruca" / "_console"
_NAMES = re.compile(r"\{(\w+)\}")
_IN_TEMPLATE = re.compile(r"""\bt\("([\w.-]+)"(\s*[,)])""")
_IN_CODE = re.compile(r"""\btext\(\s*"([\w.-]+)"(\s*[,)])""")


@pytest.mark.parametrize("language", [name for name in LANGUAGES if name != "en"])
def test_languages_have_the_same_keys_and_values(language: str) -> None:
    english, other = load_texts("en"), load_texts(language)
    assert english.keys() == other.keys()
    differing = [key for key in english if set(_NAMES.findall(english[key])) < set(_NAMES.findall(other[key]))]
    assert differing == []
    assert all(text.strip() for text in other.values())


def test_every_key_that_a_page_names_exists() -> None:
    texts = load_texts("en")
    files = [(path, _IN_TEMPLATE) for path in ROOM.glob("templates/**/*.html")]
    files += [(path, _IN_CODE) for path in ROOM.rglob("*.py")]
    named = [(path.name, key) for path, pattern in files for key, _ in pattern.findall(path.read_text())]
    assert len(named) > 100
    missing = [each for each in named if each[1] not in texts and f"{each[1]}.other" not in texts]
    assert missing == []


@pytest.mark.parametrize(
    ("header", "wanted", "language"),
    [
        ("", "", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "", "zh"),
        ("fr,en;q=0.5,zh;q=0.7", "", "zh"),
        ("fr", "", "en"),
        ("zh;q=0", "", "en"),
        ("zh;q=x,en;q=0.1", "", "en"),
        ("zh", "en", "en"),
        ("zh", "../../etc", "zh"),
    ],
)
def test_the_language_is_that_of_the_cookie_or_of_the_browser(header: str, wanted: str, language: str) -> None:
    assert choose_language(header, wanted) == language


def test_a_text_may_depend_on_a_number() -> None:
    texts = Texts("en")
    assert texts("app.problems.more", count=1) == "and one more problem"
    assert texts("app.problems.more", count=4) == "and 4 more problems"
    with pytest.raises(KeyError, match="no text"):
        texts("app.no_such_key")


def test_a_diagnosis_counts_one_and_several() -> None:
    texts = texts_of("en")
    visit = cast(Visit, SimpleNamespace(texts=texts, text=texts))
    said = {
        key: [str(write_sentence(visit, Sentence(key=key, values={"count": count})).striptags()) for count in (1, 2)]
        for key in ("dead_letters", "retries", "tries", "well")
    }
    assert said["dead_letters"] == ["The group has 1 dead letter.", "The group has 2 dead letters."]
    assert said["retries"][0] == "1 message waits to be tried again."
    assert "1 time " in said["tries"][0] and "2 times " in said["tries"][1]
    assert said["well"][0] == said["well"][1]
