"""`eruca doctor`: rules of the command line, what is printed, and that the printed commands exist."""

from __future__ import annotations

import io
import shlex
from datetime import UTC, datetime
from itertools import takewhile

import click
import pytest
from rich.console import Console

from eruca._admin.doctor.checks import find_all
from eruca._admin.doctor.findings import Examination, Limits, Rules
from eruca._cli.doctor import doctor as doctor_command
from eruca._cli.doctor import draw_examination, parse_rules
from eruca._cli.main import main
from eruca._cli.output import make_console
from tests.unit.admin.doctor.pictures import FAULTS


def examine(*names: str) -> Examination:
    findings = [finding for name in names for finding in find_all(FAULTS[name], Rules(), Limits())[0]]
    looked = {"brokers": 2, "topics": 10_000, "groups_with_members": 3}
    return Examination(
        at=datetime.now(UTC), seconds=1.25, looked_at=looked, findings=findings, left_out=["a lot"] if names else []
    )


def draw(found: Examination) -> str:
    console = make_console()
    with console.capture() as capture:
        for part in draw_examination(found):
            console.print(part)
    return capture.get()


def test_rules_are_read() -> None:
    assert parse_rules(()) == Rules()
    assert parse_rules(("stuck_after=5", "client_version=4.9.0")) == Rules(stuck_after=5.0, client_version="4.9.0")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("stuck=5", "there are stuck_after, "),
        ("clock=soon", "'clock=soon': expected NAME=NUMBER"),
        ("clock", "'clock': expected NAME=NUMBER"),
    ],
)
def test_wrong_rules_are_refused(text: str, reason: str) -> None:
    with pytest.raises(click.BadParameter, match=reason):
        parse_rules((text,))


def test_a_healthy_cluster_is_one_line() -> None:
    (line,) = draw(examine()).splitlines()
    assert line == "nothing is wrong; looked at 2 brokers, 10,000 topics, 3 groups with members in 1.2 s"


def test_findings_are_printed_with_what_to_do() -> None:
    text = draw(examine("group-stuck", "dead-letters"))
    assert text.startswith("CRITICAL group-stuck  group billing\n  4 of 4 queues did not move")
    assert "\n  eruca client stack billing 10.0.0.7@1\n" in text
    assert "\n1 critical, 1 info; looked at" in text and text.endswith("left out: a lot\n")


def test_the_printed_command_leads_to_the_same_cluster() -> None:
    servers = "10.0.0.1:9876;10.0.0.2:9876"
    with doctor_command.make_context("doctor", ["-n", servers]):
        lines = draw(examine("group-stuck")).splitlines()
    (line,) = [line for line in lines if line.startswith("  eruca client stack")]
    assert shlex.split(line)[-2:] == ["-n", servers]


def test_warnings_are_counted() -> None:
    assert "\n2 warnings; looked at" in draw(examine("group-absent", "group-absent"))


def test_a_finding_is_below_its_head_on_narrow_screens() -> None:
    console = Console(width=50, color_system=None, file=io.StringIO())
    with console.capture() as capture:
        for part in draw_examination(examine("group-stuck")):
            console.print(part)
    head, *lines = capture.get().splitlines()
    below = list(takewhile(lambda line: not line.startswith("1 critical"), lines))
    assert head.startswith("CRITICAL") and 4 < len(below) < len(lines)
    assert all(line.startswith("  ") and line[2] != " " and len(line) <= 50 for line in below), below


@pytest.mark.parametrize("name", FAULTS)
def test_the_command_of_a_finding_exists(name: str) -> None:
    commands = [finding.command for finding in examine(name).findings if finding.command]
    for command in commands:
        assert parse(shlex.split(command)).command.callback is not None


def parse(words: list[str]) -> click.Context:
    """Have click read a command line without running it. Raises UsageError if there is no such command or option."""
    command: click.Command = main
    context = click.Context(main)
    rest = words[1:]
    while isinstance(command, click.Group) and rest:
        found = command.get_command(context, rest[0])
        assert found is not None, words
        command, rest = found, rest[1:]
    return command.make_context(words[-1], rest)
