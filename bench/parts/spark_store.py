"""Fills a store with records of the size used for the published figures."""

from __future__ import annotations

from pathlib import Path

from eruca._ground.config import StoreOptions
from eruca._store.messagestore import open_store
from eruca._wire.host import pack_host
from eruca._wire.record import Record

TOPIC = "BenchStore"
QUEUES = 14
BODY_BYTES = 207
# Besides its body (with a number of seven digits), a record has its fields, the topic and three properties.
RECORD_BYTES = 171 + BODY_BYTES
_SEGMENT_BYTES = 268_435_456
_BATCH = 2000


def fill_store(directory: Path, rows: int) -> None:
    """Write `rows` orders, each with a key, a tag and an id."""
    host = pack_host("127.0.0.1", 10911)
    store = open_store(directory, StoreOptions(commitlog_segment_bytes=_SEGMENT_BYTES))
    try:
        for begin in range(0, rows, _BATCH):
            store.append_batch(
                [
                    Record(
                        topic=TOPIC,
                        queue_id=begin // _BATCH % QUEUES,
                        body=_make_body(number),
                        properties=b"KEYS\x01order-%d\x02TAGS\x01Tag%d\x02UNIQ_KEY\x01%032X"
                        % (number, number % 4, number),
                        born_timestamp=1_700_000_000_000 + number,
                        born_host=host,
                        store_host=host,
                    )
                    for number in range(begin, min(begin + _BATCH, rows))
                ]
            )
    finally:
        store.close()


def _make_body(number: int) -> bytes:
    start = b'{"order":%d,"sku":"sku-%d","quantity":%d,"note":"' % (number, number % 1000, number % 7 + 1)
    return start.ljust(BODY_BYTES - 2, b"x") + b'"}'
