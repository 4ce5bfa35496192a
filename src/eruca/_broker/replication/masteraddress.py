"""Where the master of a slave is: its service, and its log."""

from __future__ import annotations

from typing import Final

from eruca._broker.options import HA_PORT_ABOVE, BrokerOptions
from eruca._broker.standing import Standing
from eruca._ground.digits import read_digits

# Nobody knows the master.
NOWHERE: Final = ("", "")


class MasterAddress:
    """The service and the HA address of the master that a slave follows."""

    def __init__(self, options: BrokerOptions, standing: Standing) -> None:
        self._options = options
        self._standing = standing
        self._place = NOWHERE

    def take(self, place: tuple[str, str]) -> None:
        """Follow a broker from now on, by its service and its HA address."""
        self._place = place

    def find(self) -> tuple[str, str]:
        """Where its service and its log are; empty when nobody knows."""
        address, ha_address = self._place
        ha_address = self._options.ha_master or ha_address
        # The ports are neighbours.
        address = address or _shift_port(ha_address, -HA_PORT_ABOVE)
        ha_address = ha_address or _shift_port(address, HA_PORT_ABOVE)
        return (address, ha_address) if address != self._standing.address else NOWHERE


def _shift_port(address: str, by: int) -> str:
    """The address with another port; empty when there is none to begin with."""
    host, _, port = address.rpartition(":")
    number = read_digits(port)
    return "" if number is None else f"{host}:{number + by}"
