"""The messages and the store used by all store benchmarks, as a broker would have them."""

from __future__ import annotations

import random
from concurrent.futures import Executor
from pathlib import Path

from eruca._ground.config import FlushMode, StoreOptions
from eruca._store.messagestore import MessageStore, open_store
from eruca._wire.host import pack_host
from eruca._wire.record import Record

TOPIC = "BenchTopic"
QUEUES = 4
# Smaller than a broker's, so that rolling to the next segment is part of every figure.
SEGMENT_BYTES = 256 * 1024 * 1024
# Messages made at a time: few enough to stay in the cache, as those of one socket read do.
CHUNK = 1000
_BODIES = 64
_BORN_MS = 1_700_000_000_000
_CLIENT = pack_host("127.0.0.1", 51234)
_BROKER = pack_host("127.0.0.1", 10911)


class Workload:
    """Messages of one body size, each with its own keys."""

    def __init__(self, body_bytes: int) -> None:
        self.body_bytes = body_bytes
        seeded = random.Random(body_bytes)
        self._bodies = [seeded.randbytes(body_bytes) for _ in range(_BODIES)]

    def make(self, first: int, count: int, *, queue_id: int | None = None) -> list[Record]:
        """Messages as they come out of a send request; they rotate through the queues unless one is given."""
        bodies = self._bodies
        return [
            Record(
                TOPIC,
                number % QUEUES if queue_id is None else queue_id,
                0,
                bodies[number % _BODIES],
                b"KEYS\x01order-%d\x02UNIQ_KEY\x017F0000010BB818B4AAC2%012X\x02CLUSTER\x01DefaultCluster\x02TAGS\x01TagA"
                % (number, number),
                born_timestamp=_BORN_MS,
                born_host=_CLIENT,
                store_host=_BROKER,
            )
            for number in range(first, first + count)
        ]


def open_bench_store(
    root: Path, executor: Executor | None, *, with_index: bool = True, flush_mode: FlushMode = FlushMode.ASYNC
) -> MessageStore:
    """A store with the options of a broker, except for smaller segments."""
    options = StoreOptions(commitlog_segment_bytes=SEGMENT_BYTES, index_enabled=with_index, flush_mode=flush_mode)
    return open_store(root, options, executor=executor)
