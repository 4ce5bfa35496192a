"""What all subcommands share."""

from __future__ import annotations

import logging

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from eruca._cli.main import COMMANDS, main
from eruca.errors import RequestRefused

# What an impostor of a server may send: a second line, and a command for the terminal.
HOSTILE = "no\x1b[2J\x1b]0;title\x07 way"


@click.command()
def refused() -> None:
    """Hear it from a server, and fail."""
    logging.getLogger("eruca.client").warning("told: %s", HOSTILE)
    raise RequestRefused(1, HOSTILE)


def test_what_a_server_says_does_not_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "refused", f"{__name__}:refused")
    done = CliRunner().invoke(main, ["refused"])
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert [line[: line.index("no")] for line in lines] == ["eruca: warning: told: ", "eruca: "]
    assert all(r"no\x1b[2J\x1b]0;title\x07 way" in line for line in lines)
    assert "\x1b" not in done.output and "\x07" not in done.output


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("topc", "Did you mean 'topic' or 'top'?"),
        ("topic creat", "Did you mean 'create'?"),
        ("pipeline archiv", "Did you mean 'archive'?"),
    ],
)
def test_a_wrong_name_is_answered_with_similar_ones(words: str, near: str) -> None:
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 2
    assert done.stderr.endswith(f"No such command '{words.rsplit(maxsplit=1)[-1]}'. {near}\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["topic", "list", "-n", "127.0.0.1"], "'127.0.0.1' is not host:port"),
        (["topic", "list", "--account", "/nowhere/tools.yml"], "/nowhere/tools.yml cannot be read"),
        (["topic", "create", "a b"], "has a character other than"),
        (["group", "show", "a/b"], "has a character other than"),
        (["send", "a b", "body"], "has a character other than"),
        (["send", "orders", "body", "--property", "color"], "--property color: expected NAME=VALUE"),
        (["send", "orders", "body", "--property", "KEYS=a"], "the name is reserved (use --keys)"),
        (["send", "orders", "body", "--delay", "7s"], "brokers have no such delay level"),
        (["send", "orders", "body", "--timer", "7x"], "'7x' is not a number followed by"),
        (["broker", "config", "set", "fileReservedTime"], "fileReservedTime: expected KEY=VALUE"),
        (["nameserver", "config", "set", "a=1", "a=2"], "a is set twice"),
        (["offset", "reset", "billing", "orders", "--to", "soon"], "'soon' is not a time (earliest, latest, an age"),
        (["cluster", "forget", "broker-a"], "expected HOST:PORT"),
        (["topic", "order", "set", "orders", "broker-a"], "expected BROKER:QUEUES"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_read_is_a_wrong_command_line(words: list[str], reason: str) -> None:
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert reason in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "incomplete", "wanted"),
    [
        ("config explain", "flushDiskT", ["flushDiskType"]),
        ("broker config get", "flushDiskT", ["flushDiskType"]),
        # It cannot change while a broker runs.
        ("broker config set", "flushDiskT", []),
        ("admin", "updatet", ["updateTopic", "updateTopicPerm"]),
        ("admin help", "topicR", ["topicRoute"]),
        ("admin topicRoute", "top", []),
    ],
)
def test_words_that_need_no_cluster_are_completed(words: str, incomplete: str, wanted: list[str]) -> None:
    completion = ShellComplete(main, {}, "eruca", "_ERUCA_COMPLETE")
    found = [item.value for item in completion.get_completions(words.split(), incomplete)]
    assert found == wanted


def test_a_wrong_name_server_is_named_as_the_option_of_the_command_line() -> None:
    result = CliRunner().invoke(main, ["topic", "list", "-n", "http://x:1"])
    assert result.exit_code == 1 and "-n 'http://x:1': 'http://x:1' is a URL, not host:port" in result.stderr
    assert "ClientOptions" not in result.stderr and "ERUCA_ADDRESS_SERVER" in result.stderr
