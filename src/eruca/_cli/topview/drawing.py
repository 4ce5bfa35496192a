"""The screen as lines of text: a head, a list or a detail, and the keys. It is never larger than the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from eruca._cli.output import format_bytes
from eruca._cli.topview.details import Detail, Section
from eruca._cli.topview.figures import show_count, show_rate, show_share, show_span
from eruca._cli.topview.sampling import Sample
from eruca._cli.topview.state import Tab, ViewState
from eruca._ground.printable import say_count, show_safely

if TYPE_CHECKING:
    from rich.text import Text

#: Lines of the head and of the foot; the rest is for the list.
HEAD_LINES = 3
FOOT_LINES = 1
# The list's own head.
_TITLE_LINES = 1
_GAP = 2
_NAME_MIN = 16
# Columns that a table keeps beside each other, even if they are cut.
_BESIDE_MIN = 2
_WARN, _BAD = "yellow", "bold red"
_DISK_WARN, _DISK_BAD = 0.75, 0.85
_LATE_S = 60.0

_HELP = """
  g t b  or Tab      groups, topics, brokers
  up down  j k       select a line; PgUp PgDn, Home, End (G)
  Enter              open it: queues, members, owners
  Esc                back; clear the filter
  s S  1 2 3 ...     sort by the next, the previous, the first column
  r                  reverse the order
  /                  show only names with a text
  p  or space        pause
  ? or h             this help
  q                  quit

  in/s     messages per second that arrive
  out/s    messages per second that are consumed; from a broker: fetched
  lag      messages not consumed yet
  wait     how long the next of them has been waiting
  growth   how the lag changes per second
  left     when a group will have caught up
