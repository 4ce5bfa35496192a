"""Each check finds its fault and nothing else, and nothing in a healthy cluster."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

import pytest

from eruca._admin.comparing import Disagreement
from eruca._admin.doctor.checks import CHECKS, NOT_EXAMINED, find_all
from eruca._admin.doctor.findings import Examination, Finding, Limits, Rules, Severity
from eruca._admin.doctor.picture import Picture
from eruca._admin.results import Problem
from tests.unit.admin.doctor.pictures import (
    AT,
    FAULTS,
    HEALTHY,
    MASTER,
    MEMBERS,
    SLAVE,
    make_backlog,
    make_config,
    make_connections,
    make_group,
    make_health,
    make_member,
    make_queue,
    make_server,
    make_settings,
    make_state,
    paint,
)

RULES, LIMITS = Rules(), Limits()


def find(picture: Picture, rules: Rules = RULES) -> list[Finding]:
    return find_all(picture, rules, LIMITS)[0]


def test_a_healthy_cluster_has_no_findings() -> None:
    assert find_all(HEALTHY, RULES, LIMITS) == ([], [])


def test_every_name_has_a_fault() -> None:
    names = [name for its in CHECKS.values() for name in its]
    assert len(names) == len(set(names))
    assert {*names, NOT_EXAMINED} == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_nothing_else(name: str) -> None:
    (finding,) = find(FAULTS[name])
    assert finding.id == name
    assert finding.what and finding.where and finding.advice.endswith((".", "?"))
    assert finding.evidence or name == NOT_EXAMINED


def test_the_worst_come_first_and_many_of_a_kind_are_cut() -> None:
    topics = [make_settings(f"topic-{number}", permission="R") for number in range(50)]
    findings, left_out = find_all(paint(topics=topics, slaves=[], members=[make_member(SLAVE)]), RULES, LIMITS)
    assert [finding.id for finding in findings] == ["no-master"] + ["topic-not-writable"] * LIMITS.findings
    assert left_out == ["30 more findings named topic-not-writable"]


@dataclass(frozen=True)
class Case:
    """A cluster in which something is as bad as said, or not a fault."""

    picture: Picture
    found: list[tuple[str, Severity]]


GENTLE = {
    "a name server that refuses": Case(
        Picture(
            at=AT,
            nameservers=[make_server(brokers=0, problem="it refused: no account")],
            problems=[Problem(where="topics", error="it refused: no account")],
        ),
        [("not-examined", Severity.WARNING)],
    ),
    "brokers that only one name server knows": Case(
        Picture(
            at=AT,
            nameservers=[make_server(), make_server("10.0.0.2:9876", brokers=0)],
            disagreements=[
                Disagreement(kind="broker", name="broker-a:0", known_to=["10.0.0.1:9876"], missing_on=["10.0.0.2:9876"])
            ],
        ),
        [("nameservers-disagree", Severity.WARNING)],
    ),
    "a master whose slaves are all away": Case(
        paint(members=[make_member(state=make_state(required=1, slaves=[]))]), [("insync-too-small", Severity.WARNING)]
    ),
    "sends that fail for want of copies": Case(
        paint(members=[make_member(state=make_state(required=2, slaves=[]))]), [("insync-too-small", Severity.CRITICAL)]
    ),
    "an asynchronous master alone": Case(
        paint(members=[make_member(state=make_state(sync=False, required=1, slaves=[]))]), []
    ),
    "a master that does not answer": Case(
        paint(
            health=[make_health(answers=False, problem="refused")],
            members=[make_member(role="", state=None), make_member(SLAVE)],
        ),
        [("no-master", Severity.CRITICAL), ("broker-unreachable", Severity.CRITICAL)],
    ),
    "a fenced master": Case(
        paint(members=[make_member(role="FENCED", state=make_state(role="FENCED"))]),
        [("no-master", Severity.CRITICAL)],
    ),
    "a Java master": Case(paint(members=[make_member(role="JAVA", state=None)]), []),
    "a disk that refuses": Case(paint(health=[make_health(log_disk_ratio=0.95)]), [("disk-full", Severity.CRITICAL)]),
    "a disk with a lower threshold": Case(
        paint(health=[make_health(log_disk_ratio=0.4)], configs=[make_config(diskMaxUsedSpaceRatio="30")]),
        [("disk-full", Severity.WARNING)],
    ),
    "a disk that cannot be asked": Case(paint(health=[make_health(log_disk_ratio=-1.0)]), []),
    "a clock that is off by the time of the request": Case(
        paint(health=[make_health(clock_ahead=timedelta(seconds=3), round_trip=timedelta(seconds=2))]), []
    ),
    "a clock that is minutes off": Case(
        paint(health=[make_health(clock_ahead=timedelta(minutes=3))]), [("clock-apart", Severity.CRITICAL)]
    ),
    "one slow message among many": Case(
        paint(
            groups=[make_group([make_queue(0, lag_time=timedelta(minutes=5)), make_queue(1)])],
            backlog=make_backlog(offset=100),
        ),
        [("group-stuck", Severity.WARNING)],
    ),
    "members that fetch but get past nothing": Case(
        paint(
            groups=[
                make_group(
                    [
                        make_queue(0, lag_time=timedelta(minutes=5)),
                        make_queue(0, topic="%RETRY%billing", lag=0, lag_time=None),
                    ],
                    rate=5.0,
                )
            ],
            backlog=make_backlog(offset=100),
        ),
        [("group-stuck", Severity.CRITICAL)],
    ),
    "a queue that moved": Case(
        paint(groups=[make_group([make_queue(0, lag_time=timedelta(minutes=5))])], backlog=make_backlog(offset=99)), []
    ),
    "a broadcasting group": Case(
        paint(
            groups=[make_group([make_queue(0, owner="", lag_time=timedelta(minutes=5))], model="broadcasting")],
            backlog=make_backlog(offset=100),
        ),
        [],
    ),
    "members that do not tell what they have": Case(
        paint(groups=[make_group([make_queue(0, owner=""), make_queue(1, owner="")])]), []
    ),
    "a queue without owner in which nothing waits": Case(
        paint(groups=[make_group([make_queue(0), make_queue(1, owner="", lag=0, lag_time=None)])]), []
    ),
    "a member on two brokers": Case(
        paint(
            connections=[
                *[make_connections()],
                *[make_connections("audit", clients=(MEMBERS[0],), broker="broker-b")],
            ]
        ),
        [],
    ),
    "an old client of another language": Case(
        paint(connections=[make_connections(version="3.2.6", language="CPP")]), []
    ),
    "a version that is not a number": Case(paint(connections=[make_connections(version="HIGHER")]), []),
    "a topic nobody knows": Case(paint(topics=[]), []),
    "one name server of one": Case(
        paint(
            nameservers=[make_server(answers=False, problem="refused")], problems=[Problem(where="x", error="refused")]
        ),
        [("nameserver-unreachable", Severity.CRITICAL)],
    ),
    "a broker that only one name server knows": Case(
        paint(
            disagreements=[
                Disagreement(kind="broker", name=f"broker-a:0 {MASTER}", known_to=["a:9876"], missing_on=["b:9876"])
            ]
        ),
        [("nameservers-disagree", Severity.WARNING)],
    ),
    "a system topic that nobody may write": Case(
        paint(topics=[make_settings(), make_settings("TBW102", permission="-")]), []
    ),
}


@pytest.mark.parametrize("name", GENTLE)
def test_how_bad_it_is(name: str) -> None:
    case = GENTLE[name]
    assert [(finding.id, finding.severity) for finding in find(case.picture)] == case.found


def test_rules_change_what_is_a_fault() -> None:
    late = [make_queue(number, lag_time=timedelta(seconds=2)) for number in range(4)]
    picture = paint(groups=[make_group(late)], backlog=make_backlog(offset=100))
    assert find(picture) == []
    assert [finding.id for finding in find(picture, Rules(stuck_after=1.0))] == ["group-stuck"]


def test_an_examination_is_healthy_without_warnings() -> None:
    def examine(*findings: Finding) -> Examination:
        return Examination(at=AT, seconds=1.0, looked_at={}, findings=list(findings), left_out=[])

    (info,), (bad,) = find(FAULTS["dead-letters"]), find(FAULTS["group-stuck"])
    assert examine().is_healthy and examine(info).is_healthy and not examine(info, bad).is_healthy
    assert examine(info, bad).at_least(Severity.CRITICAL) == [bad]


def test_faults_of_a_cluster_add_up() -> None:
    """Checks do not disturb each other: two faults of different parts are both found."""
    seed = random.randrange(1 << 30)
    chosen = random.Random(seed)
    # Without brokers there is nothing else.
    parts = {name: set(changed_fields(picture)) for name, picture in FAULTS.items() if name != "no-broker"}
    for _ in range(100):
        one, two = chosen.sample(sorted(parts), 2)
        if parts[one] & parts[two]:
            continue
        both = paint(**changed_fields(FAULTS[one]), **changed_fields(FAULTS[two]))
        found = {finding.id for finding in find(both)}
        assert {one, two} <= found, f"seed {seed}: {one} and {two}: {found}"


def changed_fields(picture: Picture) -> dict[str, object]:
    return {
        name: getattr(picture, name)
        for name in picture.__struct_fields__
        if getattr(picture, name) != getattr(HEALTHY, name)
    }
