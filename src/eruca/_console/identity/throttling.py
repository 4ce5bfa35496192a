"""Failed log-ins, by address and by user: after a few, each makes the next attempt wait longer."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from eruca._ground import limits
from eruca._ground.backoff import Backoff
from eruca._ground.clock import Clock

# An address may be that of many people, so it waits longer, but for everyone later. A user waits at most a minute, and
# not at all at an address from which they have logged in: whoever knows a name must not be able to lock them out.
_FREE_BY_ADDRESS: Final = 10
_FREE_BY_USER: Final = 5
_BY_ADDRESS: Final = Backoff(2.0, 900.0, jitter=0.0)
_BY_USER: Final = Backoff(1.0, 60.0, jitter=0.0)
# After this long without a failure, the count begins again.
_FORGET_S: Final = 3600.0
# One machine has 2**64 addresses of IPv6.
_IPV6_PREFIX: Final = 64


@dataclass(slots=True)
class _Record:
    failures: int
    last_s: float
    open_s: float


class LoginThrottle:
    """Counts failures in bounded memory. Time is passed in."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: OrderedDict[tuple[str, str], _Record] = OrderedDict()
        # Addresses with the users who have logged in from there.
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def wait_s(self, address: str, user: str) -> float:
        """How many seconds this address and this user have to wait before the next attempt; 0: none."""
        now = self._clock.monotonic()
        found = [self._records.get(key) for key, _, _ in self._list_rules(address, user)]
        return max((record.open_s - now for record in found if record is not None), default=0.0)

    def begin(self, address: str, user: str) -> float:
        """Count an attempt as failed until `succeed` takes it back, so that attempts at the same moment count too.

        Returns how many seconds to wait instead, as `wait_s`; then nothing is counted.
        """
        wait_s = self.wait_s(address, user)
        if wait_s > 0:
            return wait_s
        now = self._clock.monotonic()
        for key, free, backoff in self._list_rules(address, user):
            record = self._records.pop(key, None)
            if record is None or now - record.last_s > _FORGET_S:
                record = _Record(0, now, now)
            record.failures += 1
            record.last_s = now
            if record.failures >= free:
                record.open_s = now + backoff.after(record.failures - free + 1)
            self._records[key] = record
        while len(self._records) > limits.CONSOLE_FAILURES_MAX:
            self._records.popitem(last=False)
        return 0.0

    def succeed(self, address: str, user: str) -> None:
        """Forget the failures of a user who has logged in, and take back this attempt of the address.

        The other failures of the address stay: whoever has one account must not try those of others with it.
        """
        by_address, by_user, known = self._name_keys(address, user)
        self._records.pop(by_user, None)
        record = self._records.get(by_address)
        if record is not None:
            record.failures -= 1
            record.open_s = min(record.open_s, self._clock.monotonic())
            if record.failures <= 0:
                del self._records[by_address]
        self._known[known] = None
        self._known.move_to_end(known)
        while len(self._known) > limits.CONSOLE_FAILURES_MAX:
            self._known.popitem(last=False)

    def _list_rules(self, address: str, user: str) -> list[tuple[tuple[str, str], int, Backoff]]:
        """Return by what an attempt is counted: the key, how many are free, and how long the others wait."""
        by_address, by_user, known = self._name_keys(address, user)
        rules = [(by_address, _FREE_BY_ADDRESS, _BY_ADDRESS)]
        return rules if known in self._known else [*rules, (by_user, _FREE_BY_USER, _BY_USER)]

    def _name_keys(self, address: str, user: str) -> tuple[tuple[str, str], tuple[str, str], tuple[str, str]]:
        network, name = name_network(address), user[: limits.CONSOLE_USER_CHARS_MAX]
        return ("address", network), ("user", name), (network, name)


def name_network(address: str) -> str:
    """Return what failures are counted by: an IPv4 address, or the network of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, _IPV6_PREFIX), strict=False))
    return str(found)
