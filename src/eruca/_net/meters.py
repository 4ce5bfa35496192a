"""Metrics of servers: what peers use of each limit, and what was refused because of one.

>>> from eruca.metrics import SERVER
>>> SERVER.snapshot()["eruca_server_connections"]
>>> SERVER.snapshot()['eruca_server_refused_total{option="serverMaxConnections"}']
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from eruca._observe.metrics import SERVER

OwnerT = TypeVar("OwnerT")

_OWNERS: dict[str, WeakKeyDictionary[Any, Callable[[Any], int]]] = {}


def show(name: str, help_text: str, owner: OwnerT, read: Callable[[OwnerT], int]) -> None:
    """Expose a value of an object as a metric while the object exists; values of several objects are added up."""
    owners = _OWNERS.setdefault(name, WeakKeyDictionary())
    owners[owner] = read
    SERVER.gauge(name, help_text).read_from(lambda: sum([read(owner) for owner, read in list(owners.items())]))


def count_refused(option: str) -> None:
    """Count something that was refused, ignored or closed because a peer reached the limit that this option sets."""
    text = (
        "Connections, requests and entries that were refused or closed because of a limit, by the option that sets it."
    )
    SERVER.counter("refused_total", text, option=option).add()
