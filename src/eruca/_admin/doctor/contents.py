"""Checks of what brokers hold: dead letters, transactions in doubt, messages that expire unread, topics."""

from __future__ import annotations

from collections.abc import Iterator

from eruca._admin.doctor.findings import Finding, Rules, Severity
from eruca._admin.doctor.groups import name_group, name_queue
from eruca._admin.doctor.picture import Picture
from eruca._admin.queueends import QueueEnds
from eruca._admin.topics import TopicKind, find_kind
from eruca._admin.transactiontable import State
from eruca._ground.commandlines import write_command
from eruca._ground.digits import read_digits
from eruca._ground.printable import format_duration, say_count

# What brokers use unless they are configured otherwise.
_HOURS_KEPT = 72
_SECONDS_OF_HOUR = 3600
_NAMED_MAX = 5


# --- retention --------------------------------------------------------------------------------------------------------


def check_deleted_unread(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find groups whose next messages are no longer there."""
    for group in picture.groups:
        gone = [
            (row, row.offset, begin)
            for row in group.queues
            if (begin := picture.begins.get((row.topic, row.broker, row.queue), 0)) > (row.offset or 0)
            and row.offset is not None
        ]
        if not gone:
            continue
        lost = sum(begin - offset for _, offset, begin in gone)
        queue, offset, begin = gone[0]
        yield Finding(
            id="unread-deleted",
            severity=Severity.CRITICAL,
            what=f"The broker has deleted {say_count(lost, 'message')} that the group did not consume:"
            f" {name_queue(queue)}.",
            where=name_group(group.name),
            evidence={"deleted_messages": lost, "queues": len(gone), "offset": offset, "begin": begin},
            advice="They cannot be brought back from this broker; look for an archive. Keep messages for longer, or"
            " start more members.",
            command=write_command("group", "show", group.name),
        )


def check_expiring(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find groups that are so late that messages will be deleted before they are consumed."""
    kept = {
        row.where: (read_digits(row.options.get("fileReservedTime")) or _HOURS_KEPT) * _SECONDS_OF_HOUR
        for row in picture.configs
    }
    for group in picture.groups:
        late = [
            (row.lag_time.total_seconds(), row)
            for row in group.queues
            if row.lag_time is not None
            and row.lag
            and row.lag_time.total_seconds() >= rules.expiring_share * kept.get(row.broker, _HOURS_KEPT * 3600)
        ]
        if not late:
            continue
        seconds, row = max(late, key=lambda pair: pair[0])
        hours = kept.get(row.broker, _HOURS_KEPT * _SECONDS_OF_HOUR) / _SECONDS_OF_HOUR
        yield Finding(
            id="unread-expiring",
            severity=Severity.CRITICAL,
            what=f"Messages that the group has not consumed are {format_duration(seconds)} old, and the broker deletes"
            f" them after {hours:.0f} hours: {name_queue(row)}.",
            where=name_group(group.name),
            evidence={"oldest_seconds": round(seconds), "kept_hours": hours, "queues": len(late)},
            advice="Keep messages for longer now, then start more members.",
            command=write_command(
                "broker", "config", "set", f"fileReservedTime={2 * int(hours)}", "--broker", row.broker
            ),
        )


# --- dead letters and transactions ------------------------------------------------------------------------------------


def check_dead_letters(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find groups that gave up on messages, and those that still do."""
    for row in sorted(picture.letters, key=lambda row: -row.count):
        if not row.count:
            continue
        age = None if row.last_at is None else (picture.at - row.last_at).total_seconds()
        grows = age is not None and age <= rules.growing_within
        yield Finding(
            id="dead-letters-growing" if grows else "dead-letters",
            severity=Severity.WARNING if grows else Severity.INFO,
            what=f"The group has given up on {say_count(row.count, 'message')}"
            + (f", on the last one {format_duration(max(0.0, age))} ago." if age is not None else "."),
            where=name_group(row.group),
            evidence={"dead_letters": row.count, "last_seconds_ago": None if age is None else round(age)},
            advice="Look at some of them, repair the consumer, then send them again.",
            command=write_command("dlq", "list", row.group),
        )


def check_halves(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find transactions that nobody decides."""
    found: dict[str, list[float]] = {}
    given_up: dict[str, int] = {}
    for row in picture.halves:
        if row.state is State.GIVEN_UP:
            given_up[row.producer_group] = given_up.get(row.producer_group, 0) + 1
            continue
        age = 0.0 if row.stored_at is None else (picture.at - row.stored_at).total_seconds()
        if age >= rules.half_after:
            found.setdefault(row.producer_group, []).append(age)
    for group, ages in sorted(found.items()):
        yield Finding(
            id="halves-in-doubt",
            severity=Severity.WARNING,
            what=f"Nobody has decided {say_count(len(ages), 'transaction')}, the oldest for"
            f" {format_duration(max(ages))}. The messages are not delivered.",
            where=f"producer group {group}",
            evidence={"undecided": len(ages), "oldest_seconds": round(max(ages))},
            advice="Start a producer of the group that answers check-backs, or decide them.",
            command=write_command("txn", "list", "--group", group),
        )
    for group, count in sorted(given_up.items()):
        yield Finding(
            id="transactions-given-up",
            severity=Severity.WARNING,
            what=f"Brokers have given up asking about {say_count(count, 'transaction')}."
            " The messages will not be delivered.",
            where=f"producer group {group}",
            evidence={"given_up": count},
            advice="Start a producer of the group that answers check-backs, then have it asked again.",
            command=write_command("txn", "resume", "--all", "--group", group),
        )


def check_unreachable(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find topics with messages in queues that consumers do not read."""
    found: dict[str, list[QueueEnds]] = {}
    for row in picture.unreachable:
        if find_kind(row.topic, picture.own_names) is TopicKind.NORMAL:
            found.setdefault(row.topic, []).append(row)
    for topic, rows in sorted(found.items()):
        count = sum(row.count for row in rows)
        queues = 1 + max(row.queue for row in rows)
        names = ", ".join(f"{row.broker}:{row.queue}" for row in rows[:_NAMED_MAX])
        yield Finding(
            id="messages-out-of-reach",
            severity=Severity.WARNING,
            what=f"{say_count(count, 'message')} {'is' if count == 1 else 'are'} in queues beyond the read queues of"
            f" the topic, where no consumer gets them: {names}.",
            where=f"topic {topic}",
            evidence={"messages": count, "queues": len(rows)},
            advice="Let consumers read these queues again. To have fewer queues, lower the write queues first, and the"
            " read queues when the groups have consumed the rest.",
            command=write_command("topic", "update", topic, "--read-queues", str(queues)),
        )


# --- topics -----------------------------------------------------------------------------------------------------------


def check_topic_permissions(picture: Picture, rules: Rules) -> Iterator[Finding]:
    """Find topics that may not be written to, or not be read."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in picture.topics:
        if find_kind(row.topic, picture.own_names) is not TopicKind.NORMAL:
            continue
        for letter, kind in (("W", "topic-not-writable"), ("R", "topic-not-readable")):
            if letter not in row.settings.permission:
                found.setdefault((kind, row.topic), []).append(row.broker)
    for (kind, topic), brokers in sorted(found.items()):
        deed = "Producers are refused" if kind == "topic-not-writable" else "Consumers get no messages"
        yield Finding(
            id=kind,
            severity=Severity.WARNING,
            what=f"{deed} on {', '.join(sorted(brokers)[:_NAMED_MAX])}: the topic has no permission for it.",
            where=f"topic {topic}",
            evidence={"brokers": len(brokers)},
            advice="If this is not on purpose, allow both again.",
            command=write_command("topic", "permission", topic, "RW"),
        )
