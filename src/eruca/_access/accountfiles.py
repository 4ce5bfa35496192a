"""Files of accounts: `plain_acl.yml` of RocketMQ 4.9, and `acl/*.yml` beside it.

    globalWhiteRemoteAddresses:       # these need no account
    - 10.1.2.*
    accounts:
    - accessKey: shop-orders
      secretKey: 12345678
      whiteRemoteAddress:
      admin: false
      defaultTopicPerm: DENY
      defaultGroupPerm: SUB
      topicPerms:
      - orders=PUB|SUB
      groupPerms:
      - billing=SUB

What is wrong is reported with file, account and field. Java ignores a permission that it does not understand.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from eruca._access.accounts import DENY, PERMISSIONS, Account, AccountBook
from eruca._access.addresses import AddressPattern, parse_pattern
from eruca._ground.config import shorten
from eruca._ground.limits import (
    ACL_ACCOUNTS_MAX,
    ACL_FILES_MAX,
    ACL_KEY_CHARS_MAX,
    ACL_KEY_CHARS_MIN,
    ACL_PERMISSIONS_MAX,
    GROUP_BYTES_MAX,
    RECORD_TOPIC_BYTES_MAX,
)
from eruca._ground.yamlfiles import Document, read_yaml
from eruca._wire.bodies import DataVersion
from eruca._wire.names import RETRY_PREFIX
from eruca.errors import ConfigError

#: The directory of further files, beside the first.
FURTHER_NAME: Final = "acl"
#: The account of a tool; mqadmin has it in the same directory.
TOOLS_NAME: Final = "tools.yml"

WHITE_ADDRESSES: Final = "globalWhiteRemoteAddresses"
BROKER_ADDRESSES: Final = "brokerRemoteAddresses"
ACCOUNTS: Final = "accounts"
VERSION: Final = "dataVersion"
_KNOWN: Final = frozenset({WHITE_ADDRESSES, BROKER_ADDRESSES, ACCOUNTS, VERSION})
_KNOWN_OF_ACCOUNT: Final = frozenset(
    {
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
        "broker",
        "upload",
        "certificate",
    }
)
_FINGERPRINT_DIGITS: Final = 64
_HEX_DIGITS: Final = frozenset("0123456789abcdef")
# Permissions of others: the secrets are readable by them.
_OTHERS: Final = 0o077

#: Changes with the files: path, time, size and number of each.
Stamp: TypeAlias = tuple[tuple[Path, int, int, int], ...]


# --- files ----------------------------------------------------------------------------------------------------------


def list_files(first: Path) -> list[Path]:
    """List the files of accounts that exist. Raises ConfigError if there are too many."""
    found = [first] if first.exists() else []
    for directory, _, names in os.walk(first.parent / FURTHER_NAME):
        wanted = [name for name in sorted(names) if name.endswith((".yml", ".yaml")) and name != TOOLS_NAME]
        found += [Path(directory, name) for name in wanted]
        if len(found) > ACL_FILES_MAX:
            raise ConfigError(f"{first.parent / FURTHER_NAME} has more than {ACL_FILES_MAX} files of accounts")
    return found


def read_stamp(first: Path) -> Stamp:
    """Return what differs when a file has changed."""
    stamp = []
    for path in list_files(first):
        with contextlib.suppress(OSError):
            facts = path.stat()
            stamp.append((path, facts.st_mtime_ns, facts.st_size, facts.st_ino))
    return tuple(stamp)


def read_book(first: Path) -> AccountBook:
    """Read all files. Raises ConfigError, which names file, account and field."""
    return make_book({path: read_yaml(path) for path in list_files(first)}, first)


def make_book(documents: dict[Path, Document], first: Path) -> AccountBook:
    """Check what files contain and return their accounts. Raises ConfigError."""
    accounts: dict[str, Account] = {}
    white: list[AddressPattern] = []
    brokers: list[AddressPattern] = []
    notes: list[str] = []
    bound: dict[str, str] = {}
    for path, document in documents.items():
        notes += [f"{path}: {_show(key)} has no effect" for key in document if key not in _KNOWN]
        notes += _look_at_mode(path)
        white += _read_patterns(path, document, WHITE_ADDRESSES)
        brokers += _read_patterns(path, document, BROKER_ADDRESSES)
        for account in _read_accounts(path, document, notes):
            other = accounts.get(account.access_key)
            if other is not None:
                raise ConfigError(f"{path}: account {account.access_key} is also in {other.file}")
            if account.certificate is not None:
                twin = bound.setdefault(account.certificate, account.access_key)
                if twin != account.access_key:
                    raise ConfigError(f"{path}: accounts {twin} and {account.access_key} have the same certificate")
            accounts[account.access_key] = account
    if len(accounts) > ACL_ACCOUNTS_MAX:
        raise ConfigError(f"there are {len(accounts)} accounts, at most {ACL_ACCOUNTS_MAX} are allowed")
    if not accounts:
        problem = "has no accounts" if first.exists() else "does not exist"
        raise ConfigError(f"{first} {problem}", hint="`eruca init` makes a configuration with an admin account")
    versions = {path: read_version(path, document) for path, document in documents.items()}
    return AccountBook(accounts, tuple(white), tuple(brokers), versions, tuple(notes))


def read_version(path: Path, document: Document) -> DataVersion:
    """Return the version of a file, which Java counts up with every change."""
    listed = document.get(VERSION)
    first = listed[0] if isinstance(listed, list) and listed else {}
    if not isinstance(first, dict):
        raise ConfigError(f"{path}: {VERSION} is not a list of mappings")
    counter, timestamp = first.get("counter", 0), first.get("timestamp", 0)
    if type(counter) is not int or type(timestamp) is not int or not 0 <= counter < 2**63 > timestamp >= 0:
        raise ConfigError(f"{path}: {VERSION} has no whole numbers `counter` and `timestamp`")
    return DataVersion(counter=counter, timestamp=timestamp)


def _look_at_mode(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        if path.stat().st_mode & _OTHERS:
            return [f"{path} has secrets and can be read by others (chmod 600 {path})"]
    return []


# --- fields ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of one account, read with errors that name it."""

    path: Path
    who: str
    values: Document

    def fail(self, field: str, problem: str, hint: str | None = None) -> ConfigError:
        return ConfigError(f"{self.path}: account {self.who}: {field} {problem}", hint=hint)

    def text(self, field: str) -> str:
        """A text; numbers without quotation marks are texts too, as in Java."""
        value = self.values.get(field)
        if value is None:
            return ""
        if type(value) is int:
            return str(value)
        if not isinstance(value, str):
            raise self.fail(field, "is not a text", hint="put it in quotation marks")
        return value

    def key(self, field: str) -> str:
        text = self.text(field)
        try:
            check_key(field, text)
        except ConfigError as error:
            raise ConfigError(f"{self.path}: account {self.who}: {error.args[0]}") from None
        return text

    def flag(self, field: str) -> bool:
        value = self.values.get(field)
        if value is None or isinstance(value, bool):
            return bool(value)
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise self.fail(field, "is neither true nor false")

    def permission(self, field: str) -> int:
        text = self.text(field)
        try:
            return parse_permission(text) if text.strip() else DENY
        except ConfigError as error:
            raise self.fail(field, error.args[0], hint=error.hint) from None

    def permissions(self, field: str, prefix: str) -> Iterator[tuple[str, int]]:
        value = self.values.get(field)
        if value is None:
            return
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(field, "is not a list of texts", hint="for example: - orders=PUB|SUB")
        if len(value) > ACL_PERMISSIONS_MAX:
            raise self.fail(field, f"has {len(value)} entries, at most {ACL_PERMISSIONS_MAX} are allowed")
        for item in value:
            try:
                name, permission = parse_resource(item)
            except ConfigError as error:
                raise self.fail(field, error.args[0], hint=error.hint) from None
            yield prefix + name, permission

    def pattern(self, field: str) -> AddressPattern:
        try:
            return parse_pattern(self.text(field))
        except ConfigError as error:
            raise self.fail(field, error.args[0], hint=error.hint) from None

    def fingerprint(self, field: str) -> str | None:
        digits = self.text(field).strip().lower().replace(":", "")
        if not digits:
            return None
        if len(digits) != _FINGERPRINT_DIGITS or not set(digits) <= _HEX_DIGITS:
            raise self.fail(field, "is not the SHA-256 fingerprint of a certificate: 64 hexadecimal digits")
        return digits


