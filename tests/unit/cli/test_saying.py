"""Notes on stderr: whole for programs, wrapped between words for people, with commands that can be copied."""

from __future__ import annotations

import io

import pytest

from eruca._cli.saying import format_note, say

NOTE = "members differ in their subscriptions to orders; `eruca group differences mixed` shows how"


def test_a_note_for_programs_is_one_line() -> None:
    file = io.StringIO()
    say(NOTE * 5, file)
    assert file.getvalue() == f"eruca: {NOTE * 5}\n"


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_a_note_for_people_is_wrapped_and_its_command_is_whole(width: int) -> None:
    lines = format_note(NOTE, width).splitlines()
    assert max(map(len, lines)) <= width and " ".join(line.strip() for line in lines) == f"eruca: {NOTE}"
    assert any("`eruca group differences mixed`" in line for line in lines)


def test_a_command_that_is_longer_than_the_terminal_is_wrapped_too() -> None:
    assert max(map(len, format_note(NOTE, 20).splitlines())) <= 20


def test_a_word_is_never_cut() -> None:
    address = "a" * 50
    assert address in format_note(f"cannot connect to {address} now", 30).splitlines()[1]


def test_control_characters_are_visible() -> None:
    assert format_note("a\x1b[2J\nb", None) == "eruca: a\\x1b[2J\\nb"
