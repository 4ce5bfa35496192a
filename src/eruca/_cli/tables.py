"""Tables for people: aligned, whole ids that can be copied, and rows that fit the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eruca._ground.printable import show_safely

# rich is imported where it is used: commands that print plain lines or JSON start faster without it.
if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

# Spaces between columns: the second where the first makes a table too wide.
_GAPS = (3, 2)
# A column with blanks in a cell wider than this is prose, which is wrapped. A time with its date is narrower.
_PROSE = 30
# Prose is wrapped to this width, or wider; its words are not cut.
_PROSE_MIN = 24
# A column stays beside the others if this share of its cells fits; the other cells are below their rows.
_USUAL = 0.6
_INDENT = "  "


def make_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], title: str = "") -> Table:
    """Return a table; a column whose name starts with `>` is aligned to the right.

    Columns without any value are left out.
    """
    from rich.text import Text

    cells = [[cell if isinstance(cell, Text) else Text(show_safely(cell, keep="\n")) for cell in row] for row in rows]
    kept = [number for number in range(len(columns)) if not number or not cells or any(row[number] for row in cells)]
    return Table(
        [Column(columns[number], [row[number] for row in cells]) for number in kept],
        len(cells),
        title,
    )


class Column:
    """A column with all its cells."""

    def __init__(self, name: str, cells: Sequence[Text]) -> None:
        self.name = name.removeprefix(">")
        self.is_number = name.startswith(">")
        self.cells = cells
        self.natural = max([_measure(cell) for cell in cells], default=0)
        self.header = len(self.name)
        self.is_prose = any(" " in cell.plain and cell.cell_len > _PROSE for cell in cells)

    def find_width(self, *, wraps_header: bool) -> int:
        """Return the width without wrapping cells."""
        return max(self.natural, _find_longest_word(self.name) if wraps_header else self.header)

    @property
    def width_min(self) -> int:
        """The width below which the column is not wrapped."""
        whole = self.find_width(wraps_header=True)
        if not self.is_prose:
            return whole
        words = max(_find_longest_word(cell.plain) for cell in self.cells)
        return min(whole, max(_PROSE_MIN, _find_longest_word(self.name), words))

    def find_usual_width(self, room: int) -> int:
        """Return a width in which most cells fit, which is at most `room`; 0: there is none."""
        widths = [width for width in map(_measure, self.cells) if width]
        fitting = [width for width in widths if width <= room]
        least = _find_longest_word(self.name)
        if room < least or len(fitting) < _USUAL * len(widths):
            return 0
        return max([least, *fitting])


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the columns of a table are."""

    # The columns that are beside each other, with their widths, and the gap between them.
    widths: dict[int, int]
    gap: int
    # Columns whose values are below their row: all of them, or those that are wider than the column.
    below: frozenset[int]
    overflowing: frozenset[int]


class Table:
    """Rows in columns. What does not fit beside the other columns is below its row, on lines of its own."""

    def __init__(self, columns: Sequence[Column], count: int, title: str) -> None:
        self._columns = columns
        self._count = count
        self._title = title

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it for the width of a console."""
        from rich.text import Text

        room = options.max_width
        layout = lay_out(self._columns, room)
        if self._title:
            yield Text(self._title, style="italic")
        beside = [(self._columns[number], width) for number, width in layout.widths.items()]
        yield from _draw_row(console, [Text(column.name, style="bold") for column, _ in beside], beside, layout.gap)
        yield Text("\u2500" * min(room, sum(layout.widths.values()) + layout.gap * (len(beside) - 1)))
        for number in range(self._count):
            below = [each for each in sorted(layout.below | layout.overflowing) if self._is_below(each, number, layout)]
            cells = [Text() if each in below else self._columns[each].cells[number] for each in layout.widths]
            yield from _draw_row(console, cells, beside, layout.gap)
            yield from _draw_below(console, [(self._columns[each], number) for each in below], room)

    def _is_below(self, column: int, number: int, layout: Layout) -> bool:
        cell = self._columns[column].cells[number]
        return bool(cell) and (column in layout.below or _measure(cell) > layout.widths[column])


class Indented:
    """Text whose lines are indented, also those that are wrapped."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it for the width of a console."""
        yield from _indent(console, self._text, options.max_width)


