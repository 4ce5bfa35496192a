"""The keys of one broker name in etcd: their paths and values.

A value is JSON: the content (`held`), and a checksum (`check`) of the content together with its key and its lease. The
checksum detects values that were corrupted in transit or written by something else; without it a wrong digit would be
believed.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote

import msgspec

from eruca._core.failover.view import MasterEntry, MemberEntry, StateEntry, View
from eruca._core.replication.epochs import is_epoch
from eruca._ground.badjson import BAD_JSON
from eruca._ground.digits import read_digits
from eruca._net.etcd import KeyValue, Snapshot

_T = TypeVar("_T", bound=msgspec.Struct)


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
    seen_epoch: int
    round: int
    cold: bool
    known: list[str] = []
    store: str = ""


class _Sealed(msgspec.Struct):
    held: msgspec.Raw
    check: int


class Keys:
    """The paths of the keys of one broker name, and how they are read and written."""

    def __init__(self, prefix: str, cluster: str, name: str) -> None:
        self.prefix = f"{prefix.rstrip('/')}/{quote(cluster, safe='')}/{quote(name, safe='')}/"
        self.master = f"{self.prefix}master"
        self.state = f"{self.prefix}state"
        self._members = f"{self.prefix}members/"

    def member(self, number: int) -> str:
        """Return the key of a member."""
        return f"{self._members}{number}"

    # -- reading -----------------------------------------------------------------------------------------------------

    def read_view(self, snapshot: Snapshot) -> View:
        """Decode the keys; those with an invalid checksum are ignored."""
        master = state = None
        members: dict[int, MemberEntry] = {}
        for key, item in snapshot.items.items():
            if key == self.master:
                master = _read_master(key, item)
            elif key == self.state:
                state = _read_state(key, item)
            elif key.startswith(self._members) and (number := read_digits(key.removeprefix(self._members))) is not None:
                members[number] = _read_member(number, key, item)
        return View(snapshot.revision, master, state, members)

    def find_damaged(self, view: View) -> set[tuple[str, int]]:
        """Find the keys that cannot be decoded, and their revisions."""
        entries: Mapping[str, MasterEntry | StateEntry | MemberEntry | None] = {
            self.master: view.master,
            self.state: view.state,
            **{self.member(number): entry for number, entry in view.members.items()},
        }
        return {(key, entry.revision) for key, entry in entries.items() if entry is not None and not entry.is_readable}

    # -- writing -----------------------------------------------------------------------------------------------------

    def write_master(self, epoch: int, configured_id: int, address: str, ha_address: str, lease: int) -> bytes:
        """Encode the value of the master key."""
        return _seal(self.master, lease, _Master(epoch, configured_id, address, ha_address))

    def write_state(self, epoch: int, members: frozenset[int]) -> bytes:
        """Encode the value of the state key."""
        return _seal(self.state, 0, _State(epoch, sorted(members)))

    def write_member(self, entry: MemberEntry) -> bytes:
        """Encode the value of a member key; its revision is assigned by etcd."""
        log_end = (entry.position, entry.epoch, entry.seen)
        place, known = (entry.address, entry.ha_address), sorted(entry.known)
        held = _Member(*place, *log_end, entry.round, entry.is_cold, known, entry.store)
        return _seal(self.member(entry.member), entry.lease, held)


def _read_master(key: str, item: KeyValue) -> MasterEntry:
    held = _open(key, item, _Master)
    if held is None or not is_epoch(held.epoch):
        held = _Master(0, -1, "", "")
    return MasterEntry(held.epoch, held.configured_id, held.address, held.ha_address, item.lease, item.mod_revision)


def _read_state(key: str, item: KeyValue) -> StateEntry:
    held = _open(key, item, _State)
    if held is None or not held.in_sync or not is_epoch(held.epoch):
        return StateEntry(0, frozenset(), item.mod_revision, item.version, is_damaged=True)
    return StateEntry(held.epoch, frozenset(held.in_sync), item.mod_revision, item.version)


def _read_member(number: int, key: str, item: KeyValue) -> MemberEntry:
    held = _open(key, item, _Member)
    if held is None or not is_epoch(held.epoch) or not is_epoch(held.seen_epoch):
        held = _Member("", "", 0, 0, 0, 0, False)
    place, log_end = (held.address, held.ha_address), (held.position, held.epoch, held.seen_epoch)
    known, store = frozenset(held.known), held.store
    return MemberEntry(number, *place, *log_end, held.round, held.cold, item.lease, item.mod_revision, known, store)


def _seal(key: str, lease: int, held: msgspec.Struct) -> bytes:
    text = msgspec.json.encode(held)
    return msgspec.json.encode(_Sealed(msgspec.Raw(text), _sum(key, lease, text)))


def _open(key: str, item: KeyValue, kind: type[_T]) -> _T | None:
    try:
        sealed = msgspec.json.decode(item.value, type=_Sealed)
        if sealed.check != _sum(key, item.lease, bytes(sealed.held)):
            return None
        return msgspec.json.decode(sealed.held, type=kind)
    except BAD_JSON:
        return None


def _sum(key: str, lease: int, text: bytes) -> int:
    return zlib.crc32(b"%s %d %s" % (key.encode(), lease, text))
