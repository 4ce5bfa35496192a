"""Who may connect, and how much those may ask who never authenticated: limits in total and by address."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Final

from eruca._net.limitoptions import LimitOptions
from eruca._net.meters import count_refused, show
from eruca._net.networks import find_network
from eruca._net.peers import Peer
from eruca._net.waiting import Waiting
from eruca._wire.codes import ResponseCode
from eruca.errors import RequestRefused

# How long a connection is not read after it exceeded the limit of requests: the longer, the more its address sends.
_PAUSE_SECONDS_MIN: Final = 1.0
_PAUSE_SECONDS_MAX: Final = 10.0
# The share of all files that a process may have open which connections may take.
_FILES_SHARE: Final = 0.75


class _Address:
    """One address: its connections, and how many requests it may still send."""

    __slots__ = ("connections", "refilled_at", "requests")

    def __init__(self, requests: float, now: float) -> None:
        self.connections = 0
        self.requests = requests
        self.refilled_at = now


class Admission:
    """Counts the connections of one server, over all its ports."""

    def __init__(self, limits: Callable[[], LimitOptions], now: Callable[[], float]) -> None:
        """`limits` returns the options in force, `now` the time in seconds."""
        self._limits = limits
        self._now = now
        self._addresses: dict[str, _Address] = {}
        # Those without connections.
        self._left: dict[str, None] = {}
        self._of_link: dict[Peer, str] = {}
        # Those that have not authenticated, as far as is known: one that has is found out when it is chosen.
        self._strangers: Waiting[Peer] = Waiting()
        # The store needs files too: a server that cannot open one more cannot store one more message.
        self._files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0] * _FILES_SHARE
        show("connections", "Open connections.", self, lambda it: len(it._of_link))
        show("addresses", "Addresses with open connections.", self, lambda it: len(it._addresses))

    def __len__(self) -> int:
        return len(self._of_link)

    def admit(self, link: Peer, report: Callable[[Peer, str], None], *, has_accounts: bool) -> bool:
        """Count a new connection, unless there are too many: then tell it so, close it and return False.

        With accounts, one that never authenticated is closed instead.
        """
        reason = self.enter(link)
        if reason and has_accounts and (stranger := self.make_room(link)) is not None:
            report(stranger, f"was closed, because it never authenticated and another needs its place: {reason}")
            stranger.dismiss(reason)
            reason = self.enter(link)
        if reason:
            report(link, f"refused: {reason}")
            link.dismiss(reason)
        return not reason

    def enter(self, link: Peer) -> str:
        """Count a new connection; return an empty text, or why it must be closed."""
        limits = self._limits()
        if len(self._of_link) >= min(limits.connections_max, self._files_max):
            count_refused("serverMaxConnections")
            allowed_by = "serverMaxConnections allows"
            if self._files_max < limits.connections_max:
                allowed_by = f"the limit of open files allows (serverMaxConnections={limits.connections_max})"
            return f"{len(self._of_link)} connections are open, as many as {allowed_by}"
        name = find_network(link.peer_host[0])
        address = self._addresses.get(name)
        if address is None:
            address = self._addresses[name] = _Address(limits.refusals_per_second_max, self._now())
        elif address.connections >= limits.connections_per_address_max:
            count_refused("serverMaxConnectionsPerAddress")
            return (
                f"{address.connections} connections from {name} are open, as many as serverMaxConnectionsPerAddress "
                "allows"
            )
        address.connections += 1
        self._left.pop(name, None)
        self._of_link[link] = name
        self._strangers.add(link, link.peer_host[0])
        return ""

    def make_room(self, link: Peer) -> Peer | None:
        """Return a connection that never authenticated and has to go, so that a new one can enter; None: there is none.

        Without this, strangers could take all connections, and keep them.
        """
        host = link.peer_host[0]
        address = self._addresses.get(find_network(host))
        is_crowd = address is not None and address.connections >= self._limits().connections_per_address_max
        choose = self._strangers.choose_from if is_crowd else self._strangers.choose
        while (stranger := choose(host)) is not None and stranger.account is not None:
            self._strangers.discard(stranger)
        if stranger is not None:
            self.leave(stranger)
        return stranger

    def leave(self, link: Peer) -> None:
        """Forget a closed connection. Its address is kept until its requests would be allowed again."""
        name = self._of_link.pop(link, None)
        self._strangers.discard(link)
        if name is not None:
            address = self._addresses[name]
            address.connections -= 1
            if not address.connections:
                self._left[name] = None

    def forget_addresses(self) -> None:
        """Forget addresses without connections and without recent requests; call this regularly."""
        limit, now = self._limits().refusals_per_second_max, self._now()
        for name in [name for name in self._left if _refill(self._addresses[name], limit, now) >= limit]:
            del self._addresses[name], self._left[name]

    def on_stranger(self, link: Peer) -> None:
        """Count a refused request of a connection that never authenticated.

        Above the limit this raises another refusal, which names the limit, and the connection is not read for some
        seconds. This number of connections of an address together hardly sends more than the limit.
        """
        limits = self._limits()
        address = self._addresses.get(self._of_link.get(link, ""))
        if address is None:
            return
        limit = limits.refusals_per_second_max
        left = _refill(address, limit, self._now())
        address.requests = max(left - 1, -_PAUSE_SECONDS_MAX * limit)
        if left >= 1:
            return
        count_refused("serverMaxAnonymousRequests")
        link.pause_for(max(_PAUSE_SECONDS_MIN, -address.requests / limit))
        raise RequestRefused(
            ResponseCode.SYSTEM_BUSY,
            f"connections from {link.peer_host[0]} that never authenticated sent more than "
            f"{limit} refused requests in a second (serverMaxAnonymousRequests); "
            "sign requests with the keys of an account",
        )


def _refill(address: _Address, limit: int, now: float) -> float:
    """Return how many requests an address may send now."""
    address.requests = min(float(limit), address.requests + (now - address.refilled_at) * limit)
    address.refilled_at = now
    return address.requests
