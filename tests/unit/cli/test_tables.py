"""Tables: aligned, whole ids, no line longer than the terminal, and no value lost."""

from __future__ import annotations

import io
import random

import pytest
from rich.console import Console

from eruca._cli.tables import make_table

ID = "7F000001000026A20000000000000000"
MESSAGES = ["stored", "message id", "keys", ">tries"]
TIME = "2026-11-15 07:21:06.123"


def draw(columns: list[str], rows: list[list[str]], width: int, title: str = "") -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width).print(make_table(columns, rows, title))
    return file.getvalue().splitlines()


def test_columns_are_aligned_and_lines_end_with_their_text() -> None:
    assert draw(["name", ">lag", "owner"], [["orders", "7", "a"], ["x", "1024", ""]], 80, "lag of billing") == [
        "lag of billing",
        "name      lag   owner",
        "\u2500" * 21,
        "orders      7   a",
        "x        1024",
    ]


def test_columns_are_closer_where_that_is_enough() -> None:
    wide = draw(["name", "owner"], [["orders", "a" * 20]], 29)
    assert wide[-1] == "orders   " + "a" * 20
    assert draw(["name", "owner"], [["orders", "a" * 20]], 28)[-1] == "orders  " + "a" * 20


def test_a_column_without_values_is_left_out() -> None:
    assert draw(["broker", "problem"], [["a", ""], ["b", ""]], 80) == ["broker", "\u2500" * 6, "a", "b"]
    assert draw(["broker", "problem"], [], 80)[0] == "broker   problem"


def test_headers_are_wrapped_before_values() -> None:
    lines = draw([">in yesterday", ">out yesterday"], [["1", "2"]], 20)
    assert [line.split() for line in lines[:2]] == [["in", "out"], ["yesterday", "yesterday"]]


def test_an_id_that_does_not_fit_is_below_its_row() -> None:
    rows = [[TIME, ID, "order-7 customer-3 and more", "0"], [TIME, "short", "order-8", "12"]]
    assert draw(MESSAGES, rows, 64) == [
        "stored                    keys                          tries",
        "\u2500" * 61,
        f"{TIME}   order-7 customer-3 and more       0",
        f"  message id {ID}",
        f"{TIME}   order-8                          12",
        "  message id short",
    ]


def test_a_single_long_value_is_below_its_row_and_the_others_stay() -> None:
    rows = [
        ["listenPort", "9876", "yes"],
        ["aclFile", "/a/long/path/to/the/plain_acl.yml", "no"],
        ["host", "::1", "no"],
    ]
    assert draw(["key", "value", "fixed"], rows, 36) == [
        "key          value   fixed",
        "\u2500" * 26,
        "listenPort   9876    yes",
        "aclFile              no",
        "  value",
        "  /a/long/path/to/the/plain_acl.yml",
        "host         ::1     no",
    ]


def test_prose_is_wrapped_beside_the_others() -> None:
    lines = draw(["key", "meaning"], [["flushDiskType", "acknowledge at once, or after a sync to the disk"]], 44)
    assert lines[2:] == [
        "flushDiskType  acknowledge at once, or after",
        "               a sync to the disk",
    ]


def test_a_single_value_that_is_too_long_is_folded() -> None:
    lines = draw(["body", ""], [["text", "x" * 100]], 40)
    assert "".join("".join(lines[2:]).split()) == "text" + "x" * 100 and max(map(len, lines)) <= 40


def test_control_characters_are_visible() -> None:
    assert "\\x1b[2J" in draw(["a"], [["\x1b[2J"]], 80)[-1]


def test_lines_of_a_cell_are_kept() -> None:
    assert draw(["a", "b"], [["x", "one\ntwo"]], 80)[2:] == ["x   one", "    two"]


@pytest.mark.parametrize("seed", range(200))
def test_nothing_is_lost_and_nothing_is_too_wide(seed: int) -> None:
    """Whatever the table and the terminal: every value is there, whole unless it is longer than a line."""
    dice = random.Random(seed)
    count, width = dice.randint(1, 12), dice.randint(20, 160)
    columns = [dice.choice(["", ">"]) + f"name{number}" for number in range(count)]
    rows = [[_make_cell(dice) for _ in columns] for _ in range(dice.randint(0, 6))]
    lines = draw(columns, rows, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    squeezed = "".join(text.split())
    for row in rows:
        for word in " ".join(row).split():
            assert word in (text if len(word) <= width - 2 else squeezed), text


def _make_cell(dice: random.Random) -> str:
    words = [f"w{dice.randrange(16 ** dice.randint(1, 40)):x}" for _ in range(dice.choice([0, 1, 1, 1, 2, 8]))]
    return " ".join(words)
