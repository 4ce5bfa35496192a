"""A message that was corrupted in an old segment: consumers report it, skip it, and get all the others."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster

from eruca import sync
from eruca.testing import EmbeddedBroker
from tests.integration.broker.conftest import excuse_new_files
from tests.store_samples import flip

MESSAGES = 3000
SEGMENT_BYTES = 64 * 1024
WAIT_S = 60
_OPTIONS: dict[str, Any] = {"commitlog_segment_bytes": SEGMENT_BYTES, "message_bytes_max": 32 * 1024}


@pytest.fixture(autouse=True)
def allow_new_files(forbid_blocking_calls: BlockBuster) -> None:
    """Let the broker make files of its store."""
    excuse_new_files(forbid_blocking_calls)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The files of a broker that stopped cleanly with 3,000 messages in one queue, in many segments."""
    with EmbeddedBroker(tmp_path, **_OPTIONS) as broker:
        broker.create_topic("orders", 1)
        with sync.Producer(broker.nameserver) as producer:
            queue = producer.list_queues("orders")[0]
            pending = [producer.send_soon("orders", b"body %06d" % n, queue=queue) for n in range(MESSAGES)]
            for number, sent in enumerate(pending):
                assert sent.result().offset == number
    return tmp_path


def find_body(home: Path, number: int) -> tuple[Path, int]:
    """The segment that has the body of a message, and where in it."""
    for path in sorted(next(home.rglob("commitlog")).iterdir()):
        at = path.read_bytes().find(b"body %06d" % number)
        if at >= 0:
            return path, at
    raise AssertionError(f"message {number} is nowhere")


def read_all(broker: EmbeddedBroker, wanted: int) -> list[bytes]:
    """Return what a consumer of a new group gets until it has this many."""
    seen: list[bytes] = []
    with sync.PullConsumer(broker.nameserver, group="audit", subscribe="orders", start="earliest") as consumer:
        while len(seen) < wanted:
            messages = consumer.poll(WAIT_S)
            assert messages, f"the consumer stands still after {len(seen)} of {wanted} messages"
            seen += [message.body for message in messages]
    return seen


def test_a_body_with_a_flipped_bit_does_not_stop_a_queue(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, at = find_body(home, 1234)
    assert int(path.name) > 0
    flip(path, at + 5)
    caplog.set_level(logging.ERROR)
    with EmbeddedBroker(home, **_OPTIONS) as broker:
        seen = read_all(broker, MESSAGES - 1)
    assert seen == [b"body %06d" % n for n in range(MESSAGES) if n != 1234]
    named = [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]
    assert len(named) == 1
    assert "orders, queue 0: the message at 1234" in named[0]


def test_an_entry_with_a_flipped_bit_costs_nothing(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    queue = next(home.rglob("consumequeue")) / "orders" / "0" / f"{0:020d}"
    flip(queue, 77 * 20 + 7, 0x04)  # its position, a little
    flip(queue, 99 * 20 + 11, 0x02)  # its size
    caplog.set_level(logging.WARNING)
    with EmbeddedBroker(home, **_OPTIONS) as broker:
        assert read_all(broker, MESSAGES) == [b"body %06d" % n for n in range(MESSAGES)]
    assert "orders queue 0" in caplog.text
