"""Passwords: how they are kept, and which are accepted."""

from __future__ import annotations

import asyncio
import threading

import pytest

from eruca._console.identity import passwords
from eruca._console.identity.passwords import (
    PasswordHashing,
    check_password,
    hash_password,
    make_one_time_password,
    matches,
    needs_new_hash,
)
from eruca._ground import limits
from eruca.errors import ConfigError, TooManyCalls

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def hash_cheaply() -> None:
    """Let a password cost what it costs."""


def test_a_password_matches_its_own_hash_only() -> None:
    hashed = hash_password(PASSWORD)
    assert matches(PASSWORD, hashed) and not matches(PASSWORD + " ", hashed) and not matches("", hashed)
    assert PASSWORD not in hashed and hashed != hash_password(PASSWORD)
    assert hashed.split("$")[:4] == ["scrypt", "32768", "8", "1"]


def test_a_hash_with_other_parameters_is_read_and_replaced_later() -> None:
    salt = b"0123456789abcdef"
    made = passwords._derive(PASSWORD, salt, 2**10, 8, 1)
    old = f"scrypt$1024$8$1${passwords._to_text(salt)}${passwords._to_text(made)}"
    assert matches(PASSWORD, old) and needs_new_hash(old) and not needs_new_hash(hash_password(PASSWORD))


@pytest.mark.parametrize(
    "hashed",
    [
        "",
        "plain",
        "md5$1$1$1$AA==$AA==",
        "scrypt$0$8$1$AA==$AA==",
        "scrypt$1048576$8$1$AA==$AA==",
        "scrypt$32768$8$1$?$?",
        "scrypt$32768$999999$1$AA==$AA==",
        "scrypt$-1$8$1$AA==$AA==",
    ],
)
def test_a_hash_that_cannot_be_read_matches_nothing(hashed: str) -> None:
    assert not matches(PASSWORD, hashed) and not matches("", hashed)


@pytest.mark.parametrize("password", ["short", "aaaaaaaaaaaaaaaa", "abababababababab", "ann1234567890", "Ann-Smith99"])
def test_an_easy_password_is_refused(password: str) -> None:
    user = "Ann-Smith99" if password == "Ann-Smith99" else "ann"
    with pytest.raises(ConfigError):
        check_password(password, user)


def test_a_password_is_bounded() -> None:
    check_password(PASSWORD, "ann")
    with pytest.raises(ConfigError):
        check_password("ab cd ef gh " * 100, "ann")


def test_one_time_passwords_are_good_ones() -> None:
    made = {make_one_time_password() for _ in range(100)}
    assert len(made) == 100 and all(check_password(each, "admin") == each for each in made)


async def test_a_user_who_does_not_exist_has_no_password() -> None:
    hashing = PasswordHashing()
    assert await hashing.check(PASSWORD, await hashing.hash(PASSWORD))
    # Also not the one that is compared instead.
    assert not await hashing.check(PASSWORD, None) and not await hashing.check(PASSWORD, None)


async def test_few_passwords_are_hashed_at_once_and_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, lock, go = 0, 0, threading.Lock(), threading.Event()

    def slow(password: str, hashed: str) -> bool:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        go.wait(10)
        with lock:
            running -= 1
        return True

    monkeypatch.setattr(passwords, "matches", slow)
    hashing = PasswordHashing()
    tasks = [asyncio.create_task(hashing.check("x", "y")) for _ in range(limits.CONSOLE_LOGINS_WAITING_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyCalls):
        await hashing.check("x", "y")
    go.set()
    assert all(await asyncio.gather(*tasks)) and most <= limits.CONSOLE_HASHES_MAX
