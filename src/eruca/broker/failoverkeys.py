"""The keys of one broker name in etcd: where they are, what they hold, and a mirror of them."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from eruca.core.failover.view import MasterEntry, MemberEntry, StateEntry, View
from eruca.errors import BAD_JSON
from eruca.net.etcd import Change, KeyValue, Snapshot


class _Master(msgspec.Struct, rename="camel"):
    epoch: int
    configured_id: int
    address: str
    ha_address: str


class _State(msgspec.Struct, rename="camel"):
    epoch: int
    in_sync: list[int]


class _Member(msgspec.Struct, rename="camel"):
    address: str
    ha_address: str
    position: int
    epoch: int
    seen_epoch: int = 0
    round: int = 0
    cold: bool = False


class Keys:
    """Where the keys of one broker name are, and how they are read."""

    def __init__(self, prefix: str, cluster: str, name: str) -> None:
        self.prefix = f"{prefix.rstrip('/')}/{quote(cluster, safe='')}/{quote(name, safe='')}/"
        self.master = f"{self.prefix}master"
        self.state = f"{self.prefix}state"
        self._members = f"{self.prefix}members/"

    def member(self, number: int) -> str:
        """The key of a member."""
        return f"{self._members}{number}"

    def read_view(self, revision: int, items: dict[str, KeyValue]) -> View:
        """What the keys say; that of a member may say nothing. Raises one of `BAD_JSON` when another is not ours."""
        master = state = None
        members: dict[int, MemberEntry] = {}
        for key, item in items.items():
            if key == self.master:
                held = msgspec.json.decode(item.value, type=_Master)
                master = MasterEntry(
                    held.epoch, held.configured_id, held.address, held.ha_address, item.lease, item.mod_revision
                )
            elif key == self.state:
                known = msgspec.json.decode(item.value, type=_State)
                state = StateEntry(known.epoch, frozenset(known.in_sync), item.mod_revision)
            elif key.startswith(self._members) and key.removeprefix(self._members).isdecimal():
                number = int(key.removeprefix(self._members))
                members[number] = _read_member(number, item)
        return View(revision, master, state, members)


def _read_member(number: int, item: KeyValue) -> MemberEntry:
    """A member as its key says. One key that cannot be read must not leave all members without a master."""
    try:
        entry = msgspec.json.decode(item.value, type=_Member)
    except BAD_JSON:
        entry = _Member("", "", 0, 0)
    place, log_end = (entry.address, entry.ha_address), (entry.position, entry.epoch, entry.seen_epoch)
    return MemberEntry(number, *place, *log_end, entry.round, entry.cold, item.lease, item.mod_revision)


class Mirror:
    """The keys of a prefix as etcd had them last."""

    def __init__(self) -> None:
        self.revision = 0
        self.items: dict[str, KeyValue] = {}

    def reset(self, snapshot: Snapshot) -> bool:
        """Take all keys as they are; says whether that is newer than what was known."""
        if snapshot.revision < self.revision:
            return False
        self.revision, self.items = snapshot.revision, dict(snapshot.items)
        return True

    def apply(self, changes: list[Change]) -> bool:
        """Take changes in order; those that are known already count for nothing."""
        new = [change for change in changes if change.revision > self.revision]
        for change in new:
            if change.now is not None:
                self.items[change.key] = change.now
            else:
                self.items.pop(change.key, None)
            self.revision = change.revision
        return bool(new)


def encode_master(epoch: int, configured_id: int, address: str, ha_address: str) -> bytes:
    """What the key of the master holds."""
    return msgspec.json.encode(_Master(epoch, configured_id, address, ha_address))


def encode_state(epoch: int, members: frozenset[int]) -> bytes:
    """What the key of the state holds."""
    return msgspec.json.encode(_State(epoch, sorted(members)))


def encode_member(entry: MemberEntry) -> bytes:
    """What the key of a member holds; lease and revision are etcd's."""
    held = _Member(entry.address, entry.ha_address, entry.position, entry.epoch, entry.seen, entry.round, entry.is_cold)
    return msgspec.json.encode(held)
