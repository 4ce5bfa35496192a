"""`Accounts` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.accounts` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eruca._admin.accounts import Account, AccountVersion, WhiteAddresses
from eruca._admin.accounts import Accounts as AsyncAccounts
from eruca._admin.results import LIMIT, Changed, Listed
from eruca._admin.sync.base import PlainPart


class Accounts(PlainPart[AsyncAccounts]):
    """Lists, creates, changes and deletes accounts: `admin.accounts`."""

    def list(self, *, broker: str | None = None, limit: int = LIMIT) -> Listed[Account]:
        """Return the accounts of each broker, masters and slaves, without their secrets.

        Brokers without access control are left out.
        """
        return self._run(self._twin.list(broker=broker, limit=limit))

    def white_addresses(self, *, broker: str | None = None) -> Listed[WhiteAddresses]:
        """Return the addresses that need no account, on each broker."""
        return self._run(self._twin.white_addresses(broker=broker))

    def versions(self, *, broker: str | None = None, cluster: str | None = None) -> Listed[AccountVersion]:
        """Return how new the account files of brokers are. Brokers without access control are left out."""
        return self._run(self._twin.versions(broker=broker, cluster=cluster))

    def create(
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
        return self._run(
            self._twin.create(
                access_key,
                secret_key,
                admin=admin,
                white_addresses=white_addresses,
                default_topic=default_topic,
                default_group=default_group,
                topics=topics,
                groups=groups,
                brokers=brokers,
                cluster=cluster,
                dry_run=dry_run,
            )
        )

    def update(
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

        Java's brokers need the secret with every change, and cannot take the last permission of a topic or group away.
        """
        return self._run(
            self._twin.update(
                access_key,
                secret_key=secret_key,
                admin=admin,
                white_addresses=white_addresses,
                default_topic=default_topic,
                default_group=default_group,
                topics=topics,
                groups=groups,
                brokers=brokers,
                cluster=cluster,
                dry_run=dry_run,
            )
        )

    def delete(
        self,
        access_key: str,
        *,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[Account]:
        """Delete an account. Its secret is not kept anywhere, so this cannot be undone.

        Raises ConfigError if no broker has it.
        """
        return self._run(self._twin.delete(access_key, brokers=brokers, cluster=cluster, dry_run=dry_run))

    def set_white_addresses(
        self,
        addresses: Sequence[str],
        *,
        file: str | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[WhiteAddresses]:
        """Replace the addresses that need no account: in the first file of each broker, or in a certain one."""
        return self._run(
            self._twin.set_white_addresses(addresses, file=file, brokers=brokers, cluster=cluster, dry_run=dry_run)
        )
