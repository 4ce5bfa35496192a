"""When alarms fire and end: decisions without I/O.

An alarm is one rule that one target meets: pending until the rule's duration has passed, firing, acknowledged by
somebody, resolved. What is not seen does not change it: an alarm ends when its target is seen to be well again, or to
be gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from eruca._console.watching.rules import Fact, Rule, RuleKind

#: An alarm ends when its value has been below the threshold for the rule's duration, at most for this many seconds.
CALM_S_MAX: Final = 60.0
#: Alarms that are not resolved. Further targets wait until there is room: nobody reads ten thousand alarms.
ALARMS_MAX: Final = 2_000


class AlarmState(StrEnum):
    """The states of an alarm."""

    PENDING = "pending"
    FIRING = "firing"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """One rule that one target meets."""

    # 0 while it is pending: it is not stored then.
    id: int = 0
    rule: int
    rule_name: str
    kind: RuleKind
    cluster: str
    target: str
    state: AlarmState
    threshold: float
    # The value at the last look, and the highest.
    value: float
    peak: float
    detail: str = ""
    # Since when the value has been too high, and since when it has been below again.
    since: datetime
    calm_since: datetime | None = None
    fired_at: datetime | None = None
    acknowledged_by: str = ""
    acknowledged_at: datetime | None = None
    note: str = ""
    resolved_at: datetime | None = None

    @property
    def key(self) -> Key:
        """What it is an alarm of."""
        return self.rule, self.cluster, self.target

    @property
    def is_open(self) -> bool:
        """Whether it has fired and is not resolved."""
        return self.state in (AlarmState.FIRING, AlarmState.ACKNOWLEDGED)


Key: TypeAlias = tuple[int, str, str]


class Event(StrEnum):
    """What channels are told."""

    FIRING = "firing"
    RESOLVED = "resolved"
    ACKNOWLEDGED = "acknowledged"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Store:
    """Store an alarm, new or changed."""

    alarm: Alarm


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the channels of a rule about alarms."""

    event: Event
    rule: Rule
    alarms: tuple[Alarm, ...]


Action: TypeAlias = Store | Tell


