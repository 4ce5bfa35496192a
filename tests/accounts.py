"""Accounts for tests: a file of them, and requests signed by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eruca._access.options import ACCOUNTS_NAME, AccessOptions
from eruca._ground.yamlfiles import write_yaml
from eruca._wire.command import Command
from eruca._wire.signature import Credentials

ADMIN = Credentials("the-admin", "secret-of-the-admin")


def describe(credentials: Credentials, **fields: Any) -> dict[str, Any]:
    """One account as its file has it."""
    return {"accessKey": credentials.access_key, "secretKey": credentials.secret_key, **fields}


def write_accounts(path: Path, *accounts: dict[str, Any], **fields: Any) -> None:
    """Write a file of accounts, with an admin."""
    # In one step: a server that reads it at any time finds all of it.
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(write_yaml({**fields, "accounts": [describe(ADMIN, admin=True), *accounts]}))
    new.chmod(0o600)
    new.replace(path)


def enable_accounts(directory: Path, *accounts: dict[str, Any], reload_ms: int = 20, **fields: Any) -> AccessOptions:
    """Write a file of accounts, and return the options of a server that uses it."""
    path = directory / ACCOUNTS_NAME
    write_accounts(path, *accounts, **fields)
    return AccessOptions(enabled=True, file=str(path), reload_ms=reload_ms)


def signed(command: Command, credentials: Credentials | None) -> Command:
    """Sign a request, if there is an account to sign it with."""
    if credentials is not None:
        credentials.sign(command)
    return command
