"""The history of lag and rates: stored sparsely, in three resolutions, deleted in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from eruca._console.state import State
from eruca._console.watching.history import BROKER, GROUP, KEPT, History, choose_step
from eruca._console.watching.samples import BrokerSample, GroupSample, Sample

T0 = datetime(2026, 11, 19, 12, tzinfo=UTC)


def look(seconds: float, *groups: GroupSample, cluster: str = "main", known: bool = True) -> Sample:
    return Sample(
        cluster=cluster,
        at=T0 + timedelta(seconds=seconds),
        groups={each.group: each for each in groups},
        brokers=[BrokerSample(broker="broker-a", incoming=5.0, outgoing=4.0, disk=0.5)],
        groups_known=known,
    )


def group(lag: int, *, name: str = "billing", age: float | None = None, rate: float = 0.0) -> GroupSample:
    return GroupSample(group=name, lag=lag, age=age, incoming=rate, outgoing=rate)


async def test_every_look_is_a_point_and_silence_is_zero(state: State) -> None:
    history = History(state)
    await history.add(look(0, group(5, age=1.0, rate=2.0)))
    await history.add(look(10, group(0)))
    await history.add(look(20, group(7, age=3.0)))
    points = await history.read("main", GROUP, "billing", T0, T0 + timedelta(minutes=1))
    assert [(point.lag, point.age, point.incoming) for point in points] == [
        (5, 1.0, 2.0),
        (0, None, 0.0),
        (7, 3.0, 0.0),
    ]
    assert [point.at for point in points] == [T0 + timedelta(seconds=each) for each in (0, 10, 20)]
    rows = await state.read("SELECT count(*) FROM points JOIN series ON id = series WHERE step = 0 AND kind = 'group'")
    assert rows[0][0] == 2  # nothing is stored of a quiet group


async def test_longer_spans_have_the_highest_lag_and_the_mean_rate(state: State) -> None:
    history = History(state)
    for number in range(60):
        await history.add(look(10 * number, group(number, age=float(number), rate=6.0 if number % 2 else 0.0)))
    points = await history.read("main", GROUP, "billing", T0, T0 + timedelta(hours=24))
    assert [(point.lag, point.age, point.incoming) for point in points] == [(29, 29.0, 3.0), (59, 59.0, 3.0)]
    points = await history.read("main", GROUP, "billing", T0, T0 + timedelta(days=20))
    assert [(point.lag, point.incoming) for point in points] == [(59, 3.0)]


async def test_clusters_and_kinds_are_apart(state: State) -> None:
    history = History(state)
    await history.add(look(0, group(5)))
    await history.add(look(0, group(9), cluster="other"))
    until = T0 + timedelta(minutes=1)
    assert [point.lag for point in await history.read("other", GROUP, "billing", T0, until)] == [9]
    (point,) = await history.read("main", BROKER, "broker-a", T0, until)
    assert (point.lag, point.incoming, point.outgoing) == (50, 5.0, 4.0)
    found = await history.read_many("main", GROUP, ["billing", "unknown"], T0, until)
    assert [[point.lag for point in found[name]] for name in ("billing", "unknown")] == [[5], [0]]


async def test_a_look_that_missed_a_broker_is_a_gap(state: State) -> None:
    history = History(state)
    await history.add(look(0, group(5)))
    await history.add(look(10, known=False))
    points = await history.read("main", GROUP, "billing", T0, T0 + timedelta(minutes=1))
    assert [point.lag for point in points] == [5]


async def test_what_is_too_old_is_deleted_by_resolution(state: State) -> None:
    history = History(state)
    await history.add(look(0, group(5)))
    for after, left in [
        (timedelta(hours=2), 3),
        (timedelta(hours=4), 2),
        (timedelta(days=3), 1),
        (timedelta(days=31), 0),
    ]:
        while await history.prune(T0 + after):
            pass
        rows = await state.read("SELECT count(*) FROM points JOIN series ON id = series WHERE kind = 'group'")
        assert rows[0][0] == left, after
    assert (await state.read("SELECT count(*) FROM series"))[0][0] == 0
    assert (await state.read("SELECT count(*) FROM looks"))[0][0] == 0


def test_resolution_of_a_span() -> None:
    assert choose_step(T0, T0 + timedelta(hours=3)) == 0
    assert choose_step(T0, T0 + timedelta(hours=4)) == 300
    assert choose_step(T0, T0 + timedelta(days=7)) == 3600
    assert choose_step(T0, T0 + timedelta(days=300)) == 3600
    assert list(KEPT) == sorted(KEPT)
