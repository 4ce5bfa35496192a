"""Why a group is behind, in plain sentences: from a look at the group, what its owner is doing, and the watch.

Pure: facts in, sentences out. A sentence is the key of a text with its values, so that it exists in every language.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from eruca._admin.clients import HeldQueue, RunningInfo
from eruca._admin.groupqueues import GroupQueue
from eruca._admin.groups import Group
from eruca._console.watching.samples import GroupSample, Trend
from eruca._wire.names import RETRY_PREFIX

# A message that waits for less is on its way.
_CURRENT: Final = timedelta(seconds=5)
_STUCK: Final = timedelta(seconds=60)
_BROADCASTING: Final = "broadcasting"


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence of a diagnosis."""

    # The text `diagnosis.<key>`, and its values.
    key: str
    values: Mapping[str, Any] = {}
    # ok, warning, error or muted; the worst one is the tone of the whole.
    tone: str = "muted"


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Why a group is behind."""

    headline: Sentence
    reasons: list[Sentence]
    # The queue that is worst, if one is.
    worst: GroupQueue | None = None


def find_worst(group: Group) -> GroupQueue | None:
    """Return the queue whose next message has been waiting longest."""
    behind = [row for row in group.queues if row.lag]
    if not behind:
        return None
    return max(behind, key=lambda row: (row.lag_time or timedelta(), row.lag))


def diagnose(group: Group, sample: GroupSample | None, running: RunningInfo | None, now: datetime) -> Diagnosis:
    """Return why a group is behind. `running` is what the owner of the worst queue is doing, if it could be asked."""
    worst = find_worst(group)
    if worst is None:
        return Diagnosis(headline=Sentence(key="well", tone="ok"), reasons=list(_list_hints(group)))
    headline = _find_headline(group, sample, worst)
    reasons = list(_explain(group, sample, worst, running, now))
    return Diagnosis(headline=headline, reasons=[*reasons, *_list_hints(group)], worst=worst)


def _find_headline(group: Group, sample: GroupSample | None, worst: GroupQueue) -> Sentence:
    facts = {"lag": group.lag, "age": group.lag_time}
    if not group.members:
        return Sentence(key="absent", values=facts, tone="error")
    if group.lag_time is not None and group.lag_time < _CURRENT:
        return Sentence(key="current", values=facts, tone="ok")
    if _is_stuck(sample, worst):
        return Sentence(key="stuck", values=_name(worst), tone="error")
    if sample is not None and sample.incoming is not None and sample.outgoing is not None:
        rates = {"incoming": sample.incoming, "outgoing": sample.outgoing}
        if not sample.incoming and not sample.outgoing:
            return Sentence(key="idle", values=facts, tone="warning")
        gain = sample.outgoing - sample.incoming
        if gain > 0:
            left = timedelta(seconds=min(group.lag / gain, timedelta.max.total_seconds() // 2))
            return Sentence(key="catching_up", values={**facts, **rates, "left": left}, tone="warning")
        return Sentence(key="falling_behind", values={**facts, **rates, "loss": -gain}, tone="warning")
    return Sentence(key="behind", values=facts, tone="warning")


def _is_stuck(sample: GroupSample | None, worst: GroupQueue) -> bool:
    """Whether the worst queue does not move; what was seen over time counts more than one moment."""
    if sample is None or sample.outgoing is None:
        return (worst.lag_time or timedelta()) >= _STUCK
    return sample.trend in (Trend.STUCK, Trend.ABSENT)


def _explain(
    group: Group, sample: GroupSample | None, worst: GroupQueue, running: RunningInfo | None, now: datetime
) -> Iterator[Sentence]:
    yield from _explain_message(worst)
    still = None if sample is None else sample.still
    is_same = still is not None and (still.topic, still.broker, still.queue) == (worst.topic, worst.broker, worst.queue)
    if not group.members:
        return
    if not worst.owner:
        if group.model != _BROADCASTING:
            yield Sentence(key="no_owner", values=_name(worst), tone="error")
    elif still is not None and is_same:
        key = "owner_still_at_least" if still.is_minimum else "owner_still"
        since = timedelta(seconds=still.seconds)
        yield Sentence(key=key, values={"owner": worst.owner, "since": since, "at": now - since}, tone="error")
    else:
        yield Sentence(key="owner", values={"owner": worst.owner})
    if running is not None and worst.owner:
        yield from _explain_owner(worst, running)


def _explain_message(worst: GroupQueue) -> Iterator[Sentence]:
    message = worst.stuck_on
    if message is None:
        yield Sentence(key="message_gone" if worst.lag else "message_unknown", values=_name(worst))
        return
    yield Sentence(
        key="message",
        values={**_name(worst), "message": message.message_id, "stored_at": message.stored_at, "age": worst.lag_time},
    )
    if message.tries:
        yield Sentence(key="tries", values={"count": message.tries}, tone="warning")


def _explain_owner(worst: GroupQueue, running: RunningInfo) -> Iterator[Sentence]:
    held = find_held(running, worst)
    if held is None:
        yield Sentence(key="not_held", values={"owner": worst.owner}, tone="warning")
        return
    if held.cached:
        values = {"owner": worst.owner, "cached": held.cached, "from": held.cached_from, "to": held.cached_to}
        yield Sentence(key="fetched", values=values, tone="warning")
        if held.consumed_at is not None:
            yield Sentence(key="finished", values={"owner": worst.owner, "at": held.consumed_at})
    elif held.pulled_at is not None:
        yield Sentence(key="pulled", values={"owner": worst.owner, "at": held.pulled_at})
    for pace in running.paces:
        if pace.topic == worst.topic and pace.failed_rate > 0:
            yield Sentence(key="fails", values={"rate": pace.failed_rate, "hour": pace.failed_hour}, tone="error")
        elif pace.topic == worst.topic and pace.done_rate > 0:
            yield Sentence(key="pace", values={"rate": pace.done_rate, "time": pace.handling_time})


def find_held(running: RunningInfo, row: GroupQueue) -> HeldQueue | None:
    """Return what a member holds of a queue."""
    for held in running.queues:
        if (held.topic, held.broker, held.queue) == (row.topic, row.broker, row.queue) and not held.dropped:
            return held
    return None


def _list_hints(group: Group) -> Iterator[Sentence]:
    """Yield what else is worth knowing."""
    if group.dead_letters:
        yield Sentence(key="dead_letters", values={"count": group.dead_letters}, tone="warning")
    waiting = sum(row.lag for row in group.queues if row.topic.startswith(RETRY_PREFIX))
    if waiting:
        yield Sentence(key="retries", values={"count": waiting}, tone="warning")


def _name(row: GroupQueue) -> dict[str, Any]:
    return {"topic": row.topic, "broker": row.broker, "queue": row.queue, "age": row.lag_time, "lag": row.lag}


def list_twice(group: Group) -> list[str]:
    """Return the client ids that several members use."""
    ids = [member.client_id for member in group.members]
    return sorted({each for each in ids if ids.count(each) > 1})


def count_versions(group: Group) -> list[tuple[str, int]]:
    """Return how many members have which language and version, the most frequent first."""
    counts: dict[str, int] = {}
    for member in group.members:
        name = f"{member.language} {member.version}".strip()
        counts[name] = counts.get(name, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def list_owned(group: Group, client_id: str) -> Sequence[GroupQueue]:
    """Return the queues of a member."""
    return [row for row in group.queues if row.owner == client_id]
