"""Checks of consumer groups: stuck, starved, absent, misconfigured, uneven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from eruca._admin.clients import ProducerClient
from eruca._admin.connections import Connected
from eruca._admin.doctor.findings import Finding, Rules, Severity
from eruca._admin.doctor.picture import Picture
from eruca._admin.groupqueues import GroupQueue
from eruca._admin.groups import Group
from eruca._ground.commandlines import write_command
from eruca._ground.printable import format_duration, say_count
from eruca._wire.names import RETRY_PREFIX
from eruca._wire.versions import ANCIENT

# A queue more or less is what dividing leaves over.
_FAIR_DIFFERENCE = 1
_NAMED_MAX = 5
_UNEVEN_QUEUES_MIN = 4
_BROADCASTING = "broadcasting"
_JAVA = "JAVA"


def name_group(group: str) -> str:
    """Return how findings name a group."""
    return f"group {group}"


def name_queue(row: GroupQueue) -> str:
    """Return how findings name a queue."""
    return f"{row.topic}, {row.broker}, queue {row.queue}"


# --- backlog ----------------------------------------------------------------------------------------------------------


def check_stuck(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find groups whose offset does not move in a queue although messages wait."""
    for group in picture.groups:
        if not group.members or group.model == _BROADCASTING:
            continue
        stuck = [row for row in group.queues if _is_stuck(row, group, picture, rules)]
        if not stuck:
            continue
        worst = max(stuck, key=_find_wait)
        message = f" The next message is {worst.stuck_on.message_id}." if worst.stuck_on is not None else ""
        owner = f" of {worst.owner}" if worst.owner else ""
        queues = [row for row in group.queues if row.lag or not row.topic.startswith(RETRY_PREFIX)]
        # Members that get past other messages are alive: then it is one message or one key. What they fetch proves
        # little: a member whose handler hangs fetches on, until it has as many messages as it may have.
        stands_still = not group.rate or len(stuck) == len(queues)
        yield Finding(
            id="group-stuck",
            severity=Severity.CRITICAL if stands_still else Severity.WARNING,
            what=f"{len(stuck)} of {len(queues)} queues did not move within {picture.between:.0f} s although"
            f" messages wait, the longest for {format_duration(_find_wait(worst))}: {name_queue(worst)}{owner}."
            f"{message}",
            where=name_group(group.name),
            evidence={
                "queues": len(stuck),
                "waiting_messages": sum(row.lag for row in stuck),
                "waiting_seconds": round(_find_wait(worst), 1),
                "offset": worst.offset,
                "end": worst.end,
                "owner": worst.owner,
                "rate": group.rate,
            },
            advice="See what the owner is doing: a handler that never returns, or one that always fails in order."
            if worst.owner
            else "No member reports that it has the queue; see what the members are doing.",
            command=write_command("client", "stack", group.name, worst.owner) if worst.owner else _show(group.name),
        )


def _show(group: str) -> str:
    return write_command("group", "show", group)


def _find_wait(row: GroupQueue) -> float:
    return 0.0 if row.lag_time is None else row.lag_time.total_seconds()


def _is_stuck(row: GroupQueue, group: Group, picture: Picture, rules: Rules) -> bool:
    before = picture.first_offsets.get((group.name, row.topic, row.broker, row.queue))
    return row.lag > 0 and before is not None and before == row.offset and _find_wait(row) >= rules.stuck_after


