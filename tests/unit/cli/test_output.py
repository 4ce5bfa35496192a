"""How results are shown: durations, JSON; views with problems, limits and statuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from eruca._cli.grouping import CommandGroup, ServerGroup
from eruca._cli.output import to_plain
from eruca._cli.viewing import View, Viewing, add_view_options, print_view, view_list, view_stream
from eruca._ground.printable import format_duration
from eruca.admin import Listed, Problem


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 ms"),
        (0.35, "350 ms"),
        (1, "1.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min 0 s"),
        (3599.6, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
        (-0.25, "-250 ms"),
        (-7500, "-2 h 5 min"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == format_duration(timedelta(seconds=seconds)) == shown


def test_an_unknown_duration() -> None:
    assert format_duration(None) == "-"


class Late(msgspec.Struct):
    wait: timedelta
    at: datetime


def test_json_has_seconds_and_times() -> None:
    late = Late(timedelta(minutes=1.5), datetime(2026, 11, 15, tzinfo=UTC))
    plain = to_plain({"rows": [late], "n": None})
    assert plain == {"rows": [{"wait": 90.0, "at": "2026-11-15T00:00:00Z"}], "n": None}
    json.dumps(plain)


# --- views --------------------------------------------------------------------------------------------------------


def show(view: View, output: str) -> tuple[str, str]:
    @click.command()
    def command() -> None:
        print_view(view, output)

    result = CliRunner().invoke(command)
    assert result.exit_code == 0, result.exception
    return result.stdout, result.stderr


def make_view(**how: Any) -> View:
    listed = Listed(items=how.pop("rows", ["a", "b"]), **how)
    return view_list(listed, ["name"], lambda row: (row,), empty="nothing; do this")


def test_rows_are_a_table_or_one_object_each() -> None:
    assert show(make_view(), "json") == ('"a"\n"b"\n', "")
    assert show(make_view(), "table")[0].split() == ["name", "────", "a", "b"]
    assert make_view().exit_code == 0


def test_an_empty_list_says_the_next_step() -> None:
    for output in ("table", "json", "yaml"):
        assert show(make_view(rows=[]), output) == ("", "eruca: nothing; do this\n")


def test_servers_that_did_not_answer_are_a_status() -> None:
    problem = Problem(where="broker-b", error="no answer\x1b", hint="is it running?")
    view = make_view(problems=[problem], cut=True)
    _, said = show(view, "json")
    assert "--limit N" in said and "eruca: warning: broker-b: no answer\\x1b (is it running?)" in said
    assert view.exit_code == 3


def test_what_is_wrong_is_a_status() -> None:
    view = View(value={"a": 1}, draw=list, warnings=["it is late"])
    assert show(view, "json") == ('{\n  "a": 1\n}\n', "eruca: warning: it is late\n")
    assert view.exit_code == 3
    assert View(value={}, draw=list, is_wrong=True).exit_code == 3


async def test_rows_that_arrive_are_printed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def arrive() -> AsyncIterator[int]:
        for number in range(5):
            yield number
            printed.append(capsys.readouterr().out)

    printed: list[str] = []

    async def look(output: str, limit: int) -> View:
        return await view_stream(
            arrive(), output, limit, ["n"], lambda n: (str(n),), describe=lambda n: {"n": n}, empty="none"
        )

    view = await look("json", 3)
    assert printed == ['{"n": 0}\n', '{"n": 1}\n', '{"n": 2}\n'] and view.cut and view.value == []
    assert view.empty == ""
    assert (await look("table", 99)).value == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("output", "limit", "asked"),
    [("table", None, 1000), ("table", 5, 5), ("json", 5, 5)],
)
def test_limits(output: str, limit: int | None, asked: int) -> None:
    assert Viewing("h:1", output, None).choose_limit(limit) == asked


def test_json_has_everything_and_so_has_limit_0() -> None:
    assert Viewing("h:1", "json", None).choose_limit(None) > 10**9
    assert Viewing("h:1", "table", None).choose_limit(0) > 10**9


def test_a_pause_that_is_no_number_is_explained() -> None:
    @click.command()
    @click.argument("topic")
    @add_view_options
    def look(view: Viewing, topic: str) -> None:
        raise AssertionError

    refused = CliRunner().invoke(look, ["--watch", "orders"])
    assert refused.exit_code == 2 and "put it last" in refused.stderr and "--watch=2" in refused.stderr
    assert CliRunner().invoke(look, ["orders", "--watch", "0"]).exit_code == 2


# --- groups -------------------------------------------------------------------------------------------------------


def test_a_server_starts_without_the_word() -> None:
    started: list[tuple[str, ...]] = []

    @click.group(cls=ServerGroup, context_settings={"help_option_names": ["-h", "--help"]})
    def server() -> None:
        """Start it, or look at it."""

    @server.command()
    @click.option("-c", "config")
    def start(config: str | None) -> None:
        started.append(("start", config or ""))

    @server.command("list")
    def list_() -> None:
        started.append(("list",))

    run = CliRunner().invoke
    for words in ([], ["-c", "x"], ["start", "-c", "x"], ["list"]):
        assert run(server, words).exit_code == 0
    assert started == [("start", ""), ("start", "x"), ("start", "x"), ("list",)]
    for words in (["--help"], ["-h"]):
        assert "Start it, or look at it." in run(server, words).stdout
    assert run(server, ["lst"]).exit_code == 2 and len(started) == 4


def test_lists_of_commands_have_whole_sentences() -> None:
    sentence = "This says in one sentence what the command does, however many words and lines it takes, to the end."

    @click.group(cls=CommandGroup)
    def group() -> None:
        pass

    @group.command(help=sentence)
    def one() -> None:
        pass

    @group.command(hidden=True)
    def two() -> None:
        pass

    shown = CliRunner().invoke(group, ["--help"], terminal_width=80).stdout
    assert sentence in " ".join(shown.split()) and "two" not in shown
