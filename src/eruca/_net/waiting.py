"""Connections that wait for something, by arrival and by address: which one makes room for a newcomer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from eruca._net.networks import find_network

T = TypeVar("T")


class Waiting(Generic[T]):
    """Connections that wait. One address cannot push out the connections of others."""

    def __init__(self) -> None:
        # Both in order of arrival.
        self._networks: dict[T, str] = {}
        self._of: dict[str, dict[T, None]] = {}

    def __len__(self) -> int:
        return len(self._networks)

    def __iter__(self) -> Iterator[T]:
        return iter(self._networks)

    def __contains__(self, item: T) -> bool:
        return item in self._networks

    def add(self, item: T, host: str) -> None:
        """Add one, from an address."""
        network = self._networks[item] = find_network(host)
        self._of.setdefault(network, {})[item] = None

    def discard(self, item: T) -> bool:
        """Remove one; return whether it was there."""
        network = self._networks.pop(item, None)
        if network is None:
            return False
        same = self._of[network]
        del same[item]
        if not same:
            del self._of[network]
        return True

    def choose(self, host: str) -> T | None:
        """Return which one makes room for a newcomer: the oldest of its own address, otherwise the oldest of all."""
        return next(iter(self._of.get(find_network(host)) or self._networks), None)

    def choose_from(self, host: str) -> T | None:
        """Return the oldest of an address."""
        return next(iter(self._of.get(find_network(host)) or ()), None)


def choose_to_go(waiting: Iterable[tuple[T, str]], host: str) -> T | None:
    """Return which of a few makes room for a newcomer; `waiting` are those who may have to, each with its address."""
    found: Waiting[T] = Waiting()
    for item, its_host in waiting:
        found.add(item, its_host)
    return found.choose(host)
