"""Command lines of mqadmin: what the parser of Java's tool accepts and refuses, for every command."""

from __future__ import annotations

import inspect
from importlib import import_module

import click
import pytest

from eruca._cli.mqadmin.commandline import Command, Flag, Line, describe_usage, parse
from eruca._cli.mqadmin.table import COMMANDS, find_command
from eruca.errors import ConfigError

ALL = list(COMMANDS.values())
DEMO = Command(
    "demo",
    "Show how flags are read",
    "nowhere:nothing",
    "eruca demo",
    (
        Flag("t", "topic", "a topic", required=True),
        Flag("l", "list", "a switch", value=False),
        Flag("m", "more", "another", value=False),
        Flag("b", "brokerAddr", "a broker", one_of=True),
        Flag("c", "clusterName", "a cluster", one_of=True),
    ),
)


def choose_flags(command: Command) -> list[Flag]:
    """Flags of which a complete command line may consist: of those that exclude each other only the first."""
    rivals = [flag for flag in command.flags if flag.one_of]
    return [flag for flag in command.flags if flag not in rivals[1:]]


def list_values(line: Line, flags: list[Flag]) -> dict[str, str | None]:
    return {flag.name: line.find(flag.letter or flag.name) for flag in flags}


# --- every command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
@pytest.mark.parametrize("form", ["short", "joined", "long", "equals", "one hyphen"])
def test_every_flag_is_read_in_every_form(command: Command, form: str) -> None:
    flags = choose_flags(command)
    words: list[str] = []
    for flag in flags:
        letter, value = flag.letter or flag.name, f"value of {flag.name}"
        if not flag.value:
            words.append(f"-{letter}" if form in ("short", "joined") else f"--{flag.name}")
        elif form == "short":
            words += [f"-{letter}" if flag.letter else f"--{letter}", value]
        elif form == "joined":
            words += [f"-{letter}{value}"] if flag.letter else [f"--{letter}", value]
        elif form == "equals":
            words.append(f"--{flag.name}={value}")
        else:
            words += [f"{'-' if form == 'one hyphen' else '--'}{flag.name}", value]
    line = parse(command, words)
    assert list_values(line, flags) == {flag.name: f"value of {flag.name}" if flag.value else "" for flag in flags}


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_an_option_that_is_not_known_is_refused(command: Command) -> None:
    with pytest.raises(click.UsageError, match="unknown option --nothing-like-it"):
        parse(command, ["--nothing-like-it"])


@pytest.mark.parametrize(
    ("command", "left_out"),
    [
        pytest.param(command, flag, id=f"{command.name}-{flag.letter}")
        for command in ALL
        for flag in command.flags
        if flag.required
    ],
)
def test_a_command_without_a_required_flag_is_refused(command: Command, left_out: Flag) -> None:
    words = [word for flag in choose_flags(command) if flag is not left_out for word in write(flag)]
    with pytest.raises(click.UsageError, match=f"missing -{left_out.letter}"):
        parse(command, words)


@pytest.mark.parametrize(
    "command",
    [command for command in ALL if command.needs or any(flag.one_of for flag in command.flags)],
    ids=lambda command: command.name,
)
def test_a_broker_or_a_cluster_is_needed(command: Command) -> None:
    words = [word for flag in command.flags if flag.letter not in ("b", "c") for word in write(flag)]
    with pytest.raises(click.UsageError, match=r"one of -[bc] and -[bc] is needed"):
        parse(command, words)


@pytest.mark.parametrize(
    "command", [command for command in ALL if any(flag.one_of for flag in command.flags)], ids=lambda one: one.name
)
def test_a_broker_and_a_cluster_exclude_each_other(command: Command) -> None:
    words = [word for flag in command.flags for word in write(flag)]
    with pytest.raises(click.UsageError, match="-b and -c exclude each other"):
        parse(command, words)


def write(flag: Flag) -> list[str]:
    name = f"-{flag.letter}" if flag.letter else f"--{flag.name}"
    return [name, "x"] if flag.value else [name]


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_the_help_names_every_flag(command: Command) -> None:
    assert parse(command, ["-h"]).has("h")  # also without what is required
    lines = describe_usage(command).splitlines()
    for flag in command.flags:
        assert any(f"--{flag.name}" in line and flag.about in line for line in lines), flag
    assert max(map(len, lines[1:])) <= 120


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_every_command_has_a_function(command: Command) -> None:
    module, _, name = command.target.partition(":")
    assert inspect.iscoroutinefunction(getattr(import_module(module), name))
    assert len(command.about) <= 70 and not command.about.endswith(".")


def test_names_and_aliases_are_found_whatever_their_case() -> None:
    assert find_command("UPDATETOPIC") is COMMANDS["updateTopic"]
    assert find_command("deleteAccessConfig") is COMMANDS["deleteAclConfig"]
    assert find_command("updateTopics") is None


# --- the parser of commons-cli ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["-t", "T", "-b", "x"], {"t": "T", "b": "x"}),
        (["-lm", "-t", "T", "-b", "x"], {"t": "T", "b": "x", "l": "", "m": ""}),
        (["-lmtT", "-b", "x"], {"t": "T", "b": "x", "l": "", "m": ""}),
        (["-t", " T ", "-b", '"x y"'], {"t": "T", "b": "x y"}),
        (["-t", "first", "second", "-b", "x"], {"t": "first", "b": "x"}),
        (["-t", "first", "-t", "second", "-b", "x"], {"t": "first", "b": "x"}),
        (["ignored", "-t", "T", "-b", "x", "-"], {"t": "T", "b": "x"}),
        (["-t", "-1000", "-b", "-9"], {"t": "-1000", "b": "-9"}),
        (["-t", "T", "-b", "x", "--", "-l"], {"t": "T", "b": "x"}),
        (["-t", "", "-b", "x"], {"t": "", "b": "x"}),
        (["--t", "T", "--b=x=y"], {"t": "T", "b": "x=y"}),
    ],
)
def test_words_become_flags(words: list[str], values: dict[str, str]) -> None:
    line = parse(DEMO, words)
    assert {flag.letter: line.find(flag.letter) for flag in DEMO.flags if line.has(flag.letter)} == values


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["-t", "-b", "x"], "option -t needs a value"),
        (["-b", "x", "-t"], "option -t needs a value"),
        (["-t", "T"], "one of -b and -c is needed"),
        (["-t", "T", "-b", "x", "-lz"], "unknown option -lz"),
        (["-t", "T", "-b", "x", "-z"], "unknown option -z"),
    ],
)
def test_words_are_refused(words: list[str], problem: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        parse(DEMO, words)
    assert refused.value.message.startswith(problem)
    assert "usage: eruca admin demo" in refused.value.message


def test_values_are_read() -> None:
    line = Line(DEMO, {"t": "12", "b": "TRUE", "c": "no", "l": ""})
    assert (line.number("t"), line.number("m", 7)) == (12, 7)
    assert (line.is_true("b"), line.is_true("c"), line.is_true("m"), line.is_true("m", True)) == (
        True,
        False,
        False,
        True,
    )
    assert Line(DEMO, {"t": "-12"}).number("t") == -12
    for text in ("", "1.5", "x", "1e3", "9" * 30, "٣"):
        with pytest.raises(ConfigError, match="is not a whole number"):
            Line(DEMO, {"t": text}).number("t")
