"""A new one-time password for a user who cannot log in, made by whoever can write the console's file."""

from __future__ import annotations

from pathlib import Path

from eruca._console.identity.identity import Identity
from eruca._console.identity.options import IdentityOptions
from eruca._console.identity.tables import IDENTITY
from eruca._console.state import State
from eruca._ground.clock import SystemClock


async def renew_password(directory: Path, user: str) -> str:
    """Return a new one-time password of a user, whose sessions end; the console may be running.

    Raises ConfigError if there is no such user.
    """
    state = State(directory, (IDENTITY,))
    await state.open()
    try:
        identity = Identity(IdentityOptions(), state, SystemClock())
        password = await identity.users.renew(user)
        await identity.audit.add(
            user="", action="user.renew", target=user, outcome="done", reason="on the command line"
        )
        return password
    finally:
        await state.close()
