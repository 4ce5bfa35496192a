"""`eruca doctor`: what is wrong with a cluster, how bad it is, and what to do."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from eruca._cli.completing import suggest_groups
from eruca._cli.connecting import name_cluster
from eruca._cli.grouping import SectionedCommand
from eruca._cli.tables import Indented
from eruca._cli.viewing import View, Viewing, add_view_options
from eruca._ground.printable import say_count, show_safely
from eruca.admin import Admin, Examination, Finding, Limits, Rules, Severity

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {Severity.INFO: "blue", Severity.WARNING: "yellow", Severity.CRITICAL: "bold red"}
_NEVER = "never"


@click.command(cls=SectionedCommand)
@click.option(
    "-g", "--group", shell_complete=suggest_groups, help="Look at this consumer group only: why is it behind?"
)
@click.option(
    "--fail-on",
    type=click.Choice([*[severity.value for severity in Severity], _NEVER]),
    default=Severity.WARNING.value,
    show_default=True,
    help="The exit status is 3 if a finding is as bad as this, or worse.",
)
@click.option(
    "--sample",
    type=click.FloatRange(min=0, max=300),
    default=Limits().sample,
    show_default=True,
    help="Seconds between the two looks at the offsets of groups. More is surer.",
)
@click.option(
    "--closely",
    type=click.IntRange(min=0),
    default=Limits().groups_closely,
    show_default=True,
    help="How many groups with a backlog are looked at closely.",
)
@click.option(
    "--rule",
    "rules",
    metavar="NAME=VALUE",
    multiple=True,
    callback=lambda _context, _parameter, texts: parse_rules(texts),
    help="Change from which value on something is a finding: stuck_after=300; may be repeated.",
)
@add_view_options
def doctor(view: Viewing, group: str | None, fail_on: str, sample: float, closely: int, rules: Rules) -> None:
    """Look at a cluster and print what is wrong, how bad it is, and what to do.

    It looks at name servers, brokers, replication, disks, clocks, topics, groups and their members, dead letters and
    transactions; it changes nothing. Every finding and every rule is explained in docs/guide/troubleshooting.md.
    The exit status is 0 if the cluster is healthy, and 3 if it is not.

    \b
    Examples:
      eruca doctor
      eruca doctor --group billing --sample 10
      eruca doctor --watch=30 --fail-on critical
      eruca doctor -o json | jq -r '.findings[].id'
    """
    limits = Limits(sample=sample, groups_closely=closely)

    async def ask(admin: Admin) -> View:
        if group is None:
            found = await admin.doctor.examine(rules=rules, limits=limits)
        else:
            found, _ = await admin.doctor.examine_group(group, rules=rules, limits=limits)
        is_wrong = fail_on != _NEVER and bool(found.at_least(Severity(fail_on)))
        value = msgspec.to_builtins(found) | {"healthy": found.is_healthy}
        return View(value=value, draw=lambda: draw_examination(found), is_wrong=is_wrong)

    view.show(ask)


def parse_rules(texts: tuple[str, ...]) -> Rules:
    """Read rules of the command line. Raises an error that lists their names."""
    given: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in Rules.__struct_fields__:
            raise click.BadParameter(f"there is no rule {name!r}; there are {', '.join(Rules.__struct_fields__)}")
        given[name] = value
        try:
            msgspec.convert({name: value}, Rules, strict=False)
        except msgspec.ValidationError:
            raise click.BadParameter(f"{text!r}: expected NAME=NUMBER, for example stuck_after=300") from None
    return msgspec.convert(given, Rules, strict=False)


# --- tables -----------------------------------------------------------------------------------------------------------


def draw_examination(found: Examination) -> Iterator[RenderableType]:
    """Yield the findings, the worst first, and what was looked at."""
    from rich.text import Text

    for finding in found.findings:
        yield _draw_finding(finding)
    yield Text(_sum_up(found), style="" if found.findings else "green")
    for note in found.left_out:
        yield Text(f"left out: {show_safely(note)}", style="dim")


def _draw_finding(finding: Finding) -> RenderableType:
    """Return a line about what it is and where, and below it what was observed and what to do."""
    from rich.console import Group
    from rich.text import Text

    text = Text(f"{finding.severity.upper()} ", style=_STYLES[finding.severity])
    text.append(f"{finding.id}  ", style="bold")
    text.append(show_safely(finding.where), style="default")
    more = Text("\n".join([show_safely(finding.what), show_safely(finding.advice)]))
    if finding.command:
        more.append(f"\n{show_safely(_complete(finding.command))}", style="cyan")
    return Group(text, Indented(more))


def _complete(command: str) -> str:
    """Return a command with the words that name the cluster."""
    return " ".join([command, *map(shlex.quote, name_cluster())])


def _sum_up(found: Examination) -> str:
    counts = Counter(finding.severity for finding in found.findings)
    worst = ", ".join(
        # `critical` and `info` have no plural.
        say_count(counts[severity], severity) if severity is Severity.WARNING else f"{counts[severity]} {severity}"
        for severity in reversed(Severity)
        if counts[severity]
    )
    seen: dict[str, Any] = found.looked_at
    # Of a single group, only its own topics are looked at.
    parts = [say_count(seen[f"{noun}s"], noun) for noun in ("broker", "topic") if seen[f"{noun}s"]]
    looked = ", ".join([*parts, f"{say_count(seen['groups_with_members'], 'group')} with members"])
    return f"{worst or 'nothing is wrong'}; looked at {looked} in {found.seconds:.1f} s"
