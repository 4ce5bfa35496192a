"""Users: made, changed, deleted, never without an administrator; log-ins and passwords."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eruca._console.identity import passwords
from eruca._console.identity.entrance import LogInRefused, Visitor
from eruca._console.identity.identity import Identity
from eruca._console.identity.openid import Proved
from eruca._console.identity.rights import Role, User, read_grants
from eruca._console.state import State
from eruca._ground import limits
from eruca._testing.clock import VirtualClock
from eruca.errors import ConfigError

HERE = Visitor("10.0.0.1", "a browser")
ISSUER = "https://id.example"


def read_all(directory: Path) -> bytes:
    """Return the content of all files."""
    return b"".join(file.read_bytes() for file in directory.iterdir())


async def start(identity: Identity) -> str:
    password = await identity.start()
    assert password is not None
    return password


async def test_the_first_start_makes_an_administrator_and_later_ones_do_not(identity: Identity) -> None:
    lost = await start(identity)
    # Nobody has used it: it may never have been seen.
    password = await start(identity)
    assert await identity.users.log_in("admin", lost) is None
    await identity.entrance.log_in("admin", password, HERE)
    assert await identity.start() is None
    user = await identity.users.log_in("admin", password)
    assert user == User("admin", Role.ADMIN, must_change=True)


async def test_a_first_user_with_others_is_left_alone(identity: Identity) -> None:
    await start(identity)
    await identity.users.create("ann", Role.VIEWER, ())
    assert await identity.start() is None


async def test_a_password_is_nowhere_in_the_file(identity: Identity, state: State, tmp_path: Path) -> None:
    password = await start(identity)
    session_id = await identity.entrance.log_in("admin", password, HERE)
    session = await identity.sessions.find(session_id)
    assert session is not None
    files = await asyncio.to_thread(read_all, tmp_path / "console")
    assert b"admin" in files and session.hash.encode() in files
    for secret in (password, session_id, session.csrf):
        assert secret.encode() not in files
    assert session_id not in repr(session) and session.csrf not in repr(session)


async def test_a_user_logs_in_with_the_one_time_password_and_chooses_another(identity: Identity) -> None:
    password = await start(identity)
    old = await identity.entrance.log_in("admin", password, HERE)
    new = await identity.entrance.change_password(User("admin", Role.ADMIN), password, "correct horse battery", HERE)
    assert await identity.sessions.find(old) is None
    session = await identity.sessions.find(new)
    assert session is not None and session.user == User("admin", Role.ADMIN)
    assert await identity.users.log_in("admin", password) is None
    assert await identity.users.log_in("admin", "correct horse battery") is not None


@pytest.mark.parametrize("new", ["short", "admin1234567", ""])
async def test_a_bad_new_password_changes_nothing(identity: Identity, new: str) -> None:
    password = await start(identity)
    with pytest.raises(ConfigError):
        await identity.entrance.change_password(User("admin", Role.ADMIN), password, new or password, HERE)
    assert await identity.users.log_in("admin", password) is not None


async def test_the_old_password_cannot_be_guessed_in_a_stolen_session(identity: Identity) -> None:
    await start(identity)
    refused = 0
    for _ in range(20):
        try:
            await identity.entrance.change_password(User("admin", Role.ADMIN), "wrong", "correct horse battery", HERE)
        except LogInRefused:
            refused += 1
        except ConfigError:
            pass
    assert refused == 15


async def test_wrong_names_and_passwords_are_refused_alike(identity: Identity) -> None:
    await start(identity)
    messages = set()
    for name, password in (("admin", "wrong"), ("nobody", "wrong"), ("x" * 10_000, "wrong"), ("admin", "x" * 100_000)):
        with pytest.raises(LogInRefused) as caught:
            await identity.entrance.log_in(name, password, HERE)
        messages.add(str(caught.value))
    assert messages == {"wrong name or password"}


async def test_a_disabled_user_is_out_at_once(identity: Identity) -> None:
    await start(identity)
    _, password = await identity.users.create("ann", Role.OPERATOR, ())
    session_id = await identity.entrance.log_in("ann", password, HERE)
    await identity.users.update("ann", Role.OPERATOR, (), disabled=True)
    assert await identity.sessions.find(session_id) is None
    with pytest.raises(LogInRefused):
        await identity.entrance.log_in("ann", password, HERE)


async def test_a_change_of_rights_holds_for_open_sessions(identity: Identity) -> None:
    await start(identity)
    _, password = await identity.users.create("ann", Role.ADMIN, ())
    session_id = await identity.entrance.log_in("ann", password, HERE)
    session = await identity.sessions.find(session_id)
    assert session is not None and await identity.gate.is_current(session)
    grants = read_grants("topic shop- operator")
    await identity.users.update("ann", Role.VIEWER, grants, disabled=False)
    # What is streamed with the old rights ends.
    assert not await identity.gate.is_current(session)
    session = await identity.sessions.find(session_id)
    assert session is not None and (session.user.role, session.user.grants) == (Role.VIEWER, grants)


async def test_there_is_always_an_administrator(identity: Identity) -> None:
    await start(identity)
    # One of a provider does not count: it decides about the role at every log-in.
    await identity.users.enter(ISSUER, "1", "boss", Role.ADMIN)
    with pytest.raises(ConfigError, match="last administrator"):
        await identity.users.delete("admin")
    with pytest.raises(ConfigError, match="last administrator"):
        await identity.users.update("admin", Role.OPERATOR, (), disabled=False)
    with pytest.raises(ConfigError, match="last administrator"):
        await identity.users.update("admin", Role.ADMIN, (), disabled=True)
    await identity.users.create("second", Role.ADMIN, ())
    await identity.users.delete("admin")
    assert [account.user.name for account in await identity.users.list()] == ["boss", "second"]


async def test_two_administrators_cannot_remove_each_other_at_once(identity: Identity) -> None:
    await start(identity)
    await identity.users.create("second", Role.ADMIN, ())
    results = await asyncio.gather(
        identity.users.delete("admin"), identity.users.delete("second"), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["ConfigError", "NoneType"]


async def test_a_user_is_made_once(identity: Identity) -> None:
    await start(identity)
    with pytest.raises(ConfigError, match="already"):
        await identity.users.create("admin", Role.VIEWER, ())
    with pytest.raises(ConfigError):
        await identity.users.create("<script>", Role.VIEWER, ())


async def test_users_are_bounded(identity: Identity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONSOLE_USERS_MAX", 2)
    await start(identity)
    await identity.users.create("second", Role.VIEWER, ())
    with pytest.raises(ConfigError, match="delete some"):
        await identity.users.create("third", Role.VIEWER, ())
    with pytest.raises(ConfigError, match="delete some"):
        await identity.users.enter(ISSUER, "1", "third", Role.VIEWER)


async def test_what_is_unknown_is_not_changed(identity: Identity) -> None:
    await start(identity)
    for change in (
        identity.users.delete("nobody"),
        identity.users.update("nobody", Role.ADMIN, (), disabled=False),
        identity.users.renew("nobody"),
    ):
        with pytest.raises(ConfigError, match="no user"):
            await change


async def test_a_renewed_password_is_for_one_log_in(identity: Identity) -> None:
    first = await start(identity)
    session_id = await identity.entrance.log_in("admin", first, HERE)
    password = await identity.users.renew("admin")
    assert await identity.sessions.find(session_id) is None
    assert await identity.users.log_in("admin", first) is None
    user = await identity.users.log_in("admin", password)
    assert user is not None and user.must_change


async def test_a_name_cannot_be_taken_over_through_the_provider(identity: Identity) -> None:
    await start(identity)
    with pytest.raises(ConfigError, match="belongs to another user"):
        await identity.entrance.welcome(Proved(ISSUER, "evil", "admin", Role.ADMIN), HERE)
    await identity.entrance.welcome(Proved(ISSUER, "1", "ann", Role.VIEWER), HERE)
    with pytest.raises(ConfigError, match="belongs to another user"):
        await identity.entrance.welcome(Proved(ISSUER, "2", "ann", Role.ADMIN), HERE)
    with pytest.raises(ConfigError, match="belongs to another user"):
        await identity.entrance.welcome(Proved("https://evil.example", "1", "ann", Role.ADMIN), HERE)
    # Nor does it have a password.
    assert await identity.users.log_in("ann", "") is None
    with pytest.raises(ConfigError, match="no password here"):
        await identity.users.renew("ann")


async def test_a_user_of_the_provider_keeps_name_and_grants_and_gets_the_role_of_the_log_in(identity: Identity) -> None:
    await start(identity)
    grants = read_grants("topic shop- operator")
    await identity.users.enter(ISSUER, "1", "ann", Role.OPERATOR)
    await identity.users.update("ann", Role.OPERATOR, grants, disabled=False)
    user = await identity.users.enter(ISSUER, "1", "another-name", Role.VIEWER)
    assert user == User("ann", Role.VIEWER, grants, is_local=False)
    await identity.users.update("ann", Role.VIEWER, grants, disabled=True)
    with pytest.raises(ConfigError, match="disabled"):
        await identity.users.enter(ISSUER, "1", "ann", Role.ADMIN)


async def test_an_old_hash_is_replaced_at_the_next_log_in(
    identity: Identity, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = await start(identity)
    before = (await state.read("SELECT password FROM users"))[0][0]
    monkeypatch.setattr(passwords, "_COST", 2**5)
    assert await identity.users.log_in("admin", "wrong") is None
    assert (await state.read("SELECT password FROM users"))[0][0] == before
    assert await identity.users.log_in("admin", password) is not None
    after = (await state.read("SELECT password FROM users"))[0][0]
    assert before.startswith("scrypt$16$") and after.startswith("scrypt$32$")
    assert await identity.users.log_in("admin", password) is not None


async def test_log_ins_are_noted(identity: Identity, clock: VirtualClock) -> None:
    password = await start(identity)
    session_id = await identity.entrance.log_in("admin", password, HERE)
    account = await identity.users.show("admin")
    assert account.seen_at is not None and round(account.seen_at.timestamp() * 1000) == clock.now_ms()
    session = await identity.sessions.find(session_id)
    assert session is not None
    assert [row.address for row in await identity.sessions.list("admin")] == [HERE.address]
    await identity.entrance.log_out(session, HERE)
    assert await identity.sessions.find(session_id) is None and await identity.sessions.list("admin") == []
