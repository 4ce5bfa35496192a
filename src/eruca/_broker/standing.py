"""What a broker is at this moment: everything about it that changes while it runs, in one object.

Options say what a broker is configured as, and are never written. This says what it has become. Whoever needs to know
gets it in its constructor and reads it; only the broker itself (its port) and its roles (the rest) change it.
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

    def __init__(self, options: BrokerOptions) -> None:
        self._host = options.host
        self._ha_host = options.ha_host or options.host
        #: MASTER, SLAVE or FENCED; the last one is a broker that is neither, until somebody says what it is.
        self.state = FENCED
        #: Why it is a slave or fenced.
        self.reason = "the broker starts"
        #: What kind of master it is, or SLAVE. A fenced broker keeps what it was.
        self.role = options.role
        #: The id it registers with: that of a master or of a slave, whichever it is.
        self.broker_id = options.broker_id
        #: The epoch of its mastership; None on a slave.
        self.epoch: int | None = None
        #: The identity of the store it leads with.
        self.store_id: str | None = None
        #: May clients store messages here? Only on a master that is not fenced.
        self.writable = False
        #: May it register? A broker that does not know what it is (it was replaced, or has no id) does not.
        self.may_register = True
        #: The address as records hold it, once the port is known.
        self.store_host = NO_HOST
        self._name_port(options.port)

    @property
    def is_slave(self) -> bool:
        """Does the broker copy another?"""
        return self.role is BrokerRole.SLAVE

    @property
    def is_sync(self) -> bool:
        """Is it a master that waits for its slaves?"""
        return self.role is BrokerRole.SYNC_MASTER

    def listen(self, port: int) -> None:
        """The broker has its port. Raises WireError when it tells clients what is not an address."""
        self._name_port(port)
        self.store_host = pack_host(self._host, port)

    def _name_port(self, port: int) -> None:
        self.port = port
        #: What clients are told.
        self.address = f"{self._host}:{port}"
        #: What slaves are told.
        self.ha_address = f"{self._ha_host}:{port + HA_PORT_ABOVE}"

    def fence(self, why: str) -> None:
        """Take no messages. It does not register: name servers that know no epochs would push its successor aside."""
        self.state, self.reason = FENCED, why
        self.writable = self.may_register = False

    def prepare_to_lead(self, role: BrokerRole) -> None:
        """Be a master as far as its own services go; a registration now would have the id of one without its epoch."""
        self.may_register = False
        self.role, self.broker_id = role, MASTER_ID

    def lead(self, epoch: int, store_id: str) -> None:
        """Be the master, and take messages."""
        self.state, self.reason = MASTER, ""
        self.epoch, self.store_id = epoch, store_id
        self.writable = self.may_register = True

    def prepare_to_follow(self) -> None:
        """Be a slave as far as its own services go."""
        self.role = BrokerRole.SLAVE

    def follow(self, why: str) -> None:
        """Be a slave; with which id it registers is said by `take_id`."""
        self.state, self.reason = SLAVE, why
        self.epoch = None

    def take_id(self, wanted: int) -> None:
        """Register with the id of a slave; with none, and with a master's, it does not."""
        self.may_register = wanted > MASTER_ID
        if wanted > MASTER_ID:
            self.broker_id = wanted
