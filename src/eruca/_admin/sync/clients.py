"""`Clients` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.clients` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from eruca._admin.clients import ClientOffset, ProducerClient, RunningInfo
from eruca._admin.clients import Clients as AsyncClients
from eruca._admin.groupmembers import GroupMember
from eruca._admin.results import LIMIT, Listed
from eruca._admin.sync.base import PlainPart


class Clients(PlainPart[AsyncClients]):
    """Lists connected clients and asks what they are doing: `admin.clients`."""

    def producers(
        self, group: str | None = None, *, broker: str | None = None, limit: int = LIMIT
    ) -> Listed[ProducerClient]:
        """Return the connected producers: of all groups, or of one."""
        return self._run(self._twin.producers(group, broker=broker, limit=limit))

    def consumers(self, group: str, *, limit: int = LIMIT) -> Listed[GroupMember]:
        """Return the connected members of a consumer group."""
        return self._run(self._twin.consumers(group, limit=limit))

    def running(self, group: str, client_id: str, *, stack: bool = False) -> RunningInfo:
        """Return what a member of a group is doing. Raises NoRoute if it is not connected."""
        return self._run(self._twin.running(group, client_id, stack=stack))

    def stack(self, group: str, client_id: str) -> str:
        """Return the stacks of the threads of a member. Raises NoRoute if it is not connected."""
        return self._run(self._twin.stack(group, client_id))

    def offsets(
        self, group: str, topic: str, *, client_id: str | None = None, limit: int = LIMIT
    ) -> Listed[ClientOffset]:
        """Return the offsets that the members of a group hold, which they may not have committed yet."""
        return self._run(self._twin.offsets(group, topic, client_id=client_id, limit=limit))
