"""Which account uses which client id."""

from __future__ import annotations

import pytest

from eruca._broker.groups import clientids
from eruca._broker.groups.clientids import ClientIds
from eruca._testing.clock import VirtualClock
from eruca.errors import RequestRefused


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ids(clock: VirtualClock) -> ClientIds:
    return ClientIds(clock)


def test_an_id_is_that_of_its_first_account(ids: ClientIds) -> None:
    ids.claim("c", "shop")
    ids.claim("c", "shop")
    with pytest.raises(RequestRefused, match="client id c is that of another account"):
        ids.claim("c", "evil")
    ids.release("c", "shop")
    with pytest.raises(RequestRefused):
        ids.claim("c", "evil")


def test_it_stays_so_for_a_while(ids: ClientIds, clock: VirtualClock) -> None:
    ids.claim("c", "shop")
    clock.advance(1_000_000)
    ids.release("c", "shop")
    clock.advance(119_000)
    with pytest.raises(RequestRefused):
        ids.claim("c", "evil")
    ids.claim("c", "shop")
    ids.release("c", "shop")
    clock.advance(121_000)
    ids.claim("c", "evil")
    assert len(ids) == 1


def test_without_accounts_nothing_is_kept(ids: ClientIds) -> None:
    ids.claim("c", None)
    ids.claim("c", None)
    ids.release("c", None)
    assert len(ids) == 0


def test_those_that_nobody_has_are_limited(ids: ClientIds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clientids, "_KEPT_MAX", 3)
    for number in range(5):
        ids.claim(f"c{number}", "shop")
    for number in range(5):
        ids.release(f"c{number}", "shop")
    assert len(ids) == 3
    # The first ones are kept: who makes up new ones cannot push them out.
    with pytest.raises(RequestRefused):
        ids.claim("c0", "evil")
    ids.claim("c4", "evil")


def test_an_account_pushes_out_only_its_own(ids: ClientIds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, who gives up many ids could take those of others while they reconnect."""
    monkeypatch.setattr(clientids, "_KEPT_MAX", 10)
    for number in range(50):
        ids.claim(f"evil{number}", "evil")
        ids.release(f"evil{number}", "evil")
    for number in range(4):
        ids.claim(f"shop{number}", "shop")
        ids.release(f"shop{number}", "shop")
    assert len(ids) == 10
    for number in range(4):
        with pytest.raises(RequestRefused):
            ids.claim(f"shop{number}", "evil")
        ids.claim(f"shop{number}", "shop")
    with pytest.raises(RequestRefused):
        ids.claim("evil0", "shop")


def test_old_ones_make_room(ids: ClientIds, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clientids, "_KEPT_MAX", 1)
    ids.claim("c", "shop")
    ids.release("c", "shop")
    clock.advance(121_000)
    ids.claim("d", "shop")
    ids.release("d", "shop")
    with pytest.raises(RequestRefused):
        ids.claim("d", "evil")
    assert len(ids) == 1
