"""A sample of a cluster for the tests of the view."""

from __future__ import annotations

from datetime import UTC, datetime

from eruca._cli.topview.sampling import BrokerLine, GroupLine, Sample, TopicLine


def make_sample(groups: int = 3) -> Sample:
    return Sample(
        at=datetime(2026, 11, 15, 7, 0, tzinfo=UTC),
        seconds=0.1,
        brokers=[
            BrokerLine(
                cluster="DefaultCluster",
                broker="broker-a",
                broker_id=0,
                address="10.0.0.1:10911",
                role="MASTER",
                stored_rate=1200.0,
                fetched_rate=900.0,
                disk=0.8,
                log_bytes=5 << 30,
                version="4.9.7",
            ),
            BrokerLine(
                cluster="DefaultCluster",
                broker="broker-b",
                broker_id=0,
                address="10.0.0.2:10911",
                role="",
                problem="away",
            ),
        ],
        groups=[
            GroupLine(
                group=f"group-{number}",
                topics=1,
                queues=8,
                lag=1000 * number,
                arriving_rate=100.0,
                consumed_rate=90.0 + 10 * number,
                growth=10.0 - 10 * number,
                lag_seconds=30.0 * number,
                members=2,
            )
            for number in range(groups)
        ],
        topics=[
            TopicLine(topic="orders", queues=8, groups=2, lag=1000, arriving_rate=100.0, consumed_rate=90.0),
            TopicLine(topic="audit", queues=4, groups=0, lag=0, arriving_rate=5.0, consumed_rate=0.0),
        ],
        problems=["broker-b: does not answer"],
    )