def lay_out(columns: Sequence[Column], room: int) -> Layout:
    """Choose which columns are beside each other, and how wide they are."""
    beside, below, overflowing = list(range(len(columns))), set[int](), dict[int, int]()
    while True:
        for gap in _GAPS:
            left = room - gap * (len(beside) - 1)
            for wraps_header in (False, True):
                widths = {number: columns[number].find_width(wraps_header=wraps_header) for number in beside}
                widths |= overflowing
                if sum(widths.values()) <= left:
                    return Layout(widths, gap, frozenset(below), frozenset(overflowing))
        least = {number: columns[number].width_min for number in beside} | overflowing
        if sum(least.values()) <= left:
            return Layout(_share(least, widths, left), gap, frozenset(below), frozenset(overflowing))
        movable = [number for number in beside[1:] if columns[number].name]
        if not movable:
            return Layout(_squeeze(widths, left), gap, frozenset(below), frozenset(overflowing))
        widest = max(movable, key=lambda number: -1 if number in overflowing else columns[number].natural)
        others = sum(width for number, width in least.items() if number != widest)
        width = 0 if widest in overflowing else columns[widest].find_usual_width(left - others)
        if width:
            overflowing[widest] = width
        else:
            overflowing.pop(widest, None)
            beside.remove(widest)
            below.add(widest)


def _share(least: dict[int, int], wanted: dict[int, int], left: int) -> dict[int, int]:
    """Return widths that use all the room: the narrowest columns get what they want, the widest what remains."""
    widths = dict(least)
    spare = left - sum(least.values())
    missing = sorted((number for number in least if wanted[number] > least[number]), key=lambda number: wanted[number])
    for place, number in enumerate(missing):
        share = min(spare // (len(missing) - place), wanted[number] - least[number])
        widths[number] += share
        spare -= share
    return widths


def _squeeze(widths: dict[int, int], left: int) -> dict[int, int]:
    """Return widths that fit, for columns that cannot be elsewhere: the widest ones are folded."""
    squeezed = dict(widths)
    while sum(squeezed.values()) > left:
        widest = max(squeezed, key=lambda number: squeezed[number])
        if squeezed[widest] == 1:
            break
        squeezed[widest] -= 1
    return squeezed


def _draw_row(
    console: Console, cells: Sequence[Text], columns: Sequence[tuple[Column, int]], gap: int
) -> Iterator[Text]:
    from rich.text import Text

    wrapped = [_wrap(console, cell, width) for cell, (_, width) in zip(cells, columns, strict=True)]
    for line in range(max(map(len, wrapped))):
        drawn = Text()
        for place, (lines, (column, width)) in enumerate(zip(wrapped, columns, strict=True)):
            text = lines[line].copy() if line < len(lines) else Text()
            pad = " " * (width - text.cell_len)
            drawn.append(" " * gap if place else "")
            drawn.append_text(Text(pad) + text if column.is_number else text + pad)
        drawn.rstrip()
        yield drawn


def _draw_below(console: Console, columns: Sequence[tuple[Column, int]], room: int) -> Iterator[Text]:
    """Yield the values that are not beside the others, each with its name, as many as fit in a line."""
    from rich.text import Text

    waiting = Text()
    for column, number in columns:
        cell = column.cells[number]
        if not cell:
            continue
        named = Text(f"{column.name} ", style="dim") + cell
        if waiting and waiting.cell_len + _GAPS[0] + named.cell_len <= room - len(_INDENT) and "\n" not in cell.plain:
            waiting.append(" " * _GAPS[0])
            waiting.append_text(named)
            continue
        yield from _indent(console, waiting, room)
        waiting = named
    yield from _indent(console, waiting, room)


def _indent(console: Console, text: Text, room: int) -> Iterator[Text]:
    from rich.text import Text

    for line in _wrap(console, text, max(1, room - len(_INDENT))) if text else ():
        yield Text(_INDENT) + line


def _wrap(console: Console, text: Text, width: int) -> Sequence[Text]:
    """Return the lines of a cell, wrapped between words where that is possible."""
    if not text:
        return [text]
    lines = list(text.wrap(console, width, overflow="fold"))
    for line in lines:
        line.rstrip()
    return lines


def _measure(cell: Text) -> int:
    return max((line.cell_len for line in cell.split("\n")), default=0)


def _find_longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)
