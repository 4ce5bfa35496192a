"""Checks of servers: who answers, masters and slaves, disks, clocks, load, name servers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from eruca._admin.brokers import Health
from eruca._admin.doctor.findings import Finding, Rules, Severity
from eruca._admin.doctor.picture import Picture
from eruca._admin.members import JAVA, Lag, Member
from eruca._ground.commandlines import write_command
from eruca._ground.digits import read_digits
from eruca._ground.printable import format_duration, say_count
from eruca._wire.bodies import ReplicationState
from eruca._wire.names import FENCED, MASTER, MASTER_ID, WRITE

# What brokers do unless they are configured otherwise, as shares of the disk: from the first value on they delete what
# has expired at any hour, from the second on what has not, and from the third on they refuse messages.
_DISK_KEYS = {
    "diskMaxUsedSpaceRatio": 75,
    "diskSpaceCleanForciblyRatio": 85,
    "diskSpaceWarningLevelRatio": 90,
}
_NAMED_MAX = 5


def name_broker(broker: str, address: str) -> str:
    """Return how findings name a broker."""
    return f"broker {broker} ({address})"


# --- who answers ------------------------------------------------------------------------------------------------------


def check_brokers_answer(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find registered brokers that do not answer."""
    for row in picture.health:
        if not row.answers:
            is_master = row.broker_id == MASTER_ID
            yield Finding(
                id="broker-unreachable",
                severity=Severity.CRITICAL if is_master else Severity.WARNING,
                what=f"The {'master' if is_master else 'slave'} is registered, but does not answer: {row.problem}",
                where=name_broker(row.broker, row.address),
                evidence={"broker_id": row.broker_id},
                advice="Start it, or look at its log. Name servers forget it two minutes after its last registration.",
                command=write_command("cluster", "replicas", row.broker),
            )


