"""Sessions end when idle, when old, with the user, and when there are too many."""

from __future__ import annotations

import pytest

from eruca._console.identity.entrance import Visitor
from eruca._console.identity.identity import Identity
from eruca._console.identity.rights import Role, User
from eruca._console.identity.sessions import is_csrf, make_csrf, make_id
from eruca._console.state import State
from eruca._ground import limits
from eruca._testing.clock import VirtualClock

MINUTE_MS = 60_000
HERE = Visitor("10.0.0.1", "a browser")


@pytest.fixture
async def user(identity: Identity) -> User:
    await identity.start()
    return (await identity.users.show("admin")).user


async def begin(identity: Identity, user: User) -> str:
    return await identity.sessions.begin(user, address="10.0.0.1", agent="a browser")


async def test_ids_are_random_and_long(identity: Identity, user: User) -> None:
    made = {make_id() for _ in range(1000)}
    assert len(made) == 1000 and min(map(len, made)) >= 43
    assert await begin(identity, user) != await begin(identity, user)


@pytest.mark.parametrize("session_id", ["", "x", "x" * 43, "x" * 100_000, "\ud800", "' OR 1=1 --"])
async def test_an_id_that_was_not_given_finds_nothing(identity: Identity, user: User, session_id: str) -> None:
    await begin(identity, user)
    assert await identity.sessions.find(session_id) is None


async def test_the_hash_in_the_file_is_not_an_id(identity: Identity, user: User) -> None:
    session = await identity.sessions.find(await begin(identity, user))
    assert session is not None and await identity.sessions.find(session.hash) is None


async def test_an_idle_session_ends(identity: Identity, user: User, clock: VirtualClock) -> None:
    session_id = await begin(identity, user)
    for _ in range(5):
        clock.advance(29 * MINUTE_MS)
        assert await identity.sessions.find(session_id) is not None
    clock.advance(30 * MINUTE_MS + 1)
    assert await identity.sessions.find(session_id) is None


async def test_what_a_page_does_by_itself_is_not_activity(identity: Identity, user: User, clock: VirtualClock) -> None:
    session_id = await begin(identity, user)
    for _ in range(30):
        assert await identity.sessions.find(session_id, is_active=False) is not None
        clock.advance(MINUTE_MS)
    clock.advance(MINUTE_MS)
    assert await identity.sessions.find(session_id, is_active=False) is None


async def test_an_old_session_ends_however_active_it_is(identity: Identity, user: User, clock: VirtualClock) -> None:
    session_id = await begin(identity, user)
    for _ in range(12 * 6):
        assert await identity.sessions.find(session_id) is not None
        clock.advance(10 * MINUTE_MS)
    clock.advance(1)
    assert await identity.sessions.find(session_id) is None


async def test_one_user_has_few_sessions(identity: Identity, user: User, clock: VirtualClock) -> None:
    first = await begin(identity, user)
    for _ in range(limits.CONSOLE_SESSIONS_MAX):
        clock.advance(1)
        last = await begin(identity, user)
    assert await identity.sessions.find(first) is None and await identity.sessions.find(last) is not None
    assert len(await identity.sessions.list("admin")) == limits.CONSOLE_SESSIONS_MAX


async def test_sessions_of_others_stay(identity: Identity, user: User) -> None:
    await identity.users.create("ann", Role.VIEWER, ())
    other = await begin(identity, (await identity.users.show("ann")).user)
    mine = [await begin(identity, user) for _ in range(3)]
    session = await identity.sessions.find(mine[0])
    assert session is not None
    await identity.entrance.log_out(session, HERE, everywhere=True)
    assert [await identity.sessions.find(each) for each in mine] == [None] * 3
    assert await identity.sessions.find(other) is not None
    await identity.users.delete("ann")
    assert await identity.sessions.find(other) is None


async def test_a_page_that_refreshes_writes_nothing(
    identity: Identity, user: User, clock: VirtualClock, state: State
) -> None:
    session_id = await begin(identity, user)
    clock.advance(MINUTE_MS)
    await identity.sessions.find(session_id)
    assert (await state.read("SELECT seen_ms - made_ms FROM sessions"))[0][0] == 0
    clock.advance(MINUTE_MS)
    await identity.sessions.find(session_id)
    assert (await state.read("SELECT seen_ms - made_ms FROM sessions"))[0][0] == 2 * MINUTE_MS


async def test_ended_sessions_leave_the_file(identity: Identity, user: User, clock: VirtualClock, state: State) -> None:
    for _ in range(3):
        await begin(identity, user)
    clock.advance(31 * MINUTE_MS)
    await begin(identity, user)
    assert (await state.read("SELECT count(*) FROM sessions"))[0][0] == 1


def test_a_token_belongs_to_its_session() -> None:
    one, other = make_id(), make_id()
    assert is_csrf(one, make_csrf(one))
    for wrong in (make_csrf(other), "", one, make_csrf(one)[:-1], "\ud800", "ü"):
        assert not is_csrf(one, wrong)
