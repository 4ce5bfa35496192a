"""The table of all checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from eruca._admin.doctor import contents, groups, servers
from eruca._admin.doctor.findings import Finding, Limits, Rules, Severity
from eruca._admin.doctor.picture import Picture
from eruca._wire.names import MASTER_ID

Check: TypeAlias = Callable[[Picture, Rules], Iterator[Finding]]

#: Every check, with the names of its findings.
CHECKS: dict[Check, tuple[str, ...]] = {
    servers.check_brokers_registered: ("no-broker",),
    servers.check_masters: ("no-master",),
    servers.check_brokers_answer: ("broker-unreachable",),
    servers.check_name_servers_answer: ("nameserver-unreachable",),
    servers.check_name_servers_agree: ("nameservers-disagree",),
    servers.check_disks: ("disk-full",),
    servers.check_copies: ("insync-too-small",),
    servers.check_slaves: ("slave-disconnected", "slave-behind"),
    servers.check_broker_permissions: ("broker-not-writable",),
    servers.check_load: ("brokers-uneven",),
    servers.check_clocks: ("clock-apart",),
    groups.check_stuck: ("group-stuck",),
    contents.check_deleted_unread: ("unread-deleted",),
    contents.check_expiring: ("unread-expiring",),
    groups.check_client_ids: ("client-id-twice",),
    groups.check_subscriptions: ("group-differs",),
    groups.check_ownerless: ("queue-without-owner",),
    groups.check_absent: ("group-absent",),
    groups.check_starved: ("group-starved",),
    groups.check_uneven_backlog: ("backlog-uneven",),
    groups.check_uneven_members: ("members-uneven",),
    contents.check_dead_letters: ("dead-letters-growing", "dead-letters"),
    contents.check_halves: ("halves-in-doubt", "transactions-given-up"),
    contents.check_unreachable: ("messages-out-of-reach",),
    contents.check_topic_permissions: ("topic-not-writable", "topic-not-readable"),
    groups.check_versions: ("client-old",),
}
#: A part of the cluster could not be looked at.
NOT_EXAMINED = "not-examined"


def find_all(picture: Picture, rules: Rules, limits: Limits) -> tuple[list[Finding], list[str]]:
    """Return the findings of all checks, the worst first, and notes on those that were left out."""
    found = list(check_problems(picture))
    left_out: list[str] = []
    for check, names in CHECKS.items():
        counts = dict.fromkeys(names, 0)
        for finding in check(picture, rules):
            counts[finding.id] += 1
            if counts[finding.id] <= limits.findings:
                found.append(finding)
        left_out += [
            f"{count - limits.findings} more findings named {name}"
            for name, count in counts.items()
            if count > limits.findings
        ]
    return sorted(found, key=lambda finding: -finding.severity.rank), left_out


def check_problems(picture: Picture) -> Iterator[Finding]:
    """Report parts that could not be looked at: what is not seen is not healthy."""
    for server in picture.nameservers:
        if server.answers and server.problem:
            yield Finding(
                id=NOT_EXAMINED,
                severity=Severity.WARNING,
                what=f"A part could not be looked at: {server.problem}",
                where=f"name server {server.address}",
                advice="Look again with an account that may see the cluster.",
            )
    # Without a name server, a broker or a master nothing can be found, and each is reported by a check of its own.
    if picture.nameservers and not any(row.answers for row in picture.nameservers):
        return
    if picture.nameservers and not picture.health and not any(row.brokers for row in picture.nameservers):
        return
    if picture.members and not any(row.answers and row.broker_id == MASTER_ID for row in picture.health):
        return
    unreachable = {row.address for row in picture.health if not row.answers}
    unreachable |= {row.address for row in picture.nameservers if not row.answers}
    seen: set[tuple[str, str]] = set()
    for problem in picture.problems:
        # That a server does not answer is reported once, by the checks of servers.
        if problem.address in unreachable or (problem.where, problem.error) in seen:
            continue
        seen.add((problem.where, problem.error))
        yield Finding(
            id=NOT_EXAMINED,
            severity=Severity.WARNING,
            what=f"A part could not be looked at: {problem.error}",
            where=problem.where,
            advice=problem.hint or "Solve this, then look again.",
        )
