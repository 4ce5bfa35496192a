"""A list of all options, for commands, documentation and start-up, made from the declared fields."""

from __future__ import annotations

import dataclasses
import difflib
import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

from eruca._access.options import AccessOptions
from eruca._broker.administering.javakeys import IGNORED
from eruca._broker.options import BrokerOptions
from eruca._console.identity.options import IdentityOptions
from eruca._console.options import ConsoleOptions
from eruca._console.watching.options import WatchingOptions
from eruca._filterserver.options import FilterServerOptions
from eruca._ground.config import OptionInfo, StoreOptions, info_of, write_value
from eruca._nameserver.options import NameServerOptions
from eruca._net.limitoptions import LimitOptions
from eruca._net.metricsoptions import MetricsOptions
from eruca._net.tlsoptions import TlsOptions

ENVIRONMENT_PREFIX = "ERUCA_"
# The part of options that all servers have; there is one row for each server.
EVERY_SERVER = "every server"
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# How the options of TLS begin.
_TLS = "tls."
# Marks an option of the name server that exists only because 4.9 has it.
_WITHOUT_EFFECT = "accepted, without effect: "
_TYPE_NAMES: dict[Any, str] = {bool: "true or false", int: "number", str: "text"}


class Role(enum.Enum):
    """Which program reads an option."""

    BROKER = "broker"
    NAMESERVER = "nameserver"
    FILTERSERVER = "filterserver"
    CONSOLE = "console"
    # Each of the three; the console has only their options of TLS.
    SERVER = "server"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class OptionFacts:
    """One option and everything known about it."""

    key: str
    role: Role
    part: str
    kind: Any
    default: str
    info: OptionInfo
    # Why it has no effect here; empty if it has one.
    no_effect: str = ""
    # Declared already, but belongs to a part that is not built yet.
    coming: bool = False

    def is_of(self, role: Role) -> bool:
        """Return whether a program reads it; some are options of every server."""
        if role is Role.CONSOLE and self.role is Role.SERVER:
            return self.key.startswith(_TLS)
        return self.role is role or (self.role is Role.SERVER and role is not Role.CLIENT)

    @property
    def environment(self) -> str:
        """The environment variable that sets it."""
        return name_environment(self.key)

    @property
    def flag(self) -> str:
        """The command-line flag that sets it."""
        return name_flag(self.key)

    @property
    def values(self) -> str:
        """The values it may have."""
        if isinstance(self.kind, type) and issubclass(self.kind, enum.Enum):
            return " or ".join(str(member.value) for member in self.kind)
        low, high = self.info.low, self.info.high
        name = _TYPE_NAMES.get(self.kind, "text")
        if low is not None and high is not None:
            return f"{low} to {high}"
        if low is not None:
            return f"{low} or more"
        return name if high is None else f"at most {high}"

    @property
    def older(self) -> str:
        """The default of 3.x if it differs, or an empty string."""
        return "" if self.info.older is None else str(self.info.older)


def name_environment(key: str) -> str:
    """`listenPort` as an environment variable: `ERUCA_LISTEN_PORT`."""
    return ENVIRONMENT_PREFIX + _WORD_START.sub("_", key).replace(".", "_").upper()


def name_flag(key: str) -> str:
    """`listenPort` as a flag: `--listen-port`."""
    return "--" + _WORD_START.sub("-", key).replace(".", "-").lower()


_PARTS: tuple[tuple[Role, str, type[Any]], ...] = (
    (Role.BROKER, "broker", BrokerOptions),
    (Role.BROKER, "store", StoreOptions),
    (Role.NAMESERVER, "name server", NameServerOptions),
    (Role.FILTERSERVER, "filter server", FilterServerOptions),
    (Role.CONSOLE, "console", ConsoleOptions),
    (Role.CONSOLE, "console", IdentityOptions),
    (Role.CONSOLE, "console", WatchingOptions),
    (Role.SERVER, EVERY_SERVER, AccessOptions),
    (Role.SERVER, EVERY_SERVER, TlsOptions),
    (Role.SERVER, EVERY_SERVER, MetricsOptions),
)
# What a Java client takes as system properties; our client will take them under the same names.
_COMING = (
    OptionInfo(
        "rocketmq.client.rebalance.waitInterval",
        "how often a consumer checks which queues are assigned to it",
        unit="ms",
        low=1,
        older=10_000,
    ),
    OptionInfo(
        "rocketmq.client.rebalance.lockInterval",
        "how often an ordered consumer renews the locks of its queues",
        unit="ms",
        low=1,
        older=1_000,
    ),
)
_COMING_DEFAULT = "20000"


@cache
def list_options() -> tuple[OptionFacts, ...]:
    """Return all options, all keys of 4.9 without effect, and the options still to come."""
    found: list[OptionFacts] = []
    for role, part, options in _PARTS:
        found += _list_declared(role, part, options)
    for key, (default, reason) in IGNORED.items():
        found.append(OptionFacts(key, Role.BROKER, "4.9", str, default, OptionInfo(key, reason), no_effect=reason))
    found += [
        OptionFacts(info.java, Role.CLIENT, "client", int, _COMING_DEFAULT, info, coming=True) for info in _COMING
    ]
    return tuple(found)


def _list_declared(role: Role, part: str, options: type[Any]) -> Iterator[OptionFacts]:
    hints = get_type_hints(options)
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    shared = info_of(LimitOptions)
    for name, info in info_of(options).items():
        reason = info.doc.removeprefix(_WITHOUT_EFFECT) if info.doc.startswith(_WITHOUT_EFFECT) else ""
        where = EVERY_SERVER if name in shared else part
        yield OptionFacts(info.java, role, where, hints[name], write_value(defaults[name]), info, no_effect=reason)


def options_of(*roles: Role) -> dict[str, OptionFacts]:
    """Return the options of roles by key; of two roles with the same key the first counts."""
    found: dict[str, OptionFacts] = {}
    for role in roles:
        for facts in list_options():
            if facts.is_of(role) and not facts.coming:
                found.setdefault(facts.key, facts)
    return found


def find_options(name: str) -> list[OptionFacts]:
    """Return the options that match a name: a key in any case, a flag, or an environment variable."""
    wanted = name.partition("=")[0].strip().lower()
    found = [facts for facts in list_options() if wanted in (facts.key.lower(), facts.environment.lower(), facts.flag)]
    return list({(facts.key, facts.part): facts for facts in found}.values())


def find_near_keys(name: str, count: int = 3) -> list[str]:
    """Return the known keys most similar to an unknown one."""
    keys = {facts.key.lower(): facts.key for facts in list_options()}
    near = difflib.get_close_matches(name.lower(), keys, n=count, cutoff=0.6)
    return [keys[key] for key in near]
