"""The subscription groups of a broker."""

from __future__ import annotations

import logging
from typing import Final

from eruca._broker.options import LiveOptions
from eruca._broker.standing import Standing
from eruca._broker.tableroom import TableRoom
from eruca._ground.clock import Clock
from eruca._ground.signals import Signal
from eruca._wire.bodies import DataVersion, GroupConfig, GroupConfigTable
from eruca._wire.names import check_group
from eruca.errors import InvalidName

log = logging.getLogger(__name__)

# Groups that every broker has.
_OWN = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)


# Maximum bytes of one group in the table besides its name, which occurs twice: with every number at its longest.
_GROUP_BYTES: Final = 320


class Groups:
    """The table of groups."""

    def __init__(self, options: LiveOptions, standing: Standing, clock: Clock, table: GroupConfigTable) -> None:
        self._options = options
        self._standing = standing
        self._clock = clock
        self.data_version = table.data_version
        self._groups: dict[str, GroupConfig] = dict(table.subscription_group_table)
        #: Notified of every change.
        self.changed: Signal[()] = Signal()
        for name in _OWN:
            self._groups.setdefault(name, GroupConfig(group_name=name, consume_broadcast_enable=True))
        self._bytes = sum(map(_weigh, self._groups))
        self._room = TableRoom("groups", options, "groups_max", self._measure, log)

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, group: str) -> GroupConfig | None:
        """Return the settings of a group; an unknown one is created if the rules allow it."""
        found = self._groups.get(group)
        if found is not None or not self._options.now.auto_create_group:
            return found
        try:
            check_group(group)
        except InvalidName:
            return None
        if self._standing.is_slave:
            return GroupConfig(group_name=group)  # only its master may create it
        log.info("group %s created", group)
        return self.put(GroupConfig(group_name=group))

    def find(self, group: str) -> GroupConfig | None:
        """Return the settings of an existing group."""
        return self._groups.get(group)

    def names(self) -> list[str]:
        """List every group."""
        return list(self._groups)

    def put(self, config: GroupConfig) -> GroupConfig:
        """Create or change a group. Raises InvalidName, or TableFull if the table is full."""
        name = config.group_name
        check_group(name)
        if name not in self._groups:
            size = _weigh(name)
            self._room.check(f"group {name} cannot be created", 1, size)
            self._bytes += size
        self._groups[name] = config
        self._advance()
        return config

    def _measure(self) -> tuple[int, int]:
        return len(self._groups), self._bytes

    def delete(self, group: str) -> bool:
        """Delete a group; return False if there was none."""
        if self._groups.pop(group, None) is None:
            return False
        self._bytes -= _weigh(group)
        self._advance()
        return True

    def replace(self, table: GroupConfigTable) -> None:
        """Replace the table with a master's."""
        self._groups = dict(table.subscription_group_table)
        self._bytes = sum(map(_weigh, self._groups))
        self.data_version = table.data_version
        self.changed.tell()

    def _advance(self) -> None:
        self.data_version = DataVersion(counter=self.data_version.counter + 1, timestamp=self._clock.now_ms())
        self.changed.tell()

    def snapshot(self) -> GroupConfigTable:
        """Return the table in the form that is saved."""
        version = DataVersion(counter=self.data_version.counter, timestamp=self.data_version.timestamp)
        return GroupConfigTable(data_version=version, subscription_group_table=dict(self._groups))


def _weigh(group: str) -> int:
    """Return the maximum bytes of a group in the table."""
    return 2 * len(group) + _GROUP_BYTES
