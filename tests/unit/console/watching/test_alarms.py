"""When alarms fire and end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eruca._console.watching.alarms import ALARMS_MAX, Action, Alarm, Alarms, AlarmState, Event, Store, Tell
from eruca._console.watching.rules import Fact, Rule, RuleKind, list_complete, list_facts
from eruca._console.watching.samples import BrokerSample, GroupSample, Sample, SlaveSample, Still

T0 = datetime(2026, 11, 19, 12, tzinfo=UTC)
ALL = frozenset(RuleKind)


def rule(**changes: Any) -> Rule:
    return Rule(
        **{"id": 1, "name": "too far behind", "kind": RuleKind.LAG, "threshold": 100, "channels": (7,), **changes}
    )


class Watch:
    """A cluster that is looked at."""

    def __init__(self, *rules: Rule, alarms: Alarms | None = None) -> None:
        self.rules = list(rules)
        self.alarms = alarms or Alarms()

    def look(
        self, seconds: float, *facts: Fact, complete: frozenset[RuleKind] = ALL, cluster: str = "main"
    ) -> list[Action]:
        return self.alarms.handle(cluster, self.rules, facts, complete, T0 + timedelta(seconds=seconds))


def lag(value: float, target: str = "billing", *, is_minimum: bool = False) -> Fact:
    return Fact(kind=RuleKind.LAG, target=target, value=value, is_minimum=is_minimum)


def told(actions: list[Action]) -> list[tuple[Event, list[str]]]:
    return [(each.event, [alarm.target for alarm in each.alarms]) for each in actions if isinstance(each, Tell)]


def stored(actions: list[Action]) -> list[Alarm]:
    return [each.alarm for each in actions if isinstance(each, Store)]


def test_without_a_duration_it_fires_at_once_and_ends_at_once() -> None:
    watch = Watch(rule())
    assert watch.look(0, lag(99)) == []
    actions = watch.look(10, lag(100))
    assert told(actions) == [(Event.FIRING, ["billing"])]
    assert stored(actions)[0].state is AlarmState.FIRING
    assert told(watch.look(20, lag(150))) == []
    assert watch.alarms.open[0].peak == 150
    actions = watch.look(30, lag(20))
    assert told(actions) == [(Event.RESOLVED, ["billing"])]
    assert stored(actions)[0].resolved_at == T0 + timedelta(seconds=30)
    assert watch.alarms.open == []


def test_it_is_pending_until_the_duration_has_passed() -> None:
    watch = Watch(rule(duration=60))
    assert watch.look(0, lag(500)) == []
    assert [alarm.state for alarm in watch.alarms.pending] == [AlarmState.PENDING]
    assert watch.look(59, lag(500)) == []
    assert told(watch.look(60, lag(500))) == [(Event.FIRING, ["billing"])]


def test_a_moment_below_begins_the_duration_again() -> None:
    watch = Watch(rule(duration=60))
    watch.look(0, lag(500))
    watch.look(30, lag(5))
    assert watch.look(60, lag(500)) == []
    assert told(watch.look(120, lag(500))) == [(Event.FIRING, ["billing"])]


def test_a_moment_below_does_not_end_it() -> None:
    watch = Watch(rule(duration=30))
    watch.look(0, lag(500))
    watch.look(30, lag(500))
    assert told(watch.look(40, lag(5))) == []
    assert told(watch.look(50, lag(500))) == []
    assert told(watch.look(60, lag(5))) == []
    assert told(watch.look(90, lag(5))) == [(Event.RESOLVED, ["billing"])]


def test_acknowledged_by_whom_and_when() -> None:
    watch = Watch(rule())
    watch.look(0, lag(500))
    number = watch.alarms.open[0].id
    noted = watch.alarms.acknowledge(number, "ada", "restarting it", T0 + timedelta(seconds=5))
    assert noted is not None
    assert (noted.acknowledged_by, noted.acknowledged_at, noted.note) == (
        "ada",
        T0 + timedelta(seconds=5),
        "restarting it",
    )
    assert watch.alarms.acknowledge(number, "bob", "", T0) is None
    # It stays so while it lasts, and nobody is told again.
    assert told(watch.look(10, lag(700))) == []
    assert watch.alarms.open[0].state is AlarmState.ACKNOWLEDGED
    assert told(watch.look(20, lag(0))) == [(Event.RESOLVED, ["billing"])]


def test_what_is_not_known_ends_nothing() -> None:
    watch = Watch(rule())
    watch.look(0, lag(500))
    assert watch.look(10, lag(0, is_minimum=True)) == []
    assert watch.look(20, complete=frozenset()) == []
    assert watch.alarms.open[0].value == 500


def test_a_target_that_is_gone_is_well() -> None:
    watch = Watch(rule())
    watch.look(0, lag(500))
    assert told(watch.look(10)) == [(Event.RESOLVED, ["billing"])]


def test_a_rule_covers_names_by_prefix_and_one_cluster() -> None:
    watch = Watch(rule(prefix="pay-", cluster="main"), rule(id=2, enabled=False))
    assert told(watch.look(0, lag(500), lag(500, "pay-in"), lag(500, "pay-out"))) == [
        (Event.FIRING, ["pay-in", "pay-out"])
    ]
    assert watch.look(0, lag(500, "pay-in"), cluster="other") == []


@pytest.mark.parametrize("change", [{"enabled": False}, {"prefix": "x"}, {"cluster": "other"}])
def test_alarms_of_a_changed_rule_end(change: dict[str, Any]) -> None:
    watch = Watch(rule())
    watch.look(0, lag(500))
    watch.rules = [rule(**change)]
    assert told(watch.look(10, lag(500))) == [(Event.RESOLVED, ["billing"])]


def test_alarms_of_a_deleted_rule_end_and_nobody_is_told() -> None:
    watch = Watch(rule())
    watch.look(0, lag(500))
    watch.rules = []
    actions = watch.look(10, lag(500))
    assert told(actions) == []
    assert [alarm.state for alarm in stored(actions)] == [AlarmState.RESOLVED]


def test_open_alarms_outlive_a_restart() -> None:
    watch = Watch(rule())
    watch.look(0, lag(500))
    again = Watch(rule(), alarms=Alarms(watch.alarms.open, 2))
    assert told(again.look(10, lag(500))) == []
    assert told(again.look(20, lag(500), lag(500, "other"))) == [(Event.FIRING, ["other"])]
    assert sorted(alarm.id for alarm in again.alarms.open) == [1, 2]


def test_alarms_are_bounded() -> None:
    watch = Watch(rule())
    watch.look(0, *[lag(500, f"g{number}") for number in range(ALARMS_MAX + 10)])
    assert len(watch.alarms.open) == ALARMS_MAX


def test_facts_of_a_look() -> None:
    still = Still(topic="orders", broker="broker-a", queue=3, seconds=90.0, is_minimum=True)
    sample = Sample(
        cluster="main",
        at=T0,
        groups={
            "billing": GroupSample(group="billing", lag=12, age=100.0, still=still),
            "unknown": GroupSample(group="unknown", lag=12),
        },
        brokers=[
            BrokerSample(broker="broker-a", disk=0.815),
            BrokerSample(broker="broker-b", gone_since=T0 - timedelta(seconds=40)),
        ],
        slaves=[
            SlaveSample(slave="broker-a:1", connected=True, lag_bytes=10, lag_seconds=2.0),
            SlaveSample(slave="broker-a:2", connected=False, lag_bytes=10, lag_seconds=None),
            SlaveSample(slave="broker-a:3", connected=True, lag_bytes=10, lag_seconds=None),
        ],
        slaves_complete=False,
    )
    facts = {(fact.kind, fact.target): (fact.value, fact.is_minimum) for fact in list_facts(sample)}
    assert facts[RuleKind.LAG, "billing"] == (12, False)
    assert facts[RuleKind.AGE, "billing"] == (100.0, False)
    assert facts[RuleKind.AGE, "unknown"] == (0.0, True)
    assert facts[RuleKind.STUCK, "billing"] == (90.0, True)
    assert facts[RuleKind.DISK, "broker-a"] == (81.5, False)
    assert facts[RuleKind.BROKER, "broker-a"] == (0.0, False)
    assert facts[RuleKind.BROKER, "broker-b"] == (40.0, False)
    assert facts[RuleKind.REPLICATION, "broker-a:1"] == (2.0, False)
    assert facts[RuleKind.REPLICATION, "broker-a:2"][0] > 1e6
    assert facts[RuleKind.REPLICATION, "broker-a:3"] == (0.0, True)
    assert list_complete(sample) == frozenset({RuleKind.LAG, RuleKind.AGE, RuleKind.STUCK, RuleKind.BROKER})
