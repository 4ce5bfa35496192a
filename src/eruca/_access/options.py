"""The options of access control, which all servers have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eruca._ground.config import option
from eruca._wire.signature import Credentials
from eruca.errors import ConfigError

#: The name of the file with the accounts, as in Java.
ACCOUNTS_NAME: Final = "plain_acl.yml"


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """Whether requests need an account, where the accounts are, and which one is this server's own."""

    enabled: bool = option(False, "aclEnable", "every request needs an account of aclFile that has the right for it")
    file: str = option(
        "",
        "aclFile",
        f"the accounts, a {ACCOUNTS_NAME} of 4.9; `acl/*.yml` beside it is read too; empty: {ACCOUNTS_NAME} beside the"
        " file of -c, otherwise in the data directory",
    )
    reload_ms: int = option(
        1000,
        "aclReloadInterval",
        "how often it is checked whether the files of accounts have changed (Java: 5000)",
        unit="ms",
        low=1,
    )
    broker_access_key: str = option(
        "", "brokerAccessKey", "the account with which this server calls other servers, one with `broker: true`"
    )
    broker_secret_key: str = option("", "brokerSecretKey", "the secret of that account", secret=True)

    def __post_init__(self) -> None:
        if bool(self.broker_access_key) != bool(self.broker_secret_key):
            missing = "brokerSecretKey" if self.broker_access_key else "brokerAccessKey"
            raise ConfigError("brokerAccessKey and brokerSecretKey belong together", hint=f"set {missing} too")

    @property
    def credentials(self) -> Credentials | None:
        """The account with which this server calls other servers; None if it has none."""
        if not self.broker_access_key:
            return None
        return Credentials(self.broker_access_key, self.broker_secret_key)
