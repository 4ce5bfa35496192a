"""What is shown, and what keys do to it; no terminal is needed to decide that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from eruca._cli.topview.sampling import Sample


class Tab(StrEnum):
    """The lists, in the order of the tab key."""

    GROUPS = "groups"
    TOPICS = "topics"
    BROKERS = "brokers"


class Key(StrEnum):
    """Keys that are not a character."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    BACK = "back"
    ESCAPE = "escape"
    TAB = "tab"
    LEFT = "left"
    RIGHT = "right"


#: The columns that a list can be sorted by: title and value; the first is the default. Names are sorted upwards.
SORTS: dict[Tab, tuple[tuple[str, Callable[[Any], Any]], ...]] = {
    Tab.GROUPS: (
        ("lag", lambda line: line.lag),
        ("wait", lambda line: line.lag_seconds or 0.0),
        ("growth", lambda line: line.growth or 0.0),
        ("out/s", lambda line: line.consumed_rate or 0.0),
        ("in/s", lambda line: line.arriving_rate or 0.0),
        ("name", lambda line: line.group),
    ),
    Tab.TOPICS: (
        ("in/s", lambda line: line.arriving_rate or 0.0),
        ("out/s", lambda line: line.consumed_rate or 0.0),
        ("lag", lambda line: line.lag),
        ("queues", lambda line: line.queues),
        ("name", lambda line: line.topic),
    ),
    Tab.BROKERS: (
        ("name", lambda line: (line.cluster, line.broker, line.broker_id)),
        ("in/s", lambda line: line.stored_rate or 0.0),
        ("out/s", lambda line: line.fetched_rate or 0.0),
        ("disk", lambda line: line.disk or 0.0),
        ("behind", lambda line: line.behind_bytes or 0),
    ),
}
_BY_NAME = "name"
_TABS = list(Tab)
_TAB_KEYS = {"g": Tab.GROUPS, "t": Tab.TOPICS, "b": Tab.BROKERS}
_DIGITS = "123456789"


def name_line(line: Any) -> str:
    """Return the name by which a line is selected and opened: of a group or topic, or the address of a broker."""
    for attribute in ("group", "topic"):
        if hasattr(line, attribute):
            return str(getattr(line, attribute))
    return str(line.address)


@dataclass(slots=True)
class ViewState:
    """What is shown: a list or what was opened from it, sorted, filtered, scrolled, perhaps paused."""

    tab: Tab = Tab.GROUPS
    sorts: dict[Tab, int] = field(default_factory=lambda: dict.fromkeys(Tab, 0))
    reverse: bool = False
    selected: int = 0
    # The first line that is shown.
    top: int = 0
    # The line that is looked at in detail: its list and its name.
    opened: tuple[Tab, str] | None = None
    paused: bool = False
    shows_help: bool = False
    # Only names with this text; while `is_typing`, keys change it.
    filter: str = ""
    is_typing: bool = False
    is_over: bool = False

    # -- what is shown -----------------------------------------------------------------------------------------------

    @property
    def sort_name(self) -> str:
        """The title of the column that the list is sorted by."""
        return SORTS[self.tab][self.sorts[self.tab]][0]

    def list_lines(self, sample: Sample) -> list[Any]:
        """Return the lines of the present list, filtered and sorted."""
        lines: Sequence[Any] = getattr(sample, self.tab.value)
        title, value = SORTS[self.tab][self.sorts[self.tab]]
        wanted = self.filter.lower()
        chosen = [line for line in lines if wanted in name_line(line).lower()]
        # By name upwards, by numbers downwards; among equal ones by name.
        chosen.sort(key=name_line)
        return sorted(chosen, key=value, reverse=(title != _BY_NAME) ^ self.reverse)

    def scroll(self, count: int, room: int) -> None:
        """Keep the selected line within the lines that are shown."""
        self.selected = max(0, min(self.selected, count - 1))
        self.top = max(0, min(self.top, self.selected, count - 1))
        if self.selected >= self.top + room:
            self.top = self.selected - room + 1

    # -- keys --------------------------------------------------------------------------------------------------------

    def press(self, key: str, sample: Sample | None, room: int) -> None:
        """Apply a key: a character or one of `Key`. `room` is how many lines a page has."""
        if self.is_typing:
            self._type(key)
        elif self.shows_help:
            self.shows_help = False
            self.is_over = key == "q"
        elif key in ("q", "Q"):
            self.is_over = True
        elif key in ("?", "h"):
            self.shows_help = True
        elif key in ("p", " "):
            self.paused = not self.paused
        elif key in (Key.ESCAPE, Key.BACK, Key.LEFT):
            self._go_back()
        elif not self._move(key, room):
            self._choose(key, sample)

    def _type(self, key: str) -> None:
        if key in (Key.ENTER, Key.ESCAPE):
            self.is_typing = False
            if key == Key.ESCAPE:
                self.filter = ""
        elif key == Key.BACK:
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter += key
        self.selected = self.top = 0

    def _go_back(self) -> None:
        if self.opened is not None:
            self.opened = None
        else:
            self.filter = ""

    def _move(self, key: str, room: int) -> bool:
        steps = {Key.UP: -1, "k": -1, Key.DOWN: 1, "j": 1, Key.PAGE_UP: -room, Key.PAGE_DOWN: room}
        steps |= {Key.HOME: -self.selected, "G": 10**9, Key.END: 10**9}
        if key not in steps:
            return False
        if self.opened is not None:
            self.top = max(0, self.top + steps[key])
        else:
            self.selected = max(0, self.selected + steps[key])
        return True

    def _choose(self, key: str, sample: Sample | None) -> None:
        if key in (Key.ENTER, Key.RIGHT) and self.opened is None and sample is not None:
            lines = self.list_lines(sample)
            if self.selected < len(lines):
                self.opened = (self.tab, name_line(lines[self.selected]))
                self.top = 0
        elif key in _TAB_KEYS or key == Key.TAB:
            self._show(_TAB_KEYS.get(key) or _TABS[(_TABS.index(self.tab) + 1) % len(_TABS)])
        elif key in ("s", "S"):
            step = 1 if key == "s" else -1
            self.sorts[self.tab] = (self.sorts[self.tab] + step) % len(SORTS[self.tab])
        elif key in _DIGITS and int(key) <= len(SORTS[self.tab]):
            self.sorts[self.tab] = int(key) - 1
        elif key == "r":
            self.reverse = not self.reverse
        elif key == "/":
            self.is_typing, self.opened = True, None

    def _show(self, tab: Tab) -> None:
        self.tab, self.opened, self.selected, self.top, self.reverse = tab, None, 0, 0, False
        self.filter = ""
