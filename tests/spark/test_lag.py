"""How far groups are behind, in messages and in time."""

from __future__ import annotations

from datetime import timedelta

from eruca import MessageQueue
from eruca._admin.lag import QueueLag, read_lag, sum_lag
from eruca._admin.offsets import Offsets
from eruca._ground.times import from_epoch_ms
from eruca._spark.cluster import Access, Cluster
from tests.interop.brokers import Cluster as Servers
from tests.spark.producing import commit_group, create_topic, name_topic, send

HOUR_MS = 3_600_000


def test_lag_in_messages_and_time(cluster: Servers) -> None:
    topic, group = name_topic("lagging"), name_topic("laggards")
    queues = create_topic(cluster, topic, 2)
    send(cluster, topic, 10, queue=0)
    send(cluster, topic, 4, queue=1)
    commit_group(cluster, group, {queues[0]: 3, queues[1]: 4})
    with Cluster(Access(cluster.name_server)) as asked:
        rows = asked.run(Offsets(asked.connection).lag([group])).items
        assert [(row.topic, row.queue, row.offset, row.end, row.lag) for row in rows] == [
            (topic, 0, 3, 10, 7),
            (topic, 1, 4, 4, 0),
        ]
        stored = asked.run(_find_time(asked, queues[0], 3))
        now = from_epoch_ms(stored + HOUR_MS)
        later, _, _ = asked.run(read_lag(asked.connection, [group], [topic], limit=10, now=now))
        assert [row.lag_time for row in later] == [timedelta(hours=1), None]
        assert asked.run(Offsets(asked.connection).lag([group], ["another"])).items == []
        assert asked.run(Offsets(asked.connection).lag(["nobody"])).items == []
        # All groups, also those that only have offsets.
        assert {row.group for row in asked.run(Offsets(asked.connection).lag(topics=[topic])).items} == {group}


async def _find_time(asked: Cluster, queue: MessageQueue, offset: int) -> int:
    await asked.connection.routes.get(queue.topic)
    pulled = await asked.connection.reader.pull(queue, offset, wanted="*", count=1, hold_ms=0, timeout_ms=5000)
    return pulled.messages[0].record.store_timestamp


def test_lag_is_summed_by_group_and_topic() -> None:
    def row(group: str, topic: str, queue: int, behind: int, behind_ms: int) -> QueueLag:
        return QueueLag(
            group=group,
            topic=topic,
            broker="b",
            queue=queue,
            offset=0,
            end=behind,
            lag=behind,
            lag_time=timedelta(milliseconds=behind_ms) if behind else None,
        )

    rows = [row("b", "t", 0, 5, 10), row("a", "t", 0, 1, 7), row("b", "t", 1, 6, 90), row("b", "s", 0, 0, 0)]
    found = [(each.group, each.topic, each.queues, each.lag, each.lag_time) for each in sum_lag(rows)]
    waits = [timedelta(milliseconds=number) for number in (7, 90)]
    assert found == [("a", "t", 1, 1, waits[0]), ("b", "s", 1, 0, None), ("b", "t", 2, 11, waits[1])]
    assert sum_lag([]) == []
