"""The current state of a broker: everything about it that changes while it runs, in one object.

Options hold the configuration and are never written; this object holds the current state. Parts that need it get it in
their constructor and read it; only the broker itself (its port) and its roles (the rest) change it.
"""

from __future__ import annotations

from eruca._broker.options import HA_PORT_ABOVE, BrokerOptions, BrokerRole
from eruca._wire.host import NO_HOST, pack_host
from eruca._wire.names import FENCED, MASTER, MASTER_ID, SLAVE


class Standing:
    """The role, id, epoch and address of one broker."""

    __slots__ = (
        "_ha_host",
        "_host",
        "_ip",
        "address",
        "broker_id",
        "epoch",
        "ha_address",
        "may_register",
        "port",
        "reason",
        "role",
        "state",
        "store_host",
        "store_id",
        "writable",
    )

    def __init__(self, options: BrokerOptions, ip: str = "") -> None:
        """`ip` is the address of `options.host` where that is a name: records hold no names."""
        self._host = options.host
        self._ip = ip or options.host
        self._ha_host = options.ha_host or options.host
        #: MASTER, SLAVE or FENCED; a fenced broker is neither master nor slave until its role is decided.
        self.state = FENCED
        #: Why it is a slave or fenced.
        self.reason = "the broker is starting"
        #: The kind of master, or SLAVE. A fenced broker keeps its last value.
        self.role = options.role
        #: The id it registers with, as a master or as a slave.
        self.broker_id = options.broker_id
        #: The epoch of its mastership; None on a slave.
        self.epoch: int | None = None
        #: The identity of the store it leads with.
        self.store_id: str | None = None
        #: Whether clients may store messages here: only on a master that is not fenced.
        self.writable = False
        #: Whether it may register. A broker whose role is undecided (it was replaced, or has no id) may not.
        self.may_register = True
        #: The address in the form that records hold, once the port is known.
        self.store_host = NO_HOST
        self._name_port(options.port)

    @property
    def is_slave(self) -> bool:
        """Whether the broker copies another."""
        return self.role is BrokerRole.SLAVE

    @property
    def is_sync(self) -> bool:
        """Whether it is a master that waits for its slaves."""
        return self.role is BrokerRole.SYNC_MASTER

    def listen(self, port: int) -> None:
        """Set the port. Raises WireError if the address for clients is not valid."""
        self._name_port(port)
        self.store_host = pack_host(self._ip, port)

    def _name_port(self, port: int) -> None:
        self.port = port
        #: The address for clients.
        self.address = f"{self._host}:{port}"
        #: The address for slaves.
        self.ha_address = f"{self._ha_host}:{port + HA_PORT_ABOVE}"

    def fence(self, why: str) -> None:
        """Accept no messages, and do not register: name servers without epochs would displace its successor."""
        self.state, self.reason = FENCED, why
        self.writable = self.may_register = False

    def prepare_to_lead(self, role: BrokerRole) -> None:
        """Become a master for its own services only; a registration now would have a master's id without its epoch."""
        self.may_register = False
        self.role, self.broker_id = role, MASTER_ID

    def lead(self, epoch: int, store_id: str) -> None:
        """Become the master, and accept messages."""
        self.state, self.reason = MASTER, ""
        self.epoch, self.store_id = epoch, store_id
        self.writable = self.may_register = True

    def prepare_to_follow(self) -> None:
        """Become a slave for its own services only."""
        self.role = BrokerRole.SLAVE

    def follow(self, why: str) -> None:
        """Become a slave; `take_id` sets the id to register with."""
        self.state, self.reason = SLAVE, why
        self.epoch = None

    def take_id(self, wanted: int) -> None:
        """Register with the id of a slave; without an id, or with a master's, it does not register."""
        self.may_register = wanted > MASTER_ID
        if wanted > MASTER_ID:
            self.broker_id = wanted
