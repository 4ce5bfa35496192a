"""Passwords: hashed by scrypt, with the parameters beside each hash, and checked in a bounded number of threads."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import string
from typing import Final

from eruca._ground import limits
from eruca._ground.digits import read_digits
from eruca.errors import ConfigError, TooManyCalls

# 32 MiB and about 60 ms of a core for each guess.
_COST: Final = 2**15
_BLOCKS: Final = 8
_PARALLEL: Final = 1
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
# What a hash in the state file may ask for: a few times the above.
_COST_MAX: Final = 2**18
_MEMORY_BYTES_MAX: Final = 512 * 1024 * 1024
_ONE_TIME_CHARS: Final = 20
# Without characters that look like others.
_ALPHABET: Final = "".join(sorted(set(string.ascii_letters + string.digits) - set("0O1lI")))


def hash_password(password: str) -> str:
    """Return `scrypt$cost$blocks$parallel$salt$hash`. Blocks for some 60 ms."""
    salt = secrets.token_bytes(_SALT_BYTES)
    made = _derive(password, salt, _COST, _BLOCKS, _PARALLEL)
    return f"scrypt${_COST}${_BLOCKS}${_PARALLEL}${_to_text(salt)}${_to_text(made)}"


def matches(password: str, hashed: str) -> bool:
    """Whether a password belongs to a hash; False for a hash that cannot be read. Blocks for some 60 ms."""
    try:
        name, cost, blocks, parallel, salt, expected = hashed.split("$")
        numbers = [read_digits(number) or 0 for number in (cost, blocks, parallel)]
        if name != "scrypt" or not 1 < numbers[0] <= _COST_MAX:
            return False
        made = _derive(password, base64.b64decode(salt, validate=True), *numbers)
        return hmac.compare_digest(made, base64.b64decode(expected, validate=True))
    except (ValueError, binascii.Error):
        return False


def needs_new_hash(hashed: str) -> bool:
    """Whether a hash has other parameters than new ones get."""
    return not hashed.startswith(f"scrypt${_COST}${_BLOCKS}${_PARALLEL}$")


def make_one_time_password() -> str:
    """Return a random password that a person can type: 115 bits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_ONE_TIME_CHARS))


def check_password(password: str, user: str) -> str:
    """Return a new password, or raise ConfigError if it is too short, too long or too easy."""
    few, many = limits.CONSOLE_PASSWORD_CHARS_MIN, limits.CONSOLE_PASSWORD_CHARS_MAX
    if not few <= len(password) <= many:
        raise ConfigError(f"a password has {few} to {many} characters", hint="several words are easy to remember")
    if len(set(password)) < few // 2 or password.lower().replace(user.lower(), "").strip(string.digits) == "":
        raise ConfigError("this password is too easy to guess", hint="use several words")
    return password


class PasswordHashing:
    """Hashes passwords in threads: few at the same time, and few that wait, whatever the number of log-ins."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(limits.CONSOLE_HASHES_MAX)
        self._waiting = 0
        # Checked for a user that does not exist, so that the time of an answer tells nothing.
        self._decoy = ""

    async def hash(self, password: str) -> str:
        """Return the hash of a password."""
        async with self._turns:
            return await asyncio.to_thread(hash_password, password)

    async def check(self, password: str, hashed: str | None) -> bool:
        """Whether a password belongs to a hash; None takes as long, and it never does.

        Raises TooManyCalls if too many others wait.
        """
        if self._waiting >= limits.CONSOLE_LOGINS_WAITING_MAX:
            raise TooManyCalls("too many log-ins at once", hint="try again in a minute")
        self._waiting += 1
        try:
            async with self._turns:
                if hashed is None and not self._decoy:
                    self._decoy = await asyncio.to_thread(hash_password, secrets.token_urlsafe())
                is_right = await asyncio.to_thread(
                    matches, password[: limits.CONSOLE_PASSWORD_CHARS_MAX], hashed or self._decoy
                )
        finally:
            self._waiting -= 1
        return is_right and hashed is not None


def _derive(password: str, salt: bytes, cost: int, blocks: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"),
        salt=salt,
        n=cost,
        r=blocks,
        p=parallel,
        maxmem=_MEMORY_BYTES_MAX,
        dklen=_HASH_BYTES,
    )


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode()
