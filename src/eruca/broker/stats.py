"""Counters of a broker: what was put and got, by topic, group and queue, with minute, hour and day figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counter:
    """One counter: how many, and how many times it was added to."""

    total: int = 0
    times: int = 0
    # (time in ms, total, times), oldest first: every 10 s for the minute, 10 min for the hour, hour for the day.
    minute: list[tuple[int, int, int]] = field(default_factory=list)
    hour: list[tuple[int, int, int]] = field(default_factory=list)
    day: list[tuple[int, int, int]] = field(default_factory=list)


class Stats:
    """All counters by name and key, as `viewBrokerStatsData` knows them."""

    def __init__(self, cluster: str, now_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._now_ms = now_ms
        self.counters: dict[tuple[str, str], Counter] = {}
        self.put_total = 0
        self.get_total = 0

    def add(self, name: str, key: str, amount: int, times: int = 1) -> None:
        """Add to a counter."""
        counter = self.counters.get((name, key))
        if counter is None:
            counter = self.counters[name, key] = Counter()
        counter.total += amount
        counter.times += times

    def on_put(self, topic: str, count: int, size: int) -> None:
        """Messages were stored."""
        self.put_total += count
        self.add("TOPIC_PUT_NUMS", topic, count)
        self.add("TOPIC_PUT_SIZE", topic, size)

    def on_get(self, group: str, topic: str, count: int, size: int) -> None:
        """Messages were given out."""
        self.get_total += count
        key = f"{topic}@{group}"
        self.add("GROUP_GET_NUMS", key, count)
        self.add("GROUP_GET_SIZE", key, size)
