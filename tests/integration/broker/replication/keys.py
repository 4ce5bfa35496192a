"""Accounts for brokers that authenticate each other, and what a broker may be configured to know of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from eruca._access.options import AccessOptions
from eruca._wire.signature import Credentials
from tests.accounts import ADMIN, describe, write_accounts

MEMBERS = Credentials("members", "the secret of the members")
# A second account of brokers, as while a secret is being changed.
OTHERS = Credentials("members-2", "the next secret of the members")
KEYS = {
    "right": MEMBERS,
    "other": OTHERS,
    "wrong secret": Credentials(MEMBERS.access_key, "another secret"),
    "wrong account": Credentials("strangers", MEMBERS.secret_key),
    "not a broker": ADMIN,
    "none": Credentials("", ""),
}

# Makes the options of a server.
MakeAccess = Callable[..., AccessOptions]


def write_members(path: Path, *accounts: dict[str, Any], broker: bool = True) -> MakeAccess:
    """Write the accounts; return a function of the keys that a server has, and of whether it requires accounts."""
    write_accounts(path, describe(MEMBERS, broker=broker), describe(OTHERS, broker=True), *accounts)

    def make(keys: str = "right", *, on: bool = True) -> AccessOptions:
        own = KEYS[keys]
        return AccessOptions(
            enabled=on, file=str(path), broker_access_key=own.access_key, broker_secret_key=own.secret_key
        )

    return make
