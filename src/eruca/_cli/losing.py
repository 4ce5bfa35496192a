"""What a change takes away: read queues, rights, time that messages are kept. Commands ask before such a change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from eruca._ground.digits import read_digits
from eruca.admin import Account, Changed, GroupSettings, TopicSettings

# What a right may be, and what it allows.
_RIGHTS = {"PUB": "PUB", "SUB": "SUB", "PUB|SUB": "PUB|SUB", "ANY": "PUB|SUB"}
_BOTH = 6


def ask_if_losing(planned: Changed[Any], question: str) -> str:
    """Return the question, after what the change would take away; empty if it takes nothing away."""
    losses = dict.fromkeys(
        loss
        for change in planned.changes
        if change.before is not None and change.after is not None
        for loss in list_losses(change.before, change.after)
    )
    return f"{'; '.join([*losses, *planned.warnings])}. {question}" if losses else ""


def list_losses(before: Any, after: Any) -> list[str]:
    """Return what somebody can no longer do, or no longer has, after a change."""
    if isinstance(before, TopicSettings):
        return list(_compare_topics(before, after))
    if isinstance(before, GroupSettings):
        return ["The group gets no more messages"] if before.consume and not after.consume else []
    if isinstance(before, Account):
        return list(_compare_accounts(before, after))
    return list(_compare_options(before, after)) if isinstance(before, Mapping) else []


def _compare_topics(before: TopicSettings, after: TopicSettings) -> Iterator[str]:
    if after.read_queues < before.read_queues:
        yield f"Consumers read {after.read_queues} instead of {before.read_queues} queues"
    if "R" in before.permission and "R" not in after.permission:
        yield "Consumers get no messages"
    if "W" in before.permission and "W" not in after.permission:
        yield "Producers are refused"


def _compare_accounts(before: Account, after: Account) -> Iterator[str]:
    if before.admin and not after.admin:
        yield "It is no longer an administrator"
    for kind, old, new, default in (
        ("topic", before.topics, after.topics, (before.default_topic, after.default_topic)),
        ("group", before.groups, after.groups, (before.default_group, after.default_group)),
    ):
        if _lists_less([default[0]], [default[1]]):
            yield f"It loses rights on every {kind} that is not named"
        names = [
            name for name in {**old, **new} if _lists_less([old.get(name, default[0])], [new.get(name, default[1])])
        ]
        if names:
            yield f"It loses rights on {kind} {', '.join(sorted(names))}"


def _lists_less(before: Iterable[str], after: Iterable[str]) -> bool:
    old, new = [
        {right for text in texts for right in _RIGHTS.get(text, "").split("|") if right} for texts in (before, after)
    ]
    return bool(old - new)


def _compare_options(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    hours = [read_digits(options.get("fileReservedTime")) for options in (before, after)]
    if hours[0] is not None and hours[1] is not None and hours[1] < hours[0]:
        yield f"Messages are deleted after {hours[1]} instead of {hours[0]} hours, read or not"
    rights = [read_digits(options.get("brokerPermission", "")) for options in (before, after)]
    if rights[0] is not None and rights[1] is not None and rights[0] & ~rights[1] & _BOTH:
        yield f"The permission of the broker shrinks from {rights[0]} to {rights[1]}"
