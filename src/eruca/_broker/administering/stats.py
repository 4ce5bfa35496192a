"""Counters of a broker: messages put and got by topic, group and queue, with minute, hour and day figures.

The hot path adds to one record for each queue and direction; the queues of a topic or a group are summed when a sample
is taken. A sample is a row of totals; the count for an interval is the difference of its last and first row.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from enum import IntEnum
from itertools import accumulate, repeat
from math import inf
from typing import Final, NamedTuple

from eruca._broker.administering.rates import PutTimes, Rates, Sample
from eruca._ground.clock import Clock
from eruca._ground.digits import read_digits
from eruca._wire.bodies import BrokerStatsData, StatsItem
from eruca._wire.names import RETRY_PREFIX

log = logging.getLogger(__name__)

# The number of series is bounded because peers choose topics and groups. Later ones count in the totals only.
SERIES_MAX = 20_000
# The topics by which the messages are counted that one group sends back: whoever may send to its retry topic names
# them. Further ones count under the retry topic.
SEND_BACK_TOPICS_MAX: Final = 64
_SEND_BACK: Final = "SNDBCK_PUT_NUMS"
_MINUTE_S = 60.0


class Span(NamedTuple):
    """How often a row is taken and how many rows are kept."""

    interval_ms: int
    rows_max: int


MINUTE: Final = 0
HOUR: Final = 1
DAY: Final = 2
SPANS: Final = (Span(10_000, 7), Span(600_000, 7), Span(3_600_000, 25))


class Column(IntEnum):
    """The columns of a row."""

    TIME = 0
    COUNT = 1
    SIZE = 2
    LATENCY = 3
    TIMES = 4


_COLUMNS: Final = len(Column)

# The sizes of messages, with their headers, by which they are counted: those of RocketMQ 5. Most are up to the first.
SMALL_BYTES: Final = 1024
SIZE_BOUNDS: Final = (SMALL_BYTES, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, inf)
# The bounds are powers of two, so the length of a size in bits finds its bound faster than a search.
_BOUND_OF_BITS: Final = tuple(bisect_left(SIZE_BOUNDS, 1 << bits) for bits in range(64))


class Series:
    """Totals of one key and their samples."""

    __slots__ = ("_large", "_windows", "count", "latency_ms", "next_offset", "size", "times")

    def __init__(self) -> None:
        #: Where the next pull of this queue begins; -1 where that is not known, as for puts.
        self.next_offset = -1
        # Messages above `SMALL_BYTES`, by the bounds of `SIZE_BOUNDS`; None until there is one.
        self._large: list[int] | None = None
        self.count = 0
        self.size = 0
        self.latency_ms = 0
        self.times = 0
        # Rows are stored flat, one after the other: an hour of a thousand queues should not cost a million objects.
        self._windows = (array("q"), array("q"), array("q"))

    def sample(self, span: int, now_ms: int) -> None:
        """Add a row with the current totals."""
        window = self._windows[span]
        if not window:
            window.extend((now_ms - SPANS[span].interval_ms, 0, 0, 0, 0))
        window.extend((now_ms, self.count, self.size, self.latency_ms, self.times))
        if len(window) > SPANS[span].rows_max * _COLUMNS:
            del window[:_COLUMNS]

    def sum_up(self, span: int, column: Column, *, average: bool = True) -> StatsItem:
        """Return the change between the first and the last row of an interval."""
        window = self._windows[span]
        if not window:
            return StatsItem()
        first, last = window[:_COLUMNS], window[-_COLUMNS:]
        total = last[column] - first[column]
        elapsed_ms = last[Column.TIME] - first[Column.TIME]
        times = last[Column.TIMES] - first[Column.TIMES]
        return StatsItem(
            sum=total,
            tps=total * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0,
            average=total / times if average and times > 0 else 0.0,
        )

    def add_large(self, count: int, size: int) -> None:
        """Count messages that are not all small, by their average size."""
        if self._large is None:
            self._large = [0] * len(SIZE_BOUNDS)
        average = -(-size // count)
        self._large[_BOUND_OF_BITS[(average - 1).bit_length()]] += count

    def list_sizes(self) -> list[int]:
        """Count the messages up to each of `SIZE_BOUNDS`."""
        large = self._large or [0] * len(SIZE_BOUNDS)
        small = self.count - sum(large)
        return list(accumulate([small + large[0], *large[1:]]))

    def set_sum(self, parts: Iterable[Series]) -> None:
        """Set the totals to the sum of other series."""
        self.count = self.size = self.latency_ms = self.times = 0
        self._large = None
        for part in parts:
            if part._large is not None:
                self._large = [a + b for a, b in zip(self._large or repeat(0), part._large, strict=False)]
            self.count += part.count
            self.size += part.size
            self.latency_ms += part.latency_ms
            self.times += part.times


class QueueSeries(dict[int, Series]):
    """The series of the queues of one topic, or of one topic as read by one group, and their sum."""

    __slots__ = ("whole",)

    def __init__(self) -> None:
        super().__init__()
        # As of the last sample.
        self.whole = Series()

    def add_up(self) -> Series:
        """Return the sum, as of now."""
        self.whole.set_sum(self.values())
        return self.whole


class Stats:
    """All counters known to `viewBrokerStatsData`, and the totals of the broker."""

    def __init__(self, cluster: str, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._puts: dict[str, QueueSeries] = {}
        # By group, then by topic.
        self._gets: dict[str, dict[str, QueueSeries]] = {}
        # Counters that are too rare for an attribute of their own, by name and key.
        self._named: dict[tuple[str, str], Series] = {}
        # The topics of messages that were sent back, by group.
        self._sent_back: dict[str, set[str]] = {}
        self._broker_put = Series()
        self._broker_get = Series()
        self._series_count = 0
        self._overflow = Series()
        self._overflowed = False
        # Messages and bytes since the start; requests that found messages and that did not; failed appends.
        self.put_total = 0
        self.put_bytes = 0
        # The part of these that the broker stored for its own use.
        self.own_total = 0
        self.put_failures = 0
        self.get_total = 0
        self.found = 0
        self.missed = 0
        self.get_ms_max = 0
        # Totals at the last midnight and the one before.
        self.put_morning = 0
        self.put_yesterday_morning = 0
        self.get_morning = 0
        self.get_yesterday_morning = 0
        self.rates = Rates()
        self.put_times = PutTimes()
        now = clock.monotonic()
        self._due = [now + span.interval_ms / 1000 for span in SPANS]
        self._next_minute = now + _MINUTE_S
        self._today = _day_of(clock.now_ms())

    # -- counting ----------------------------------------------------------------------------------------------------

    def on_put(self, topic: str, count: int, size: int, queue_id: int = -1) -> None:
        """Count messages stored by one request; hot path."""
        try:
            series = self._puts[topic][queue_id]
        except KeyError:
            series = self._learn(self._puts, topic, queue_id)
        series.count += count
        series.size += size
        series.times += 1
        if size > SMALL_BYTES:
            series.add_large(count, size)
        self.put_total += count
        self.put_bytes += size

    def on_own(self, size: int) -> None:
        """Count a message that the broker stored for its own use: in the totals of the store, for no topic."""
        self.own_total += 1
        self.put_total += 1
        self.put_bytes += size

    def on_get(
        self,
        group: str,
        topic: str,
        count: int,
        size: int,
        queue_id: int = -1,
        latency_ms: int = 0,
        next_offset: int = -1,
    ) -> None:
        """Count messages returned by one request; `next_offset` is the one after them."""
        try:
            series = self._gets[group][topic][queue_id]
        except KeyError:
            series = self._learn(self._gets.setdefault(group, {}), topic, queue_id)
        series.count += count
        series.size += size
        series.times += 1
        series.next_offset = next_offset
        self.get_total += count
        self.found += 1
        if latency_ms:
            series.latency_ms += latency_ms
            self.get_ms_max = max(self.get_ms_max, latency_ms)

    def on_miss(self) -> None:
        """Count a pull that found no messages."""
        self.missed += 1

    def on_send_back(self, group: str, topic: str) -> None:
        """Count a message that a consumer sent back."""
        topics = self._sent_back.setdefault(group, set())
        if topic not in topics and len(topics) >= SEND_BACK_TOPICS_MAX:
            topic = RETRY_PREFIX + group
        topics.add(topic)
        self.add(_SEND_BACK, f"{topic}@{group}", 1)

    def add(self, name: str, key: str, amount: int, times: int = 1) -> None:
        """Add to another counter; the key is a topic, or words joined by @ of which the first is the topic."""
        series = self._named.get((name, key))
        if series is None:
            series = self._make()
            if series is not self._overflow:
                self._named[name, key] = series
        series.count += amount
        series.times += times

    def _learn(self, topics: dict[str, QueueSeries], topic: str, queue_id: int) -> Series:
        series = self._make()
        if series is not self._overflow:
            queues = topics.get(topic)
            if queues is None:
                queues = topics[topic] = QueueSeries()
            queues[queue_id] = series
        return series

    def _make(self) -> Series:
        if self._series_count >= SERIES_MAX:
            if not self._overflowed:
                log.warning("the limit of %d statistics is reached; new topics and groups are not counted", SERIES_MAX)
                self._overflowed = True
            return self._overflow
        self._series_count += 1
        return Series()

    # -- time --------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Take the samples that are due, and handle the end of a minute or day; called about once a second."""
        now_ms, now = self._clock.now_ms(), self._clock.monotonic()
        self.rates.take(Sample(now_ms, self.put_total, self.found, self.missed, self.get_total))
        for span, (interval_ms, _) in enumerate(SPANS):
            if now >= self._due[span]:
                self._due[span] += interval_ms / 1000
                if now >= self._due[span]:
                    self._due[span] = now + interval_ms / 1000  # the process slept: one sample is enough
                self._sample(span, now_ms)
        if now >= self._next_minute:
            self._next_minute = now + _MINUTE_S
            self.put_times.turn(self.put_total)
        today = _day_of(now_ms)
        if today > self._today:
            self._turn_day()
        self._today = today

    def _sample(self, span: int, now_ms: int) -> None:
        self._broker_put.count, self._broker_get.count = self.put_total - self.own_total, self.get_total
        for series in self._all():
            series.sample(span, now_ms)

    def _all(self) -> Iterator[Series]:
        yield self._broker_put
        yield self._broker_get
        yield from self._named.values()
        for topics in (self._puts, *self._gets.values()):
            for queues in topics.values():
                yield queues.add_up()
                yield from queues.values()

    def _turn_day(self) -> None:
        self.put_yesterday_morning, self.put_morning = self.put_morning, self.put_total
        self.get_yesterday_morning, self.get_morning = self.get_morning, self.get_total
        log.info(
            "yesterday: %d messages put, %d got",
            self.put_morning - self.put_yesterday_morning,
            self.get_morning - self.get_yesterday_morning,
        )

    # -- removing ----------------------------------------------------------------------------------------------------

    def remove_topic(self, topic: str) -> None:
        """Remove the counters of a deleted topic."""
        self._puts.pop(topic, None)
        for topics in self._gets.values():
            topics.pop(topic, None)
        self._gets = {group: topics for group, topics in self._gets.items() if topics}
        for topics_of_group in self._sent_back.values():
            topics_of_group.discard(topic)
        self._keep_named(lambda words: words[0] != topic)

    def remove_group(self, group: str) -> None:
        """Remove the counters of a deleted group."""
        self._gets.pop(group, None)
        self._sent_back.pop(group, None)
        self._keep_named(lambda words: group not in words[1:])

    def _keep_named(self, is_kept: Callable[[list[str]], bool]) -> None:
        self._named = {names: series for names, series in self._named.items() if is_kept(names[1].split("@"))}
        tables = (self._puts, *self._gets.values())
        kept = sum(len(queues) for topics in tables for queues in topics.values())
        self._series_count = kept + len(self._named)
        self._overflowed = False

    # -- reading -----------------------------------------------------------------------------------------------------

    def find(self, name: str, key: str) -> BrokerStatsData | None:
        """Return one counter over its three intervals; None if nothing was counted under this name and key."""
        series = self._find_series(name, key)
        if series is None:
            return None
        column = Column.SIZE if name.endswith("_SIZE") else Column.LATENCY if name == _LATENCY else Column.COUNT
        average = not name.startswith("BROKER_")
        day, hour, minute = (series.sum_up(span, column, average=average) for span in (DAY, HOUR, MINUTE))
        return BrokerStatsData(stats_day=day, stats_hour=hour, stats_minute=minute)

    def _find_series(self, name: str, key: str) -> Series | None:
        words = key.split("@")
        match name, words:
            case (("TOPIC_PUT_NUMS" | "TOPIC_PUT_SIZE"), [topic]):
                return _whole(self._puts.get(topic))
            case (("QUEUE_PUT_NUMS" | "QUEUE_PUT_SIZE"), [topic, number]):
                return _part(self._puts.get(topic), number)
            case (("GROUP_GET_NUMS" | "GROUP_GET_SIZE"), [topic, group]):
                return _whole(self._gets.get(group, {}).get(topic))
            case (("QUEUE_GET_NUMS" | "QUEUE_GET_SIZE"), [topic, number, group]):
                return _part(self._gets.get(group, {}).get(topic), number)
            case "GROUP_GET_LATENCY", [number, topic, group]:
                return _part(self._gets.get(group, {}).get(topic), number)
            case "BROKER_PUT_NUMS", [self._cluster]:
                return self._broker_put if self.put_total > self.own_total else None
            case "BROKER_GET_NUMS", [self._cluster]:
                return self._broker_get if self.get_total else None
        return self._named.get((name, key))

    def list_puts(self) -> list[tuple[str, QueueSeries]]:
        """List the topics with messages, and what was put into each."""
        return list(self._puts.items())

    def list_named(self, name: str) -> list[tuple[str, Series]]:
        """List the counters of a name that are kept by key."""
        return [(key, series) for (its_name, key), series in self._named.items() if its_name == name]

    def list_gets(self) -> list[tuple[str, str, QueueSeries]]:
        """List groups and topics, and what each group got from each topic."""
        return [(group, topic, queues) for group, topics in self._gets.items() for topic, queues in topics.items()]

    def find_gets(self, group: str, topic: str) -> QueueSeries | None:
        """Return what a group got from a topic; None if nothing."""
        return self._gets.get(group, {}).get(topic)

    def find_broker_rate(self, name: str) -> float:
        """Return how many messages per second of all topics were put or got in the last minute."""
        series = self._broker_put if name == "BROKER_PUT_NUMS" else self._broker_get
        return series.sum_up(MINUTE, Column.COUNT).tps

    def get_tps(self, group: str, topic: str) -> float:
        """Return how many messages per second a group got from a topic in the last minute."""
        queues = self._gets.get(group, {}).get(topic)
        return 0.0 if queues is None else queues.whole.sum_up(MINUTE, Column.COUNT).tps


_LATENCY: Final = "GROUP_GET_LATENCY"


def _whole(queues: QueueSeries | None) -> Series | None:
    return None if queues is None else queues.whole


def _part(queues: QueueSeries | None, number: str) -> Series | None:
    queue_id = read_digits(number)
    return None if queues is None or queue_id is None else queues.get(queue_id)


def _day_of(now_ms: int) -> int:
    return date.fromtimestamp(now_ms / 1000).toordinal()
