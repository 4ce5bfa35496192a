"""The doctor's findings: what is wrong with a cluster, how bad it is, and what to do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from eruca._admin.doctor.findings import Examination, Finding, Severity
from eruca._console.identity.rights import Need
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import Column, make_table, show_table
from eruca._console.pages.visit import Shown, Visit
from eruca._console.watching.samples import Sample, Trend

#: Each examination reads the offsets of groups twice; visitors share it for this many seconds.
FRESH_S: Final = 30.0
TONES: Final = {Severity.CRITICAL: "error", Severity.WARNING: "warning", Severity.INFO: "muted"}
_STUCK: Final = "group-stuck"
_GROUP: Final = "group "
_TOPIC: Final = "topic "
_BROKER: Final = "broker "

COLUMNS: Final[Sequence[Column[Finding]]] = (
    Column("severity", "doctor.severity", lambda row: row.severity.value, kind="tag", texts="doctor.severity"),
    Column("id", "doctor.check", lambda row: row.id),
    Column("where", "doctor.where", lambda row: row.where),
    Column("what", "doctor.what", lambda row: row.what),
    Column("advice", "doctor.advice", lambda row: row.advice),
    Column("command", "doctor.command", lambda row: row.command),
)


async def show_doctor(visit: Visit) -> Shown:
    """Show the page, which looks at the cluster when it is there: a look takes a second or more."""
    if visit.is_api:
        return Shown("doctor/page.html", await _examine(visit))
    return visit.show("doctor/page.html", again=visit.query.get("again", ""))


async def show_findings(visit: Visit) -> Shown | Response:
    """Look at the cluster and show the findings."""
    if visit.query.get("again") == "1":
        visit.cluster.recent.forget()
    examination = await _examine(visit)
    table = make_table(
        visit, "findings", COLUMNS, examination.findings, search=lambda row: f"{row.id} {row.where} {row.what}"
    )
    return show_table(
        visit,
        "doctor/findings.html",
        table,
        examination=examination,
        counts={each.value: sum(1 for row in examination.findings if row.severity is each) for each in Severity},
        tones=TONES,
        link=lambda finding: link_place(visit, finding.where),
        with_cluster=lambda command: add_cluster(visit, command),
        command=visit.command("doctor"),
    )


async def _examine(visit: Visit) -> Examination:
    found = await visit.cluster.recent.ask("doctor", visit.admin.doctor.examine, fresh_s=FRESH_S)
    sample = visit.parts.watching.find_last(visit.cluster.name)
    return Examination(
        at=found.at,
        seconds=found.seconds,
        looked_at=found.looked_at,
        findings=[each for each in found.findings if _may_see(visit, each) and not is_refuted(each, sample)],
        left_out=found.left_out,
    )


def is_refuted(finding: Finding, sample: Sample | None) -> bool:
    """Whether the watch has seen that a group moves which did not between the two looks of the doctor, a second apart.

    A member that needs some seconds for a message looks like one that hangs. The overview shows what the watch knows.
    """
    if finding.id != _STUCK or sample is None:
        return False
    group = sample.groups.get(finding.where.removeprefix(_GROUP))
    if group is None or group.outgoing is None or group.trend is Trend.STUCK:
        return False
    # When it has been so since the watch began, it is not known for how long.
    return group.still is None or not group.still.is_minimum


def _may_see(visit: Visit, finding: Finding) -> bool:
    """Whether the user may see a finding: those of groups and topics by the rights to them."""
    if finding.where.startswith(_GROUP):
        return visit.user.may(Need.VIEW, group=finding.where.removeprefix(_GROUP))
    if finding.where.startswith(_TOPIC):
        return visit.user.may(Need.VIEW, topic=finding.where.removeprefix(_TOPIC))
    return True


def add_cluster(visit: Visit, command: str) -> str:
    """Return a command of a finding with the options that lead to the cluster."""
    return visit.command(*shlex.split(command)[1:]) if command else ""


def link_place(visit: Visit, where: str) -> str:
    """Return the page of what a finding is about; empty if it has none."""
    if where.startswith(_GROUP):
        return visit.url("groups", where.removeprefix(_GROUP))
    if where.startswith(_TOPIC):
        return visit.url("topics", where.removeprefix(_TOPIC))
    return visit.url("brokers") if where.startswith(_BROKER) else ""


ROUTES: Final = (
    Route(
        "/c/{cluster}/doctor",
        show_doctor,
        Need.VIEW,
        nav=Nav("watch", 20, "nav.doctor", "doctor", "d"),
        summary="Look at the cluster and return what is wrong with it.",
    ),
    Route("/c/{cluster}/doctor/findings", show_findings, Need.VIEW, in_api=False),
)
