"""The addresses of a slave's master: of its service, and of its log."""

from __future__ import annotations

from typing import Final

from eruca._broker.options import HA_PORT_ABOVE, BrokerOptions
from eruca._broker.standing import Standing
from eruca._ground.digits import read_digits

# The master is unknown.
NOWHERE: Final = ("", "")


class MasterAddress:
    """The service and the HA address of the master that a slave follows."""

    def __init__(self, options: BrokerOptions, standing: Standing) -> None:
        self._options = options
        self._standing = standing
        self._place = NOWHERE

    def take(self, place: tuple[str, str]) -> None:
        """Follow another broker from now on, given its service and its HA address."""
        self._place = place

    def find(self) -> tuple[str, str]:
        """Return the service and HA address; empty if unknown."""
        address, ha_address = self._place
        ha_address = self._options.ha_master or ha_address
        # The ports are adjacent.
        address = address or _shift_port(ha_address, -HA_PORT_ABOVE)
        ha_address = ha_address or _shift_port(address, HA_PORT_ABOVE)
        return (address, ha_address) if address != self._standing.address else NOWHERE


def _shift_port(address: str, by: int) -> str:
    """Return the address with another port; empty if there is no address."""
    host, _, port = address.rpartition(":")
    number = read_digits(port)
    return "" if number is None else f"{host}:{number + by}"
