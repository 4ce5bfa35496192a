"""How `eruca group show` draws a group: facts, members, queues, and what it is stuck on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from eruca._cli.tables import make_table
from eruca._cli.viewing import View, view_list
from eruca._ground.printable import format_duration, say_count
from eruca._wire.names import RETRY_PREFIX
from eruca.admin import Difference, Group, GroupQueue, Listed, Subscribed

if TYPE_CHECKING:
    from rich.console import RenderableType

_NAMED_MAX = 3


def list_faults(found: Group) -> list[str]:
    """Return what is wrong with a group, one line each."""
    faults = []
    behind = [queue for queue in found.queues if queue.lag]
    if behind and not found.members:
        faults.append(f"{say_count(found.lag, 'message', 'wait')} and no member is connected; start one")
    elif found.members:
        # Members of other makes do not tell what they own; then all queues are without owner.
        knows_owners = any(queue.owner for queue in found.queues)
        orphans = [queue for queue in behind if not queue.owner]
        if knows_owners and orphans:
            names = ", ".join(map(_name, orphans[:_NAMED_MAX])) + (", ..." if len(orphans) > _NAMED_MAX else "")
            faults.append(f"messages wait in queues without an owner: {names}")
    if found.differences:
        topics = ", ".join(difference.topic for difference in found.differences)
        faults.append(
            f"members differ in their subscriptions to {topics}; `eruca group differences {found.name}` shows how"
        )
    if found.brokers and not any(row.settings.consume for row in found.brokers):
        faults.append(f"it may not consume; `eruca group update {found.name} --consume` lets it")
    return faults


def _name(queue: GroupQueue) -> str:
    return f"{queue.topic} {queue.broker}:{queue.queue}"


def draw_group(found: Group) -> Iterator[RenderableType]:
    """Return the tables of a group."""
    facts = [
        ("lag", f"{say_count(found.lag, 'message')}, {format_duration(found.lag_time)}" if found.lag else "none"),
        ("members", str(len(found.members))),
        ("model", " ".join(word for word in (found.model, found.kind) if word)),
        ("starts", found.start),
        ("fetches", f"{found.rate:.1f} messages/s in the last minute"),
        ("dead letters", f"{found.dead_letters}; eruca dlq list {found.name}" if found.dead_letters else "none"),
        ("subscriptions", "\n".join(map(_say_subscription, found.subscriptions))),
    ]
    for text, brokers in _list_settings(found):
        facts.append(("settings" if brokers is None else f"settings on {brokers}", text))
    yield make_table([found.name, ""], [(name, value) for name, value in facts if value])
    if found.members:
        rows = [
            (row.client_id, row.address, f"{row.language} {row.version}", str(_count_owned(found, row.client_id)))
            for row in found.members
        ]
        yield make_table(["member", "address", "client", ">queues"], rows)
    # Its own retry topic last: it is empty most of the time.
    queues = sorted(found.queues, key=lambda queue: queue.topic.startswith(RETRY_PREFIX))
    if queues:
        yield _draw_queues(queues)
    stuck = [queue for queue in queues if queue.stuck_on is not None]
    if stuck:
        yield make_table(["topic", "next message of", "message id", "keys", "tags", ">tries"], map(_draw_stuck, stuck))


def _count_owned(found: Group, client_id: str) -> int:
    return Counter(queue.owner for queue in found.queues)[client_id]


def _say_subscription(row: Subscribed) -> str:
    return f"{row.topic}: {row.expression}" + ("" if row.kind == "TAG" else f" ({row.kind})")


def _list_settings(found: Group) -> Iterator[tuple[str, str | None]]:
    """Yield each set of settings, with the brokers that have it; None if all have the same."""
    by_text: dict[str, list[str]] = {}
    for row in found.brokers:
        settings = row.settings
        words = [f"{settings.retries} retries"]
        words += [] if settings.consume else ["may not consume"]
        words += [] if settings.broadcast else ["no broadcasting"]
        words += [] if settings.notify else ["members are not notified"]
        by_text.setdefault(", ".join(words), []).append(row.broker)
    for text, brokers in by_text.items():
        yield text, None if len(by_text) == 1 else ", ".join(brokers)


def _draw_queues(queues: list[GroupQueue]) -> RenderableType:
    columns = ["topic", "queue", ">offset", ">end", ">lag", ">waiting", "owner"]
    return make_table(columns, map(_draw_queue, queues))


def _draw_queue(row: GroupQueue) -> tuple[str, ...]:
    numbers = ("-" if row.offset is None else str(row.offset), str(row.end), str(row.lag))
    return (row.topic, f"{row.broker}:{row.queue}", *numbers, format_duration(row.lag_time), row.owner or "-")


def _draw_stuck(row: GroupQueue) -> tuple[str, ...]:
    message = row.stuck_on
    assert message is not None
    words = (message.message_id, " ".join(message.keys), message.tags)
    return (row.topic, f"{row.broker}:{row.queue}", *words, str(message.tries))


def view_differences(listed: Listed[Difference], group: str) -> View:
    """Return the view of subscriptions that differ: one row per member and topic."""
    rows = [
        (row.topic, client, "not subscribed" if found is None else f"{found.expression} ({found.kind})")
        for row in listed.items
        for client, found in sorted(row.by_member.items())
    ]
    shown = view_list(
        listed,
        [],
        lambda _: [],
        empty=f"the members of group {group} do not differ, or none is connected",
        is_wrong=bool(rows),
    )
    tables: Iterable[RenderableType] = [make_table(["topic", "member", "subscription"], rows)]
    return View(
        value=shown.value,
        draw=lambda: tables,
        is_list=True,
        problems=shown.problems,
        empty=shown.empty,
        is_wrong=shown.is_wrong,
    )
