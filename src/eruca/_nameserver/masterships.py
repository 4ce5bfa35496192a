"""Tracks the newest mastership of each broker name, and which masters are refused because of it. No I/O.

A name server cannot know which broker is right: it keeps producers from being sent back to a master that was replaced,
and a broker of another installation from taking a name that is in use. Brokers do not trust it either; they ask each
other.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Final, NamedTuple, NoReturn

from eruca._core.replication.epochs import is_epoch
from eruca._core.replication.numbering import was_promoted
from eruca._ground.limits import EPOCH_AHEAD_MAX, EPOCHS_KEPT_MAX
from eruca._wire.codes import ResponseCode
from eruca.errors import RequestRefused

log = logging.getLogger(__name__)

#: Prefix of the refusal of a master that was replaced; its broker then asks the other members whether that is true.
STALE_MASTER: Final = "stale master:"
#: Prefix of the refusal of a master whose name is used by another store.
NAME_TAKEN: Final = "name taken:"


class Leading(NamedTuple):
    """The registered master of a name, if it has an epoch: its address, and the identity of its store."""

    address: str
    store: str | None


class Masterships:
    """The highest epoch of a master by broker name; kept even if all members of the name are gone."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}

    def find(self, name: str) -> int | None:
        """Return the highest epoch of a master of a broker name."""
        return self._epochs.get(name)

    def check(self, name: str, address: str, epoch: int | None, store: str | None, leading: Leading | None) -> None:
        """Raise RequestRefused for a master that must not have the name; `leading` is the current one."""
        other = leading if leading is not None and leading.address != address else None
        if epoch is not None and not is_epoch(epoch):
            _refuse(address, f"epoch {epoch} is not valid")
        if epoch is not None and other is not None:
            if other.store not in (None, store):
                _refuse(address, f"{NAME_TAKEN} the master of {name} is {other.address}, which has a different store")
            if epoch > self._epochs.get(name, 0) + EPOCH_AHEAD_MAX:
                _refuse(address, f"epoch {epoch} is too far ahead of the epoch of {other.address}")
        self._check_epoch(name, address, epoch, other)

    def _check_epoch(self, name: str, address: str, epoch: int | None, other: Leading | None) -> None:
        """Refuse a master that another one has replaced.

        As long as no broker of the name was ever promoted, a lower epoch does not come from a replaced master but from
        a new store, unless the broker with the higher epoch is registered.
        """
        known = self._epochs.get(name, 0)
        if epoch is not None and epoch < known and (other is not None or was_promoted(known)):
            where = f"whose master is {other.address}" if other is not None else "whose master is not registered now"
            _refuse(address, f"{STALE_MASTER} {name} is at epoch {known}, {where}; {address} has epoch {epoch}")
        if other is not None and (epoch is None or epoch == known):
            comes = "has no epoch" if epoch is None else f"has the same epoch {epoch}"
            _refuse(
                address,
                f"{STALE_MASTER} the master of {name} is {other.address}, epoch {known}; {address} {comes}",
            )

    def note(self, name: str, epoch: int, registered: Container[str]) -> None:
        """Record the epoch of a master; the oldest names that are no longer registered are evicted."""
        self._epochs.pop(name, None)  # the most recent name is at the end
        self._epochs[name] = epoch
        if len(self._epochs) > EPOCHS_KEPT_MAX:
            oldest = next((name for name in self._epochs if name not in registered), None)
            if oldest is not None:
                del self._epochs[oldest]


def _refuse(address: str, reason: str) -> NoReturn:
    log.warning("refused broker %s as a master: %s", address, reason)
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
