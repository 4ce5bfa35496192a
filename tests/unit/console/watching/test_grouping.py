"""Groups from queues: sums, rates, trends."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from eruca._admin.lag import QueueLag
from eruca._console.watching.aging import Aged
from eruca._console.watching.grouping import STUCK_S, add_members, find_trend, join_groups
from eruca._console.watching.samples import GroupSample, Still, Trend


def aged(queue: int, lag: int, *, age: float | None = None, still: float = 0.0, moved: int | None = 0) -> Aged:
    row = QueueLag(group="billing", topic="orders", broker="broker-a", queue=queue, offset=100, end=100 + lag, lag=lag)
    return Aged(row, age, still, False, moved, moved)


def test_sums_and_the_worst_queue() -> None:
    rows = [aged(0, 5, age=3.0, still=2.0), aged(1, 7, age=90.0, still=80.0, moved=20), aged(2, 0)]
    group = join_groups(rows, timedelta(seconds=10))["billing"]
    assert (group.lag, group.queues, group.behind, group.age) == (12, 3, 2, 90.0)
    assert (group.incoming, group.outgoing) == (2.0, 2.0)
    assert group.still == Still(topic="orders", broker="broker-a", queue=1, seconds=80.0)
    assert group.trend is Trend.STUCK


def test_the_first_look_has_no_rates() -> None:
    group = join_groups([aged(0, 5, moved=None)], None)["billing"]
    assert (group.incoming, group.outgoing) == (None, None)


def still(seconds: float) -> Still:
    return Still(topic="orders", broker="broker-a", queue=0, seconds=seconds)


@pytest.mark.parametrize(
    ("sample", "trend"),
    [
        ({"lag": 0}, Trend.QUIET),
        ({"lag": 0, "incoming": 1.0, "outgoing": 1.0}, Trend.CURRENT),
        ({"lag": 3, "age": 1.0, "incoming": 1.0, "outgoing": 1.0}, Trend.CURRENT),
        ({"lag": 3, "age": 60.0, "incoming": 1.0, "outgoing": 2.0}, Trend.CATCHING_UP),
        ({"lag": 3, "age": 60.0, "incoming": 2.0, "outgoing": 1.0}, Trend.FALLING_BEHIND),
        ({"lag": 3, "age": 600.0, "still": still(STUCK_S)}, Trend.STUCK),
        ({"lag": 3, "age": 600.0, "still": still(STUCK_S), "members": 1}, Trend.STUCK),
        ({"lag": 3, "age": 600.0, "still": still(STUCK_S), "members": 0}, Trend.ABSENT),
    ],
)
def test_trend(sample: dict[str, object], trend: Trend) -> None:
    assert find_trend(msgspec.convert({"group": "g", "trend": "quiet", **sample_plain(sample)}, GroupSample)) is trend


def sample_plain(sample: dict[str, object]) -> dict[str, object]:
    return {name: msgspec.to_builtins(value) for name, value in sample.items()}


def test_members_change_the_trend() -> None:
    groups = join_groups([aged(0, 5, age=600.0, still=600.0)], timedelta(seconds=10))
    add_members(groups, {"billing": 0})
    assert groups["billing"].trend is Trend.ABSENT
