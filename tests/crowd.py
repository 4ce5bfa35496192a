"""A cluster with 10,000 topics and 2,000 groups that are behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

from eruca import Producer
from tests.interop.brokers import SETTINGS as CLUSTER_SETTINGS

TOPICS: Final = 10_000
GROUPS: Final = 2_000
QUEUES: Final = 4
_SENDS_AT_ONCE: Final = 50
# For `ErucaCluster`: the name server does not forget a broker that says nothing for minutes, as on a busy machine.
SETTINGS: Final = {**CLUSTER_SETTINGS, "brokerChannelExpiredTime": 3_600_000}


def write_crowd(home: Path, kind: str = "eruca") -> None:
    """Write the tables of a broker before it starts, in the files that brokers of both kinds have."""
    tables = (home / "data" if kind == "eruca" else home) / "store" / "config"
    tables.mkdir(parents=True)
    topics = {
        f"topic-{number:05}": {
            "order": False,
            "perm": 6,
            "readQueueNums": QUEUES,
            "topicFilterType": "SINGLE_TAG",
            "topicName": f"topic-{number:05}",
            "topicSysFlag": 0,
            "writeQueueNums": QUEUES,
        }
        for number in range(TOPICS)
    }
    groups = {f"group-{number:04}": {"groupName": f"group-{number:04}"} for number in range(GROUPS)}
    offsets = {
        f"topic-{number:05}@group-{number:04}": {str(queue): 0 for queue in range(QUEUES)} for number in range(GROUPS)
    }
    version = {"counter": 1, "timestamp": 1_700_000_000_000}
    _write(tables / "topics.json", {"dataVersion": version, "topicConfigTable": topics})
    _write(tables / "subscriptionGroup.json", {"dataVersion": version, "subscriptionGroupTable": groups})
    _write(tables / "consumerOffset.json", {"offsetTable": offsets})


async def send_to_each(nameserver: str) -> None:
    """Send a message to each topic that a group reads, so that all groups are behind."""
    slots = asyncio.Semaphore(_SENDS_AT_ONCE)

    async def send(producer: Producer, number: int) -> None:
        async with slots:
            await producer.send(f"topic-{number:05}", b"unread")

    async with Producer(nameserver, group="senders") as producer:
        await asyncio.gather(*[send(producer, number) for number in range(GROUPS)])


def _write(path: Path, table: object) -> None:
    path.write_text(json.dumps(table))