def check_brokers_registered(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find a cluster without brokers."""
    answering = [row.address for row in picture.nameservers if row.answers and not row.problem]
    # That only some name servers know brokers is another finding.
    if picture.health or not answering or any(row.brokers for row in picture.nameservers):
        return
    yield Finding(
        id="no-broker",
        severity=Severity.CRITICAL,
        what="No broker is registered: clients find no topic.",
        where=f"name server {', '.join(answering[:_NAMED_MAX])}",
        evidence={"name_servers": len(answering)},
        advice="Start the brokers. All name servers must be in their option namesrvAddr.",
    )


def check_masters(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find broker names without a master that accepts messages."""
    answering = {row.address for row in picture.health if row.answers and row.broker_id == MASTER_ID}
    rows = sorted(picture.members, key=lambda row: (row.cluster, row.broker))
    for (_, broker), group in groupby(rows, key=lambda row: (row.cluster, row.broker)):
        members = list(group)
        # A master that answers may still refuse to describe itself.
        if any(_is_master(row) or (not row.role and row.address in answering) for row in members):
            continue
        slaves = [row for row in members if row.role]
        fenced = [row.address for row in members if row.role == FENCED]
        why = f"; {fenced[0]} was its master and may not accept messages" if fenced else ""
        yield Finding(
            id="no-master",
            severity=Severity.CRITICAL,
            what=f"The broker has no master: nothing can be sent to its queues{why}.",
            where=f"broker {broker}",
            evidence={"members": len(members), "answering": len(slaves)},
            advice="Start the master again. If it is gone for good, promote the slave with the most data.",
            command=write_command("cluster", "promote", slaves[0].address)
            if slaves
            else write_command("cluster", "replicas", broker),
        )


def _is_master(row: Member) -> bool:
    return row.role == MASTER or (row.role == JAVA and row.broker_id == MASTER_ID and not row.problem)


def check_name_servers_answer(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find name servers of the list that do not answer."""
    silent = [row for row in picture.nameservers if not row.answers]
    for row in silent:
        is_last = len(silent) == len(picture.nameservers)
        yield Finding(
            id="nameserver-unreachable",
            severity=Severity.CRITICAL if is_last else Severity.WARNING,
            what=f"The name server does not answer: {row.problem}",
            where=f"name server {row.address}",
            evidence={"answering": len(picture.nameservers) - len(silent), "listed": len(picture.nameservers)},
            advice="Start it, or remove it from the lists of clients and brokers.",
        )


def check_name_servers_agree(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find brokers and topics that only some name servers know."""
    for kind in ("broker", "topic"):
        rows = [row for row in picture.disagreements if row.kind == kind]
        if not rows:
            continue
        names = sorted({row.name for row in rows})
        missing = sorted({address for row in rows for address in row.missing_on})
        yield Finding(
            id="nameservers-disagree",
            severity=Severity.WARNING,
            what=f"{say_count(len(names), kind)} {'is' if len(names) == 1 else 'are'} not known to every name server:"
            f" {_shorten(names)}.",
            where=f"name server {', '.join(missing[:_NAMED_MAX])}",
            evidence={"missing": len(names), "name_servers": len(picture.nameservers)},
            advice="Every broker must have all name servers in its option namesrvAddr."
            " A broker that has just started registers within 30 seconds.",
            command="eruca broker config get namesrvAddr"
            if kind == "broker"
            else write_command("route", "compare", names[0]),
        )


def _shorten(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more


# --- replication ------------------------------------------------------------------------------------------------------


def check_slaves(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find slaves that are far behind their master, or not connected to it."""
    for row in picture.slaves:
        where = name_broker(row.broker, row.address)
        evidence = {"lag_bytes": row.lag_bytes, "lag_seconds": row.lag_seconds, "master": row.master}
        if not row.connected:
            yield Finding(
                id="slave-disconnected",
                severity=Severity.WARNING,
                what="The slave is not connected to its master and copies nothing.",
                where=where,
                evidence=evidence,
                advice="Look at the log of the slave. Its master must be reachable on its replication port.",
                command=write_command("cluster", "replicas", row.broker),
            )
        elif row.lag_bytes >= rules.slave_lag_bytes or (row.lag_seconds or 0) >= rules.slave_lag:
            yield Finding(
                id="slave-behind",
                severity=Severity.WARNING,
                what=f"The slave is {_say_lag(row)} behind its master.",
                where=where,
                evidence=evidence,
                advice="If this does not shrink, the network or the disk of the slave is too slow for the traffic.",
                command=write_command("cluster", "lag", row.broker),
            )


def _say_lag(row: Lag) -> str:
    text = f"{row.lag_bytes:,} bytes"
    return text if row.lag_seconds is None else f"{text} and {format_duration(row.lag_seconds)}"


def check_copies(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find masters with too few slaves in sync for the copies that they wait for."""
    for row in picture.members:
        state = row.state
        if state is None or state.role != MASTER:
            continue
        copies = 1 + sum(slave.in_sync for slave in state.slaves)
        if copies >= max(state.required, 2 if _expects_slaves(state) else 1):
            continue
        refuses = copies < state.required
        yield Finding(
            id="insync-too-small",
            severity=Severity.CRITICAL if refuses else Severity.WARNING,
            what=f"Only {copies} of {max(state.required, len(state.members))} members have the latest messages"
            + (f"; sends wait for {state.required} and fail." if refuses else "; if the master is lost, so are they."),
            where=name_broker(row.broker, row.address),
            evidence={"copies": copies, "required": state.required, "members": len(state.members)},
            advice="Start the slaves that are away. Those that answer must be connected and in sync. If one is gone for"
            " good, have the others forget it: eruca cluster forget.",
            command=write_command("cluster", "replicas", row.broker),
        )


def _expects_slaves(state: ReplicationState) -> bool:
    return state.sync and len(state.members) > 1


# --- disk, clock, load ------------------------------------------------------------------------------------------------


def check_disks(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find disks so full that brokers delete early or refuse messages, now or soon."""
    for row in picture.health:
        ratio = row.log_disk_ratio
        if ratio is None or ratio < 0:
            continue
        options = picture.options.get(row.address, {})
        soon, force, refuse = [(read_digits(options.get(key)) or usual) / 100 for key, usual in _DISK_KEYS.items()]
        if ratio < min(soon, force, refuse):
            continue
        effect = "Messages that have expired are deleted at any hour, not only at that of deleteWhen."
        if ratio >= refuse:
            effect = "The broker refuses messages."
        elif ratio >= force:
            effect = "The broker deletes messages before they expire, also those that nobody has consumed."
        free = {} if row.disk_free_bytes is None else {"free_bytes": row.disk_free_bytes}
        yield Finding(
            id="disk-full",
            severity=Severity.CRITICAL if ratio >= min(force, refuse) else Severity.WARNING,
            what=f"The disk of the commit log is {ratio:.0%} full. {effect}",
            where=name_broker(row.broker, row.address),
            evidence={"used": ratio, "deletes_at": soon, "deletes_early_at": force, "refuses_at": refuse, **free},
            advice="Free space, add disk, or keep messages for a shorter time.",
            command=write_command("broker", "config", "set", "fileReservedTime=24", "--broker", row.broker),
        )


def check_clocks(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find brokers whose clock differs from that of this machine."""
    known = [row for row in picture.health if row.clock_ahead is not None]
    off = [row for row in known if abs(_find_ahead(row)) > rules.clock]
    for row in off:
        ahead = _find_ahead(row)
        ours = (
            " All brokers differ alike, so the clock of this machine may be wrong." if _is_alike(known, rules) else ""
        )
        yield Finding(
            id="clock-apart",
            severity=Severity.CRITICAL if abs(ahead) > rules.clock_critical else Severity.WARNING,
            what=f"Its clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this machine's.{ours}",
            where=name_broker(row.broker, row.address),
            evidence={"ahead_seconds": round(ahead, 3)},
            advice="Synchronise the clocks (chrony, NTP): delays, retention and resets by time depend on them.",
        )


def _find_ahead(row: Health) -> float:
    """Return by how many seconds a clock is certainly off: the request may have taken the rest."""
    ahead = row.clock_ahead.total_seconds() if row.clock_ahead is not None else 0.0
    trip = row.round_trip.total_seconds() if row.round_trip is not None else 0.0
    return max(0.0, abs(ahead) - trip) * (1 if ahead > 0 else -1)


def _is_alike(rows: list[Health], rules: Rules) -> bool:
    values = [_find_ahead(row) for row in rows]
    return len(values) > 1 and max(values) - min(values) <= rules.clock


def check_load(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find masters that store far more than the others of their cluster."""
    addresses = {row.address: row for row in picture.health if row.broker_id == MASTER_ID}
    rates: dict[str, dict[str, float]] = {}
    for row in picture.runtime:
        health = addresses.get(row.address)
        if health is not None and row.put_rates:
            # The rate of a minute if there is one yet.
            rates.setdefault(health.cluster, {})[row.broker] = row.put_rates[min(1, len(row.put_rates) - 1)]
    for cluster, by_broker in sorted(rates.items()):
        busiest = max(by_broker, key=lambda name: by_broker[name])
        others = [rate for name, rate in by_broker.items() if name != busiest]
        if not others or sum(by_broker.values()) < rules.uneven_rate:
            continue
        mean = sum(others) / len(others)
        if by_broker[busiest] >= rules.uneven_brokers * mean:
            yield Finding(
                id="brokers-uneven",
                severity=Severity.WARNING,
                what=f"It stores {by_broker[busiest]:.0f} messages per second, the others {mean:.0f} on average.",
                where=f"broker {busiest} of {cluster}",
                evidence={"rate": by_broker[busiest], "others_mean": mean, "brokers": len(by_broker)},
                advice="Give busy topics the same number of queues on every broker.",
                command="eruca topic list",
            )


def check_broker_permissions(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find brokers that are configured not to accept messages."""
    for row in picture.configs:
        permission = read_digits(row.options.get("brokerPermission"))
        if permission is not None and not permission & WRITE:
            yield Finding(
                id="broker-not-writable",
                severity=Severity.WARNING,
                what="The broker is configured not to accept messages.",
                where=name_broker(row.where, row.address),
                evidence={"brokerPermission": permission},
                advice="If this is not on purpose, allow it again.",
                command=write_command("broker", "config", "set", "brokerPermission=6", "--broker", row.where),
            )
