"""Follows a list of things to do in a browser literally: opens, types, presses, follows links, and looks.

Each sentence of the list is one thing to do. One after a colon is for people, and a sentence that nobody understands is
an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from playwright.sync_api import Page, expect, sync_playwright

from tests.console.browsing import launch

_ITEM: Final = re.compile(r"^\d+\. ", re.MULTILINE)
_SENTENCE: Final = re.compile(r"[^.:<`*]*(?:(?:<[^>]+>|`[^`]*`|\*\*[^*]+\*\*)[^.:<`*]*)+[.:]")
_ONE_TIME: Final = re.compile(r"password, once: (\S+)")


@dataclass(frozen=True)
class Browsed:
    """What a person who follows the list can see beside the browser."""

    terminal: Callable[[], str]

    def read_password(self) -> str:
        """The one-time password that the terminal shows."""
        found = _ONE_TIME.search(self.terminal())
        assert found, self.terminal()
        return found[1]


def read_sentences(text: str) -> Iterator[str]:
    """The things to do of a list, in order."""
    for item in _ITEM.split(text)[1:]:
        said = " ".join(item.split())
        found = _SENTENCE.findall(said)
        assert found, f"nothing to do in: {said}"
        for sentence in found:
            yield sentence.strip(" .:,")
            if sentence.endswith(":"):
                break


def browse(text: str, beside: Browsed) -> None:
    """Do everything in a list, in a browser that has never been there."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_context(locale="en", viewport={"width": 1440, "height": 900}).new_page()
        for sentence in read_sentences(text):
            _do(page, sentence, beside)
        browser.close()


def _do(page: Page, sentence: str, beside: Browsed) -> None:
    if match := re.fullmatch(r"Open <(.+)>", sentence):
        page.goto(match[1])
    elif match := re.fullmatch(r"Type `(.+)` into \*\*(.+)\*\*", sentence):
        page.get_by_label(match[2], exact=True).fill(match[1])
    elif match := re.fullmatch(r"Copy .*password.* into \*\*(.+)\*\*", sentence):
        page.get_by_label(match[1], exact=True).fill(beside.read_password())
    elif match := re.fullmatch(r"Press \*\*(.+)\*\*", sentence):
        page.get_by_role("button", name=match[1], exact=True).click()
    elif match := re.fullmatch(r"Follow \*\*(.+)\*\*", sentence):
        page.get_by_role("link", name=match[1], exact=True).first.click()
    elif match := re.match(r"You see `(.+?)`", sentence):
        expect(page.get_by_text(match[1]).first).to_be_visible()
    else:
        raise AssertionError(f"nobody knows how to do: {sentence}")
