"""The keys of automatic failover: what is written is read, and a mirror takes every change once."""

from __future__ import annotations

import msgspec
import pytest

from eruca.broker.failoverkeys import Keys, Mirror, encode_master, encode_member, encode_state
from eruca.core.failover.view import MasterEntry, MemberEntry, StateEntry, View
from eruca.net.etcd import Change, KeyValue, Snapshot

KEYS = Keys("/eruca", "cluster", "broker-a")
MEMBER = MemberEntry(1, "host:1", "host:2", 500, 3, 4, 8, True, 71, 9)


def hold(key: str, value: bytes, revision: int, lease: int = 0) -> KeyValue:
    return KeyValue(key.encode(), value, revision, revision, lease)


def test_what_is_written_is_read() -> None:
    items = {
        KEYS.master: hold(KEYS.master, encode_master(3, 0, "a:1", "a:2"), 5, 70),
        KEYS.state: hold(KEYS.state, encode_state(3, frozenset({2, 0})), 6),
        KEYS.member(1): hold(KEYS.member(1), encode_member(MEMBER), 9, 71),
        f"{KEYS.prefix}something": hold("x", b"{}", 2),
        f"{KEYS.prefix}members/x": hold("x", b"{}", 2),
    }
    master = MasterEntry(3, 0, "a:1", "a:2", 70, 5)
    assert KEYS.read_view(12, items) == View(12, master, StateEntry(3, frozenset({0, 2}), 6), {1: MEMBER})
    assert items[KEYS.state].value == b'{"epoch":3,"inSync":[0,2]}'


def test_nothing_there_is_an_empty_view() -> None:
    assert KEYS.read_view(1, {}) == View(1)


@pytest.mark.parametrize("value", [b"", b"[]", b'{"epoch":1}', b'{"epoch":"x","inSync":[]}'])
def test_foreign_value_is_refused(value: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        KEYS.read_view(1, {KEYS.state: hold(KEYS.state, value, 1)})


@pytest.mark.parametrize("value", [b"", b"not ours", encode_member(MEMBER).replace(b"position", b"pos\xc3tion")])
def test_a_member_that_cannot_be_read_is_there_and_says_nothing(value: bytes) -> None:
    other = KEYS.member(2)
    items = {KEYS.member(1): hold(KEYS.member(1), encode_member(MEMBER), 9, 71), other: hold(other, value, 8, 70)}
    view = KEYS.read_view(12, items)
    assert view.members == {1: MEMBER, 2: MemberEntry(2, "", "", 0, 0, 0, 0, False, 70, 8)}
    assert [entry.is_readable for entry in view.members.values()] == [True, False]


def test_mirror_takes_changes_once_and_in_order() -> None:
    mirror = Mirror()
    one, two = hold("a", b"1", 3), hold("a", b"2", 5)
    assert mirror.reset(Snapshot(4, {"a": one}))
    assert not mirror.apply([Change("a", 3, one)]), "known already"
    assert mirror.apply([Change("a", 5, two), Change("b", 5, two)])
    assert (mirror.revision, mirror.items) == (5, {"a": two, "b": two})
    assert mirror.apply([Change("a", 6, None), Change("b", 6, None)]), "a lease ends with all its keys at once"
    assert mirror.items == {}
    assert not mirror.reset(Snapshot(5, {"a": two})), "an answer that was overtaken"
    assert mirror.items == {}
    assert mirror.reset(Snapshot(9, {}))
    assert not mirror.apply([Change("a", 8, two)])
