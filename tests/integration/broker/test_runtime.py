"""Metrics of a running broker: every key the exporter parses, with correct values."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from eruca._broker.administering.rates import PutTimes, Rates, Sample
from eruca._broker.administering.runtime import write_bytes, write_duration
from eruca._broker.app import Broker
from eruca._testing.clock import VirtualClock
from eruca._wire.codes import RequestCode
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import Peer
from tests.paths import GOLDEN

NUMBERS = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?")


async def ask(peer: Peer) -> dict[str, str]:
    table: dict[str, str] = (await peer.expect(RequestCode.GET_BROKER_RUNTIME_INFO)).body.table
    return table


def read_golden() -> dict[str, str]:
    """The recorded response of a Java broker."""
    for line in (GOLDEN / "frames.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["requestCode"] == RequestCode.GET_BROKER_RUNTIME_INFO and row["kind"] == "response":
            table: dict[str, str] = row["bodyText"]["table"]
            return table
    raise AssertionError("no recorded answer")


def normalise(key: str) -> str:
    """A key without the path or delay level it ends with."""
    return re.sub(r"(commitLogDiskRatio_|scheduleMessageOffset_).*", r"\1", key)


async def test_every_key_of_java_is_there_in_the_same_form(broker: Broker, peer: Peer, tmp_path: Path) -> None:
    await peer.send("T", 0)
    golden = await asyncio.to_thread(read_golden)
    table = await ask(peer)
    assert f"commitLogDiskRatio_{tmp_path / 'store' / 'commitlog'}" in table
    optional = {"scheduleMessageOffset_"}  # only once something was delayed
    assert {normalise(key) for key in golden} - optional <= {normalise(key) for key in table}
    for key, value in golden.items():
        if NUMBERS.fullmatch(value) and normalise(key) not in ("commitLogDiskRatio_",):
            assert NUMBERS.fullmatch(table[key]), f"{key}: {table[key]!r} is not a number"
    assert re.fullmatch(r"Total : [\d.]+ \w+, Free : [\d.]+ \w+\.", table["commitLogDirCapacity"])
    assert re.fullmatch(r"[\d.]+ (B|[KMGTPE]iB)", table["remainHowManyDataToFlush"])
    assert re.fullmatch(r"\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds ]", table["runtime"])
    assert 0 < float(table["commitLogDiskRatio"]) <= 1
    assert (table["brokerVersion"], table["brokerVersionDesc"]) == ("407", "V4_9_7")
    assert not any(key.startswith("consumerGroupConflicts") for key in table)


async def test_the_numbers_are_those_of_the_store(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    empty = await ask(peer)
    assert (empty["earliestMessageTimeStamp"], empty["putMessageAverageSize"]) == ("-1", "0.0")
    first = clock.now_ms()
    await peer.send("T", 0, b"x" * 100)
    clock.advance(61_000)
    await peer.send("T", 1, b"x" * 100)
    broker.stats.on_get("G", "T", 2, 300)
    broker.stats.put_failures += 1
    table = await ask(peer)
    size = broker.store.log.tail
    assert (table["commitLogMinOffset"], table["commitLogMaxOffset"]) == ("0", str(size))
    assert (table["putMessageTimesTotal"], table["putMessageSizeTotal"]) == ("2", str(size))
    assert float(table["putMessageAverageSize"]) == size / 2
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("2", "2")
    assert table["putMessageFailedTimes"] == "1"
    assert table["earliestMessageTimeStamp"] == str(first)
    assert table["runtime"] == "[ 0 days, 0 hours, 1 minutes, 1 seconds ]"
    assert table["dispatchBehindBytes"] == "0"
    assert table["remainTransientStoreBufferNumbs"] == str(2**31 - 1)
    assert "remainHowManyDataToCommit" not in table


async def test_the_transient_buffer_is_counted(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(transient_enabled=True, commit_interval_ms=10**9)
    peer = make_peer(broker)
    await peer.send("T", 0, b"x" * 1000)
    table = await ask(peer)
    waiting = broker.store.log.tail
    assert waiting > 1000
    assert table["dispatchBehindBytes"] == str(waiting)
    assert table["remainTransientStoreBufferNumbs"] == "4"
    assert table["remainHowManyDataToCommit"] == write_bytes(waiting)
    assert table["commitLogMaxOffset"] == "0"


async def test_rates_come_when_enough_time_has_passed(
    make_broker: MakeBroker, make_peer: MakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    stats = broker.stats
    tick = stats.tick
    monkeypatch.setattr(stats, "tick", lambda: None)  # this test ticks
    assert (await ask(peer))["getTotalTps"] == "0.0 0.0 0.0"
    for _ in range(61):
        stats.on_put("T", 3, 30)
        stats.on_get("G", "T", 2, 20)
        stats.on_miss()
        tick()
        clock.advance(1000)
    table = await ask(peer)
    assert table["putTps"] == "3.0 3.0 "
    assert table["getFoundTps"] == "1.0 1.0 "
    assert table["getMissTps"] == "1.0 1.0 "
    assert table["getTransferedTps"] == "2.0 2.0 "
    assert table["getTotalTps"] == "2.0 2.0 0.0"
    for _ in range(590):
        tick()
        clock.advance(1000)
    assert (await ask(peer))["putTps"] == "0.0 0.0 0.05"


def test_rates_are_none_before_their_time() -> None:
    rates = Rates()
    assert rates.over(10, "put") is None
    for second in range(11):
        assert rates.over(10, "put") is None
        rates.take(Sample(second * 1000, second * 5, 0, 0, 0))
    assert rates.over(10, "put") == 5.0


def test_slow_appends_are_counted_by_the_minute() -> None:
    times = PutTimes()
    assert (times.describe(), times.quantile(0.99)) == ("null", 0.0)
    for elapsed_ms in (0, -5, 1, 9, 10, 49, 999, 1000, 9999, 10_000, 50_000):
        times.add(elapsed_ms)
    times.turn(puts=100)
    assert times.describe() == (
        "[<=0ms]:91 [0~10ms]:2 [10~50ms]:2 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:1 [1~2s]:1 [2~3s]:0 "
        "[3~4s]:0 [4~5s]:0 [5~10s]:1 [10s~]:2 "
    )
    assert times.max_ms == 50_000
    assert times.quantile(0.5) < 1 < times.quantile(0.95) <= times.quantile(0.99)
    times.turn(puts=150)
    assert times.describe().startswith("[<=0ms]:50 [0~10ms]:0 ")
    assert times.quantile(0.99) <= 1


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1843, "1.8 KiB"),
        (252 << 30, "252.0 GiB"),
        (3 << 60, "3.0 EiB"),
    ],
)
def test_bytes_are_written_for_people(count: int, text: str) -> None:
    assert write_bytes(count) == text


def test_durations_are_written_as_java_does() -> None:
    assert write_duration(((2 * 24 + 3) * 60 + 4) * 60_000 + 5999) == "[ 2 days, 3 hours, 4 minutes, 5 seconds ]"
    assert write_duration(-1) == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"