def check_absent(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find groups without members for which messages wait."""
    for name, lag in sorted(picture.lag_by_group.items(), key=lambda item: -item[1]):
        if name in picture.connected or lag < rules.absent_lag:
            continue
        topics = sorted({row.topic for row in picture.backlog if row.group == name})
        yield Finding(
            id="group-absent",
            severity=Severity.WARNING,
            what=f"{say_count(lag, 'message', 'wait')}, but no member is connected.",
            where=name_group(name),
            evidence={"waiting_messages": lag, "topics": ", ".join(topics[:_NAMED_MAX])},
            advice="Start its consumers. If the group is no longer used, delete it.",
            command=_show(name),
        )


def check_uneven_backlog(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find groups whose backlog is in one queue of many."""
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for row in picture.backlog:
        found.setdefault((row.group, row.topic), []).append((row.lag, f"{row.broker}, queue {row.queue}"))
    for (group, topic), rows in sorted(found.items()):
        total, (most, queue) = sum(lag for lag, _ in rows), max(rows)
        queues = picture.read_queues.get(topic, 0)
        if queues < _UNEVEN_QUEUES_MIN or total < rules.uneven_lag or most < rules.uneven_share * total:
            continue
        yield Finding(
            id="backlog-uneven",
            severity=Severity.WARNING,
            what=f"{most:,} of the {total:,} messages that wait in {topic} are in one of {queues} queues: {queue}.",
            where=name_group(group),
            evidence={"waiting_messages": total, "in_one_queue": most, "queues": queues},
            advice="Most messages have the same key, or the owner of this queue is slower than the other members.",
            command=write_command("group", "show", group, "--topic", topic),
        )


# --- members and queues -----------------------------------------------------------------------------------------------


def check_starved(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find groups with more members than queues."""
    for row in picture.connections:
        if row.model == _BROADCASTING:
            continue
        members = len({connection.client_id for connection in row.connections})
        topics = [item.topic for item in row.subscriptions if not item.topic.startswith(RETRY_PREFIX)]
        queues = max((picture.read_queues.get(topic, 0) for topic in topics), default=0)
        if not queues or members <= queues:
            continue
        names = ", ".join(topics[:_NAMED_MAX])
        yield Finding(
            id="group-starved",
            severity=Severity.WARNING,
            what=f"{members - queues} of {members} members get no messages: {names} has {queues} queues, and a"
            " queue has one owner.",
            where=name_group(row.group),
            evidence={"members": members, "queues": queues, "idle": members - queues},
            advice=f"Add queues to the topic, at least {members}, or stop the members that are too many.",
            command=write_command("topic", "update", topics[0], "--queues", members, "--dry-run"),
        )


def check_ownerless(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find queues with a backlog that no member of a group works on."""
    for group in picture.groups:
        # If no queue has an owner, the members do not report what they have, as some clients do.
        if group.model == _BROADCASTING or group.problems or not any(row.owner for row in group.queues):
            continue
        alone = [row for row in group.queues if not row.owner and row.lag and not row.topic.startswith(RETRY_PREFIX)]
        if not alone:
            continue
        yield Finding(
            id="queue-without-owner",
            severity=Severity.CRITICAL,
            what=f"No member works on {len(alone)} of {len(group.queues)} queues, for example {name_queue(alone[0])}.",
            where=name_group(group.name),
            evidence={"queues": len(alone), "waiting_messages": sum(row.lag for row in alone)},
            advice="All members must use the same strategy and the same subscriptions, and each must have its own"
            " client id. Restart those that do not.",
            command=_show(group.name),
        )


def check_uneven_members(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find members that have far more queues of a topic than others."""
    for group in picture.groups:
        if group.model == _BROADCASTING or group.problems or len(group.members) < 2:
            continue
        for topic in sorted({row.topic for row in group.queues}):
            if topic.startswith(RETRY_PREFIX):
                continue  # it has one queue
            owners = Counter(row.owner for row in group.queues if row.topic == topic and row.owner)
            if len(owners) < 2:
                continue
            (most, high), low = owners.most_common(1)[0], min(owners.values())
            if high - low > _FAIR_DIFFERENCE:
                yield Finding(
                    id="members-uneven",
                    severity=Severity.INFO,
                    what=f"Member {most} has {high} queues of {topic}, another has {low}.",
                    where=name_group(group.name),
                    evidence={"members": len(owners), "most": high, "fewest": low},
                    advice="Strategies may do this, such as consistent hashing. Otherwise members use different ones.",
                    command=write_command("group", "show", group.name, "--topic", topic),
                )


# --- settings of members ----------------------------------------------------------------------------------------------


def check_client_ids(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find client ids that several members of a group use."""
    for row in picture.connections:
        # A member is connected to every broker, once to each.
        twice = {
            (client_id, broker): count
            for (client_id, broker), count in Counter((c.client_id, c.broker) for c in row.connections).items()
            if count > 1
        }
        if not twice:
            continue
        (client_id, broker), count = next(iter(sorted(twice.items())))
        addresses = sorted(c.address for c in row.connections if (c.client_id, c.broker) == (client_id, broker))
        yield Finding(
            id="client-id-twice",
            severity=Severity.CRITICAL,
            what=f"Client id {client_id} is connected {count} times: {', '.join(addresses[:_NAMED_MAX])}. These"
            " members work on the same queues, and others are left without a member.",
            where=name_group(row.group),
            evidence={"ids": len({client_id for client_id, _ in twice}), "connections": count},
            advice="Each member needs a client id of its own: set a different instance name, or leave it unset.",
            command=write_command("group", "members", row.group),
        )


def check_subscriptions(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find groups whose members are not subscribed to the same."""
    for name, rows in sorted(picture.differences.items()):
        for row in rows:
            # Some clients add their retry topic one heartbeat later.
            if row.topic.startswith(RETRY_PREFIX):
                continue
            each = {
                client_id: "nothing" if found is None else f"{found.kind} {found.expression!r}"
                for client_id, found in sorted(row.by_member.items())
            }
            kinds = sorted(set(each.values()))
            if len(kinds) < 2:
                continue
            yield Finding(
                id="group-differs",
                severity=Severity.CRITICAL,
                what=f"Members are subscribed to {row.topic} differently: {', '.join(kinds[:_NAMED_MAX])}. Messages"
                " are skipped because a broker filters by the last one that it heard of.",
                where=name_group(name),
                evidence={"subscriptions": len(kinds), **dict(list(each.items())[:_NAMED_MAX])},
                advice="All members of a group must have the same subscriptions; use different groups otherwise.",
                command=_show(name),
            )


def check_versions(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find Java clients of old versions."""
    found: dict[str, set[str]] = {}
    connected = [each for row in picture.connections for each in row.connections]
    for client in chain[Connected | ProducerClient](connected, picture.producers):
        if client.language == _JAVA and _parse_version(client.version) < _parse_version(rules.client_version):
            found.setdefault(client.version, set()).add(client.client_id)
    for version, ids in sorted(found.items(), key=lambda item: _parse_version(item[0])):
        yield Finding(
            id="client-old",
            severity=Severity.INFO,
            what=f"{len(ids)} Java clients have version {version}: {', '.join(sorted(ids)[:_NAMED_MAX])}.",
            where="cluster",
            evidence={"version": version, "clients": len(ids)},
            advice=f"Update them to {rules.client_version} or later, which can sign requests and trace messages.",
        )


def _parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version for comparing; an unknown one is not old."""
    if text == ANCIENT:
        return (0,)
    parts = text.partition("-")[0].split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else (10**6,)
