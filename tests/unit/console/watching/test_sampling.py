"""What a look takes from what brokers report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from eruca._admin.results import Listed
from eruca._admin.runtime import Runtime
from eruca._console.watching.samples import Sample
from eruca._console.watching.sampling import Sampler


async def test_delivered_are_messages_and_not_pulls() -> None:
    """Pulls that find nothing are many when nothing happens."""
    report = Runtime(
        broker="broker-a", address="10.0.0.1:10911", raw={}, put_rates=[7.0], get_rates=[90.0], transferred_rates=[5.0]
    )

    async def list_reports() -> Listed[Runtime]:
        return Listed(items=[report])

    async def list_nothing(*_names: object, **_how: object) -> Listed[Any]:
        return Listed(items=[])

    cluster = SimpleNamespace(
        brokers=SimpleNamespace(runtime=list_reports),
        offsets=SimpleNamespace(lag=list_nothing),
        cluster=SimpleNamespace(lag=list_nothing),
    )
    taken: list[Sample] = []

    async def take(sample: Sample) -> None:
        taken.append(sample)

    await Sampler("main", cast("Any", cluster), take, interval_s=10.0).look()
    (broker,) = taken[0].brokers
    assert (broker.incoming, broker.outgoing) == (7.0, 5.0)
