"""Texts in the languages of the console: `locale/<language>/<page>.json`, keys such as `topics.title`.

A value may have `{names}`. For a text that depends on a number there are two keys, `topics.count.one` and
`topics.count.other`, and the caller asks for `topics.count` with `count=`.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Final

#: The languages, by the tag that browsers send; the first is used when none fits.
LANGUAGES: Final = {"en": "English", "zh": "中文"}
_DEFAULT: Final = "en"
_HEADER_CHARS_MAX = 1000


class Texts:
    """The texts of one language."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._texts = load_texts(language)

    def __call__(self, key: str, /, **values: object) -> str:
        """Return a text. Raises KeyError for a key that does not exist."""
        text = self._texts.get(key)
        if text is None and "count" in values:
            text = self._texts.get(f"{key}.{'one' if values['count'] == 1 else 'other'}")
        if text is None:
            raise KeyError(f"no text {key!r} in {self.language}")
        return text.format(**values) if values else text

    def has(self, key: str) -> bool:
        """Return whether there is a text with this key."""
        return key in self._texts


@cache
def load_texts(language: str) -> dict[str, str]:
    """Return the texts of a language; one file for each folder of pages."""
    found: dict[str, str] = {}
    folder = files("eruca._console").joinpath("locale", language)
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".json"):
            texts = json.loads(file.read_text("utf-8"))
            double = found.keys() & texts.keys()
            assert not double, (file.name, double)
            found.update(texts)
    return found


@cache
def texts_of(language: str) -> Texts:
    """Return the texts of a language."""
    return Texts(language)


def choose_language(header: str, wanted: str = "") -> str:
    """Return the language to use: the wanted one (of a cookie), or the first of Accept-Language that there is."""
    if wanted in LANGUAGES:
        return wanted
    ranked: list[tuple[float, int, str]] = []
    for place, part in enumerate(header[:_HEADER_CHARS_MAX].split(",")):
        tag, _, quality = part.strip().partition(";q=")
        try:
            weight = float(quality) if quality else 1.0
        except ValueError:
            continue
        language = tag.strip().partition("-")[0].lower()
        if language in LANGUAGES and weight > 0:
            ranked.append((-weight, place, language))
    return min(ranked)[2] if ranked else _DEFAULT