def check_key(field: str, text: str) -> None:
    """Check the form of an access key or a secret, without quoting it. Raises ConfigError."""
    if not ACL_KEY_CHARS_MIN <= len(text) <= ACL_KEY_CHARS_MAX:
        raise ConfigError(f"{field} has {len(text)} characters, {ACL_KEY_CHARS_MIN} to {ACL_KEY_CHARS_MAX} are allowed")
    if not text.isprintable():
        raise ConfigError(f"{field} has characters that cannot be printed")


def parse_permission(text: str) -> int:
    """Read PUB, SUB, PUB|SUB or DENY. Raises ConfigError."""
    found = PERMISSIONS.get(text.strip())
    if found is None:
        raise ConfigError(f"{shorten(text)!r} is not a permission", hint="expected DENY, PUB, SUB or PUB|SUB")
    return found


def parse_resource(text: str) -> tuple[str, int]:
    """Read `name=PERM`. Raises ConfigError."""
    name, equals, permission = text.partition("=")
    name = name.strip()
    if not equals or not name or len(name) > max(RECORD_TOPIC_BYTES_MAX, GROUP_BYTES_MAX):
        raise ConfigError(f"{shorten(text)!r} is not NAME=PERMISSION", hint="for example: orders=PUB|SUB")
    return name, parse_permission(permission)


def _read_patterns(path: Path, document: Document, field: str) -> list[AddressPattern]:
    listed = document.get(field)
    if listed is None:
        return []
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise ConfigError(f"{path}: {field} is not a list of texts", hint="for example: - 10.1.2.*")
    try:
        return [parse_pattern(item) for item in listed]
    except ConfigError as error:
        raise ConfigError(f"{path}: {field}: {error.args[0]}", hint=error.hint) from None


def _read_accounts(path: Path, document: Document, notes: list[str]) -> Iterator[Account]:
    listed = document.get(ACCOUNTS)
    if listed is None:
        return
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise ConfigError(f"{path}: {ACCOUNTS} is not a list of mappings", hint="each begins with `- accessKey:`")
    for number, values in enumerate(listed, 1):
        key = values.get("accessKey")
        fields = _Fields(path, shorten(key) if isinstance(key, str) else f"number {number}", values)
        unknown = [_show(name) for name in values if name not in _KNOWN_OF_ACCOUNT]
        notes += [f"{path}: account {fields.who}: {name} has no effect" for name in unknown]
        yield Account(
            fields.key("accessKey"),
            fields.key("secretKey"),
            fields.pattern("whiteRemoteAddress"),
            fields.flag("admin"),
            fields.permission("defaultTopicPerm"),
            fields.permission("defaultGroupPerm"),
            dict([*fields.permissions("groupPerms", RETRY_PREFIX), *fields.permissions("topicPerms", "")]),
            fields.flag("broker"),
            fields.flag("upload"),
            fields.fingerprint("certificate"),
            path,
        )


def _show(key: object) -> str:
    return shorten(str(key)) if isinstance(key, str | int) else "a key"
