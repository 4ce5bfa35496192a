"""The keys of automatic failover: written values are read back, and damaged ones are ignored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eruca._broker.replication.failoverkeys import Keys
from eruca._core.failover.view import MasterEntry, MemberEntry, StateEntry, View
from eruca._ground.limits import EPOCH_MAX
from eruca._net.etcd import KeyValue, Snapshot

KEYS = Keys("/eruca", "cluster", "broker-a")
MASTER = MasterEntry(3, 0, "a:1", "a:2", 70, 5)
STATE = StateEntry(3, frozenset({0, 2}), 6, 4)
MEMBER = MemberEntry(1, "host:1", "host:2", 500, 3, 4, 8, True, 71, 9)


def hold(key: str, value: bytes, revision: int, lease: int = 0) -> KeyValue:
    return KeyValue(key.encode(), value, revision, revision, 4, lease)


ITEMS = {
    KEYS.master: hold(KEYS.master, KEYS.write_master(3, 0, "a:1", "a:2", 70), 5, 70),
    KEYS.state: hold(KEYS.state, KEYS.write_state(3, frozenset({2, 0})), 6),
    KEYS.member(1): hold(KEYS.member(1), KEYS.write_member(MEMBER), 9, 71),
}
DAMAGED = View(12, MasterEntry(0, -1, "", "", 70, 5), StateEntry(0, frozenset(), 6, 4, is_damaged=True), {})


def read(*changes: tuple[str, KeyValue]) -> View:
    return KEYS.read_view(Snapshot(12, {**ITEMS, **dict(changes)}))


def test_what_is_written_is_read() -> None:
    foreign = [(f"{KEYS.prefix}something", hold("x", b"{}", 2)), (f"{KEYS.prefix}members/x", hold("x", b"{}", 2))]
    view = read(*foreign)
    assert view == View(12, MASTER, STATE, {1: MEMBER})
    assert not KEYS.find_damaged(view)
    # What brokers of different versions have to understand of each other.
    assert ITEMS[KEYS.state].value == b'{"held":{"epoch":3,"inSync":[0,2]},"check":2593739613}'


@pytest.mark.parametrize("epoch", [-1, EPOCH_MAX + 1, 2**63 - 1])
def test_epochs_that_cannot_be_say_nothing(epoch: int) -> None:
    seen = replace(MEMBER, seen=epoch)
    view = read(
        (KEYS.master, hold(KEYS.master, KEYS.write_master(epoch, 0, "a:1", "a:2", 70), 5, 70)),
        (KEYS.state, hold(KEYS.state, KEYS.write_state(epoch, frozenset({0})), 6)),
        (KEYS.member(1), hold(KEYS.member(1), KEYS.write_member(replace(MEMBER, epoch=epoch)), 9, 71)),
        (KEYS.member(2), hold(KEYS.member(2), KEYS.write_member(replace(seen, member=2)), 9, 71)),
    )
    assert len(KEYS.find_damaged(view)) == 4


def test_whom_a_member_knows_is_read() -> None:
    entry = replace(MEMBER, known=frozenset({"host:1", "other:1"}), store="ours")
    item = hold(KEYS.member(1), KEYS.write_member(entry), 9, 71)
    assert read((KEYS.member(1), item)).members[1] == entry


def test_nothing_there_is_an_empty_view() -> None:
    assert KEYS.read_view(Snapshot(1, {})) == View(1)


@pytest.mark.parametrize("key", ITEMS, ids=("master", "state", "member"))
def test_every_single_byte_that_is_another_is_noticed(key: str) -> None:
    item = ITEMS[key]
    nothing = {
        KEYS.master: View(12, DAMAGED.master, STATE, {1: MEMBER}),
        KEYS.state: View(12, MASTER, DAMAGED.state, {1: MEMBER}),
        KEYS.member(1): View(12, MASTER, STATE, {1: MemberEntry(1, "", "", 0, 0, 0, 0, False, 71, 9)}),
    }[key]
    for at in range(len(item.value)):
        for bit in range(8):
            value = bytearray(item.value)
            value[at] ^= 1 << bit
            view = read((key, hold(key, bytes(value), item.mod_revision, item.lease)))
            assert view == nothing, bytes(value)
    assert KEYS.find_damaged(nothing) == {(key, item.mod_revision)}


@pytest.mark.parametrize("value", [b"", b"[]", b"not ours", b'{"epoch":3,"inSync":[0,2]}', b'{"held":{},"check":0}'])
@pytest.mark.parametrize("key", ITEMS, ids=("master", "state", "member"))
def test_what_somebody_else_wrote_says_nothing(key: str, value: bytes) -> None:
    assert KEYS.find_damaged(read((key, hold(key, value, 8)))) == {(key, 8)}


def test_a_value_belongs_to_its_key_and_its_lease() -> None:
    other = KEYS.member(2)
    value = ITEMS[KEYS.member(1)].value
    assert not read((other, hold(other, value, 8, 71))).members[2].is_readable
    assert not read((KEYS.member(1), hold(KEYS.member(1), value, 8, 72))).members[1].is_readable


def test_names_cannot_leave_their_place() -> None:
    keys = Keys("/eruca/", "a/b", "c d")
    assert keys.prefix == "/eruca/a%2Fb/c%20d/"
    assert keys.member(3) == "/eruca/a%2Fb/c%20d/members/3"