"""


class Column(NamedTuple):
    """A column of a list; the first one takes the room that is left."""

    title: str
    width: int
    show: Callable[[Any], str]
    # Columns with a higher number are left out first where there is little room.
    rank: int = 0
    style: Callable[[Any], str] = lambda _line: ""


def _style_wait(line: Any) -> str:
    return _WARN if line.lag and (line.lag_seconds or 0) >= _LATE_S else ""


def _style_growth(line: Any) -> str:
    return _WARN if (line.growth or 0) > 1 else ""


def _style_disk(line: Any) -> str:
    disk = line.disk or 0
    return _BAD if disk >= _DISK_BAD else _WARN if disk >= _DISK_WARN else ""


def _style_role(line: Any) -> str:
    return "" if line.role in ("MASTER", "SLAVE", "JAVA") else _BAD


def _show_behind(line: Any) -> str:
    return "-" if line.behind_bytes is None or line.behind_bytes < 0 else format_bytes(line.behind_bytes)


COLUMNS: dict[Tab, tuple[Column, ...]] = {
    Tab.GROUPS: (
        Column("group", _NAME_MIN, lambda line: line.group),
        Column("lag", 9, lambda line: show_count(line.lag)),
        Column("wait", 6, lambda line: show_span(line.lag_seconds), 0, _style_wait),
        Column("growth", 7, lambda line: show_rate(line.growth, signed=True), 1, _style_growth),
        Column("in/s", 7, lambda line: show_rate(line.arriving_rate)),
        Column("out/s", 7, lambda line: show_rate(line.consumed_rate)),
        Column("left", 6, lambda line: show_span(line.seconds_left), 3),
        Column("members", 7, lambda line: show_count(line.members), 2),
        Column("topics", 6, lambda line: show_count(line.topics), 4),
        Column("queues", 6, lambda line: show_count(line.queues), 5),
    ),
    Tab.TOPICS: (
        Column("topic", _NAME_MIN, lambda line: line.topic),
        Column("in/s", 7, lambda line: show_rate(line.arriving_rate)),
        Column("out/s", 7, lambda line: show_rate(line.consumed_rate)),
        Column("lag", 9, lambda line: show_count(line.lag)),
        Column("groups", 6, lambda line: show_count(line.groups)),
        Column("queues", 6, lambda line: show_count(line.queues)),
    ),
    Tab.BROKERS: (
        Column("broker", _NAME_MIN, lambda line: f"{line.broker}:{line.broker_id}"),
        Column("role", 7, lambda line: line.role or "silent", 0, _style_role),
        Column("in/s", 7, lambda line: show_rate(line.stored_rate)),
        Column("out/s", 7, lambda line: show_rate(line.fetched_rate)),
        Column("disk", 5, lambda line: show_share(line.disk), 0, _style_disk),
        Column("behind", 9, _show_behind),
        Column("late", 6, lambda line: show_span(line.behind_seconds), 1),
        Column("log", 9, lambda line: "-" if line.log_bytes is None else format_bytes(line.log_bytes), 3),
        Column("version", 8, lambda line: line.version or "-", 4),
        Column("address", 21, lambda line: line.address, 2),
        Column("problem", 40, lambda line: line.problem, 5, lambda _line: _BAD),
    ),
}


# Between the facts about what was opened.
_BETWEEN_FACTS = "   "
# The last keys of the foot: help, and how to end.
_KEYS_MIN = 2


def count_room(height: int) -> int:
    """Return how many lines of a list fit on the screen."""
    return max(1, height - HEAD_LINES - FOOT_LINES - _TITLE_LINES)


def draw(
    sample: Sample | None, state: ViewState, detail: Detail | None, note: str, width: int, height: int
) -> list[Text]:
    """Return the lines of the screen."""
    from rich.text import Text

    lines = _draw_head(sample, state, note, width)
    room = max(1, height - len(lines) - FOOT_LINES)
    if state.shows_help:
        body = [Text(line) for line in _HELP.splitlines()]
    elif sample is None:
        body = []
    elif state.opened is not None:
        body = _draw_detail(detail, state, width, room)
    else:
        body = _draw_list(sample, state, width, room - _TITLE_LINES)
    lines += body[:room]
    lines += [Text("")] * (height - FOOT_LINES - len(lines))
    lines = [*lines[: height - FOOT_LINES], _draw_foot(state, width)]
    for line in lines:
        line.truncate(width)
    return lines


def _draw_head(sample: Sample | None, state: ViewState, note: str, width: int) -> list[Text]:
    from rich.text import Text

    if sample is None:
        return [Text(note or "connecting"), Text(""), Text("")]
    silent = sum(not line.role for line in sample.brokers)
    brokers = say_count(len(sample.brokers), "broker") + (f", {silent} silent" if silent else "")
    others = f"{say_count(len(sample.groups), 'group')}, {say_count(len(sample.topics), 'topic')}"
    first = Text(f"{sample.at.astimezone():%H:%M:%S}  {brokers}, {others}")
    if state.paused:
        first.append("  PAUSED", style=_WARN)
    rates = f"in {show_rate(sample.stored_rate)}/s   out {show_rate(sample.fetched_rate)}/s"
    second = Text(f"{rates}   lag {show_count(sample.lag)}")
    if state.opened is None:
        second.append(f"   sorted by {state.sort_name}{' reversed' if state.reverse else ''}")
        second.append(f", only {show_safely(repr(state.filter))}" if state.filter else "")
    third = Text("")
    problems = [note, *sample.problems] if note else sample.problems
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        third = Text(show_safely(_cut(problems[0], width - len(more))) + more, style=_BAD)
    return [first, second, third]


def _draw_foot(state: ViewState, width: int) -> Text:
    from rich.text import Text

    if state.is_typing:
        return Text(f"/{state.filter}_   Enter: keep, Esc: clear".ljust(width), style="reverse")
    own = ["Esc back"] if state.opened is not None else ["Enter open", "s sort", "/ filter"]
    words = ["g groups", "t topics", "b brokers", *own, "? help", "q quit"]
    # On a narrow screen, those that lead to the others remain.
    while len("  ".join(words)) > width and len(words) > _KEYS_MIN:
        words.pop(len(words) - _KEYS_MIN - 1)
    return Text("  ".join(words).ljust(width), style="reverse")


# --- lists ------------------------------------------------------------------------------------------------------------


def choose_columns(tab: Tab, width: int) -> tuple[Column, ...]:
    """Return the columns that fit in a width."""
    columns = list(COLUMNS[tab])
    while len(columns) > 1 and sum(column.width + _GAP for column in columns) - _GAP > width:
        last = max(column.rank for column in columns)
        columns.remove(next(column for column in reversed(columns) if column.rank == last))
    return tuple(columns)


def _draw_list(sample: Sample, state: ViewState, width: int, room: int) -> list[Text]:
    from rich.text import Text

    lines = state.list_lines(sample)
    state.scroll(len(lines), max(1, room))
    columns = choose_columns(state.tab, width)
    name_width = width - sum(column.width + _GAP for column in columns[1:])
    head = Text("", style="bold")
    for number, column in enumerate(columns):
        marked = column.title + ("*" if column.title == state.sort_name else "")
        head.append(_place(marked, number, column, name_width))
    drawn = [head]
    for place, line in enumerate(lines[state.top : state.top + max(1, room)], state.top):
        text = Text("", style="reverse" if place == state.selected else "")
        for number, column in enumerate(columns):
            text.append(_place(show_safely(column.show(line)), number, column, name_width), style=column.style(line))
        drawn.append(text)
    if not lines:
        drawn.append(Text(f"no {state.tab.value}" + (f" with {state.filter!r} in their name" if state.filter else "")))
    return drawn


def _place(text: str, number: int, column: Column, name_width: int) -> str:
    if number == 0:
        return _cut(text, name_width).ljust(name_width)
    return " " * _GAP + _cut(text, column.width).rjust(column.width)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "~"


# --- details ----------------------------------------------------------------------------------------------------------


def _draw_detail(detail: Detail | None, state: ViewState, width: int, room: int) -> list[Text]:
    from rich.text import Text

    if detail is None:
        return [Text("looking")]
    lines = [Text(show_safely(detail.name), style="bold"), *_wrap_facts(detail.facts, width)]
    lines += [Text(show_safely(problem), style=_BAD) for problem in detail.problems]
    for section in detail.sections:
        lines += [Text(""), *_draw_section(section, width)]
    state.top = max(0, min(state.top, len(lines) - room))
    return lines[state.top : state.top + room]


def _wrap_facts(facts: Sequence[str], width: int) -> list[Text]:
    """Return the facts in as many lines as they need; none is cut in two."""
    from rich.text import Text

    lines: list[str] = []
    for fact in map(show_safely, facts):
        if lines and len(lines[-1]) + len(_BETWEEN_FACTS) + len(fact) <= width:
            lines[-1] += _BETWEEN_FACTS + fact
        else:
            lines.append(fact)
    return [Text(line) for line in lines]


def _draw_section(section: Section, width: int) -> list[Text]:
    from rich.text import Text

    titles = [column.removeprefix(">") for column in section.columns]
    rows = [[show_safely(cell) for cell in row] for row in section.rows]
    widths = [max(len(cell) for cell in cells) for cells in zip(titles, *rows, strict=True)]
    # What does not fit is below its row: texts at the end of it, first the last one.
    texts = [not column.startswith(">") for column in section.columns]
    count = len(widths)
    while _sum_widths(widths[:count]) > width and count > _BESIDE_MIN and texts[count - 1]:
        count -= 1
    shown = widths[:count]
    # If that is not enough, the widest column is cut.
    while _sum_widths(shown) > width and max(shown) > _NAME_MIN:
        shown[shown.index(max(shown))] -= 1
    lines = [Text(f"{section.title} ({len(rows)})", style="bold")]
    if rows:
        lines.append(Text(_join(titles[:count], section.columns, shown), style="dim"))
    for row in rows:
        lines.append(Text(_join(row[:count], section.columns, shown)))
        below = zip(titles[count:], row[count:], strict=True)
        lines += [Text(f"  {title} {cell}", style="dim") for title, cell in below if cell]
    return lines


def _sum_widths(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _join(cells: Sequence[str], columns: Sequence[str], widths: Sequence[int]) -> str:
    placed = [
        _cut(cell, width).rjust(width) if column.startswith(">") else _cut(cell, width).ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=False)
    ]
    return (" " * _GAP).join(placed).rstrip()
