"""The options of access control, which all servers have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eruca._ground.config import option

#: The name of the file with the accounts, as in Java.
ACCOUNTS_NAME: Final = "plain_acl.yml"


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """Whether requests need an account, and where the accounts are."""

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
