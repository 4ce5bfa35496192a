"""Accounts and what each of them may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eruca._access.addresses import NOBODY, Address, AddressPattern
from eruca._wire.bodies import DataVersion
from eruca._wire.names import DLQ_PREFIX, FORBIDDEN_TO_SEND, RETRY_PREFIX, TRACE_TOPIC

DENY: Final = 1
PUB: Final = 4
SUB: Final = 8

#: The permissions as files have them.
PERMISSIONS: Final[Mapping[str, int]] = {
    "DENY": DENY,
    "PUB": PUB,
    "SUB": SUB,
    "PUB|SUB": PUB | SUB,
    "SUB|PUB": PUB | SUB,
}


@dataclass(frozen=True, slots=True)
class Account:
    """One account."""

    access_key: str
    secret_key: str = field(repr=False)
    #: From here its requests need no signature and no permissions.
    white_address: AddressPattern = NOBODY
    admin: bool = False
    default_topic: int = DENY
    default_group: int = DENY
    #: By topic, and by `%RETRY%` and group, as in Java.
    permissions: Mapping[str, int] = field(default_factory=dict)
    #: Eruca's own: it may be a broker; it may upload filter modules; it needs this client certificate.
    broker: bool = False
    upload: bool = False
    certificate: str | None = None
    #: The file that it is in.
    file: Path = Path()

    @property
    def is_set_apart(self) -> bool:
        """Whether it has a right that an admin account does not give: only its file can change it."""
        return self.broker or self.upload or self.certificate is not None

    def may_use_topic(self, topic: str, needed: int) -> bool:
        """Return whether it may publish to a topic (PUB) or subscribe to it (SUB)."""
        if topic.startswith(RETRY_PREFIX):
            # Only the consumers of a group put messages there.
            return self.may_use_group(topic.removeprefix(RETRY_PREFIX))
        if self._may_all(needed) or (needed == PUB and topic == TRACE_TOPIC):
            return True
        owned = self.permissions.get(topic)
        if owned is None and needed == SUB and topic.startswith(DLQ_PREFIX):
            return self.may_use_group(topic.removeprefix(DLQ_PREFIX))
        if owned is None:
            # A broker keeps messages of all topics in its own ones.
            is_internal = topic in FORBIDDEN_TO_SEND
            owned = DENY if is_internal and not self.admin else self.default_topic
        return _covers(owned, needed)

    def may_use_group(self, group: str) -> bool:
        """Return whether it may consume as a group."""
        return self._may_all(SUB) or _covers(self.permissions.get(RETRY_PREFIX + group, self.default_group), SUB)

    def _may_all(self, needed: int) -> bool:
        """An admin without permissions of its own may use everything; a broker has a copy of every message anyway."""
        return (self.admin and not self.permissions) or (self.broker and needed == SUB)


def _covers(owned: int, needed: int) -> bool:
    return not owned & DENY and owned & needed != 0


@dataclass(frozen=True, slots=True)
class AccountBook:
    """All accounts at one moment."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    #: Requests from here need no account, except those that only a broker or an uploader may send.
    white_addresses: tuple[AddressPattern, ...] = ()
    #: Eruca's own: brokers at these addresses need no account. Java's brokers do not sign.
    broker_addresses: tuple[AddressPattern, ...] = ()
    #: The version of each file, by its path.
    versions: Mapping[Path, DataVersion] = field(default_factory=dict)
    #: What is odd about the files, but not an error.
    notes: tuple[str, ...] = ()
    by_certificate: Mapping[str, Account] = field(init=False)

    def __post_init__(self) -> None:
        bound = {one.certificate: one for one in self.accounts.values() if one.certificate is not None}
        object.__setattr__(self, "by_certificate", bound)


def match_any(patterns: tuple[AddressPattern, ...], address: Address | None) -> bool:
    """Return whether one of the patterns matches an address."""
    return address is not None and any(pattern.matches(address) for pattern in patterns)
