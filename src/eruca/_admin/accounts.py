"""Accounts of access control: list without secrets, create, change, delete; addresses that need no account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import LIMIT, Changed, Listed


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account on one broker, without its secret, which no method returns."""

    broker: str
    access_key: str
    admin: bool = False
    # Addresses from which it needs no signature.
    white_addresses: str = ""
    # `PUB`, `SUB`, `PUB|SUB` or `DENY`.
    default_topic: str = "DENY"
    default_group: str = "DENY"
    topics: dict[str, str] = {}
    groups: dict[str, str] = {}


class WhiteAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses that need no account on one broker."""

    broker: str
    addresses: list[str]


class AccountVersion(msgspec.Struct, frozen=True, kw_only=True):
    """How new the account files of one broker are."""

    broker: str
    address: str
    cluster: str
    # The path of a file, how often it was changed, and when.
    file: str
    counter: int
    changed_at: datetime | None


class Accounts:
    """`admin.accounts`"""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, *, broker: str | None = None, limit: int = LIMIT) -> Listed[Account]:
        """Return the accounts of each broker, without their secrets."""
        raise NotImplementedError

    async def white_addresses(self, *, broker: str | None = None) -> Listed[WhiteAddresses]:
        """Return the addresses that need no account, on each broker."""
        raise NotImplementedError

    async def versions(self, *, broker: str | None = None, cluster: str | None = None) -> Listed[AccountVersion]:
        """Return how new the account files of brokers are. Brokers without access control are left out."""
        raise NotImplementedError

    async def create(
        self,
        access_key: str,
        secret_key: str,
        *,
        admin: bool = False,
        white_addresses: str = "",
        default_topic: str = "DENY",
        default_group: str = "DENY",
        topics: Mapping[str, str] | None = None,
        groups: Mapping[str, str] | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[Account]:
        """Create an account on all brokers, on those of a cluster, or on the named ones.

        Raises ConfigError if a broker has it; `update` changes it.
        """
        raise NotImplementedError

    async def update(
        self,
        access_key: str,
        *,
        secret_key: str | None = None,
        admin: bool | None = None,
        white_addresses: str | None = None,
        default_topic: str | None = None,
        default_group: str | None = None,
        topics: Mapping[str, str] | None = None,
        groups: Mapping[str, str] | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[Account]:
        """Change an account; what is None stays. Raises ConfigError if no broker has it.

        Java's brokers need the secret with every change.
        """
        raise NotImplementedError

    async def delete(
        self,
        access_key: str,
        *,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[Account]:
        """Delete an account. Its secret is not kept anywhere, so this cannot be undone."""
        raise NotImplementedError

    async def set_white_addresses(
        self,
        addresses: Sequence[str],
        *,
        file: str | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[WhiteAddresses]:
        """Replace the addresses that need no account."""
        raise NotImplementedError