class Alarms:
    """The alarms that are not resolved."""

    def __init__(self, opened: Iterable[Alarm] = (), next_id: int = 1) -> None:
        self._alarms = {alarm.key: alarm for alarm in opened}
        self._next_id = next_id

    @property
    def open(self) -> list[Alarm]:
        """Those that have fired and are not resolved, the newest first."""
        found = [alarm for alarm in self._alarms.values() if alarm.is_open]
        return sorted(found, key=lambda alarm: alarm.id, reverse=True)

    @property
    def pending(self) -> list[Alarm]:
        """Those whose duration has not passed yet."""
        return [alarm for alarm in self._alarms.values() if not alarm.is_open]

    def handle(
        self,
        cluster: str,
        rules: Sequence[Rule],
        facts: Iterable[Fact],
        complete: frozenset[RuleKind],
        now: datetime,
    ) -> list[Action]:
        """Take a look at a cluster and decide what to store and whom to tell.

        `complete` are the kinds of which a target without a fact is gone.
        """
        decided = _Decided({rule.id: rule for rule in rules}, now)
        by_kind: dict[RuleKind, list[Rule]] = {}
        for rule in rules:
            by_kind.setdefault(rule.kind, []).append(rule)
        seen: set[Key] = set()
        for fact in facts:
            for rule in by_kind.get(fact.kind, ()):
                if rule.covers(cluster, fact.target):
                    seen.add((rule.id, cluster, fact.target))
                    self._take(rule, cluster, fact, decided)
        self._end_vanished(cluster, seen, complete, decided)
        return decided.list_actions()

    def acknowledge(self, alarm_id: int, who: str, note: str, now: datetime) -> Alarm | None:
        """Note that somebody takes care of an alarm; returns it, or None if it is not firing."""
        for key, alarm in self._alarms.items():
            if alarm.id == alarm_id and alarm.state is AlarmState.FIRING:
                changed = msgspec.structs.replace(
                    alarm, state=AlarmState.ACKNOWLEDGED, acknowledged_by=who, acknowledged_at=now, note=note
                )
                self._alarms[key] = changed
                return changed
        return None

    def _take(self, rule: Rule, cluster: str, fact: Fact, decided: _Decided) -> None:
        now = decided.now
        key = (rule.id, cluster, fact.target)
        alarm = self._alarms.get(key)
        if fact.value >= rule.threshold:
            if alarm is None:
                if len(self._alarms) >= ALARMS_MAX:
                    return
                alarm = _begin(rule, cluster, fact, now)
            else:
                alarm = msgspec.structs.replace(
                    alarm,
                    value=fact.value,
                    peak=max(alarm.peak, fact.value),
                    detail=fact.detail,
                    threshold=rule.threshold,
                    rule_name=rule.name,
                    calm_since=None,
                )
            if not alarm.is_open and now - alarm.since >= timedelta(seconds=rule.duration):
                alarm = msgspec.structs.replace(alarm, id=self._next_id, state=AlarmState.FIRING, fired_at=now)
                self._next_id += 1
                decided.tell(Event.FIRING, alarm)
            self._alarms[key] = alarm
            if alarm.is_open:
                decided.actions.append(Store(alarm))
        elif alarm is not None and not fact.is_minimum:
            self._calm(rule, alarm, fact, decided)

    def _calm(self, rule: Rule, alarm: Alarm, fact: Fact, decided: _Decided) -> None:
        now = decided.now
        calm_since = alarm.calm_since or now
        if not alarm.is_open:
            del self._alarms[alarm.key]
        elif now - calm_since >= timedelta(seconds=min(rule.duration, CALM_S_MAX)):
            self._resolve(alarm, fact.value, decided)
        else:
            self._alarms[alarm.key] = msgspec.structs.replace(alarm, value=fact.value, calm_since=calm_since)
            decided.actions.append(Store(self._alarms[alarm.key]))

    def _resolve(self, alarm: Alarm, value: float, decided: _Decided) -> None:
        del self._alarms[alarm.key]
        resolved = msgspec.structs.replace(
            alarm, state=AlarmState.RESOLVED, value=value, calm_since=None, resolved_at=decided.now
        )
        decided.actions.append(Store(resolved))
        decided.tell(Event.RESOLVED, resolved)

    def _end_vanished(self, cluster: str, seen: set[Key], complete: frozenset[RuleKind], decided: _Decided) -> None:
        """End alarms whose target is gone, and those whose rule is gone or is about other targets now."""
        for alarm in [alarm for alarm in self._alarms.values() if alarm.cluster == cluster]:
            rule = decided.rules.get(alarm.rule)
            is_covered = rule is not None and rule.covers(cluster, alarm.target)
            if alarm.key in seen or (is_covered and alarm.kind not in complete):
                continue
            if alarm.is_open:
                self._resolve(alarm, 0.0, decided)
            else:
                del self._alarms[alarm.key]


@dataclass(slots=True)
class _Decided:
    """What one look has led to so far."""

    rules: dict[int, Rule]
    now: datetime
    actions: list[Action] = field(default_factory=list)
    _told: dict[tuple[Event, int], list[Alarm]] = field(default_factory=dict)

    def tell(self, event: Event, alarm: Alarm) -> None:
        """Tell the channels of the alarm's rule; alarms of one rule are told together."""
        self._told.setdefault((event, alarm.rule), []).append(alarm)

    def list_actions(self) -> list[Action]:
        """Return everything; a rule that is gone has no channels."""
        told = [
            Tell(event, self.rules[rule], tuple(alarms))
            for (event, rule), alarms in self._told.items()
            if rule in self.rules
        ]
        return [*self.actions, *told]


def _begin(rule: Rule, cluster: str, fact: Fact, now: datetime) -> Alarm:
    return Alarm(
        rule=rule.id,
        rule_name=rule.name,
        kind=rule.kind,
        cluster=cluster,
        target=fact.target,
        state=AlarmState.PENDING,
        threshold=rule.threshold,
        value=fact.value,
        peak=fact.value,
        detail=fact.detail,
        since=now,
    )
