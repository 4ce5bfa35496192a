"""The settings of a server: defaults, a `.conf` file, the environment, the command line; later ones override."""

from __future__ import annotations

import difflib
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from eruca._access.options import ACCOUNTS_NAME, AccessOptions
from eruca._broker.options import BrokerOptions, BrokerRole
from eruca._cli.optionlist import (
    ENVIRONMENT_PREFIX,
    OptionFacts,
    Role,
    find_near_keys,
    list_options,
    options_of,
)
from eruca._ground.config import StoreOptions, from_properties, info_of, show_value, write_value
from eruca._ground.javaconf import explain_keys, read_conf
from eruca._net.addresses import check_addresses
from eruca._store.filesystem import LocalFileSystem
from eruca._store.layout import StorePaths, detect_options
from eruca.errors import ConfigError

Options = TypeVar("Options")

# The variable that Java's broker and clients read. A `.conf` file overrides it, as in Java.
NAMESRV_VARIABLE = "NAMESRV_ADDR"
# Only variables this similar to a real one are reported as typing errors: others may use the prefix too.
_VARIABLE_LIKENESS = 0.85
# An address reserved for documentation. Asking the system for a route to it sends nothing.
_FAR_AWAY = ("203.0.113.1", 9)


@dataclass(frozen=True, slots=True)
class Setting:
    """The text of one setting, and where it was set."""

    text: str = field(repr=False)
    source: str = ""


@dataclass(slots=True)
class Settings:
    """What was set, by Java key, and notes about it for the log."""

    roles: tuple[Role, ...]
    # The `.conf` file, if there is one.
    config: Path | None = None
    found: dict[str, Setting] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _suggested: set[str] = field(default_factory=set)

    def is_set(self, key: str) -> bool:
        """Return whether an option was set."""
        return key in self.found and key not in self._suggested

    def suggest(self, key: str, text: str, source: str = "default of this command") -> None:
        """Set an option unless it was set."""
        if key not in self.found:
            self.found[key] = Setting(text, source)
            self._suggested.add(key)

    def add_kept(self, path: Path, *options: type[Any]) -> None:
        """Load what an operator changed while the server ran. What is set elsewhere overrides it."""
        if not path.exists():
            return
        mutable = {info.java for part in options for info in info_of(part).values() if info.mutable}
        for key, text in read_conf(path).items():
            if key in mutable and not self.is_set(key):
                self.found[key] = Setting(text, str(path))
                self._suggested.discard(key)

    def list_overriding(self, *files: Path | None) -> dict[str, str]:
        """Return the keys that are set by anything but these files, and by what."""
        names = {str(file) for file in files}
        return {
            key: setting.source
            for key, setting in self.found.items()
            if self.is_set(key) and setting.source not in names
        }

    def forget(self, key: str, variable: str) -> None:
        """Ignore an option if only this variable sets it, which is not meant for this command."""
        if key in self.found and self.found[key].source == f"the variable {variable}":
            del self.found[key]

    def build(self, options: type[Options], *, without: Iterable[str] = ()) -> Options:
        """Return an options object. Raises ConfigError, which says where the bad value was set."""
        left_out = set(without)
        properties = {key: setting.text for key, setting in self.found.items() if key not in left_out}
        try:
            return from_properties(options, properties)
        except ConfigError as error:
            setting = self.found.get(str(error).partition("=")[0])
            if setting is None or error.hint:
                raise
            raise ConfigError(error.args[0], hint=f"set by {setting.source}") from None


def gather_settings(
    *roles: Role,
    config: Path | None = None,
    environment: Mapping[str, str],
    overrides: Iterable[str] = (),
    flags: Mapping[str, str | None] | None = None,
) -> Settings:
    """Combine all sources, later ones overriding: Java's variable, file, environment, `--option`, flags."""
    settings = Settings(roles, config)
    known = options_of(*roles)
    found = settings.found
    if environment.get(NAMESRV_VARIABLE) and "namesrvAddr" in known:
        found["namesrvAddr"] = Setting(environment[NAMESRV_VARIABLE], f"the variable {NAMESRV_VARIABLE}")
    if config is not None:
        found.update({key: Setting(text, str(config)) for key, text in read_conf(config).items()})
    for key, facts in known.items():
        if facts.environment in environment:
            found[key] = Setting(environment[facts.environment], f"the variable {facts.environment}")
    settings.notes += _find_odd_variables(environment)
    for key, text in map(parse_override, overrides):
        if key not in known:
            raise _refuse_override(key)
        found[key] = Setting(text, f"--option {key}")
    for key, flag_text in (flags or {}).items():
        if flag_text is not None:
            found[key] = Setting(flag_text, known[key].flag)
    settings.notes += _explain(settings)
    return settings


def _refuse_override(key: str) -> ConfigError:
    """Return the error about an option that this command does not have."""
    owners = [_name_owner(facts) for facts in list_options() if facts.key == key]
    if owners:
        return ConfigError(f"--option {key}: this command has no such option; it is one of {' and of '.join(owners)}")
    near = find_near_keys(key)
    return ConfigError(f"--option {key}: no such option", hint=f"did you mean {' or '.join(near)}?" if near else "")


def _name_owner(facts: OptionFacts) -> str:
    return "a client" if facts.role is Role.CLIENT else f"the {facts.part}"


def parse_override(text: str) -> tuple[str, str]:
    """Split `KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        # What follows the name may be a secret that is set with a wrong separator.
        name = re.match(r"[\w.]*", text)
        raise ConfigError(f"--option {name[0] if name else ''}: expected KEY=VALUE")
    return key.strip(), value.strip()


def _find_odd_variables(environment: Mapping[str, str]) -> list[str]:
    known = {facts.environment for facts in list_options()}
    notes = []
    for name in environment:
        if name.startswith(ENVIRONMENT_PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=_VARIABLE_LIKENESS)
            notes += [f"the variable {name} is not a known one; did you mean {near[0]}?" for _ in near]
    return notes


def _explain(settings: Settings) -> list[str]:
    """Return notes about keys without effect and about unknown keys."""
    known = options_of(*settings.roles)
    without_effect = {key: facts.no_effect for key, facts in known.items() if facts.no_effect}
    for facts in list_options():
        if facts.key not in known:
            without_effect[facts.key] = f"it is an option of {_name_owner(facts)}"
    effective = [key for key in known if key not in without_effect]
    properties = {key: setting.text for key, setting in settings.found.items()}
    notes = explain_keys(properties, effective, without_effect)
    keys = [key for key in properties if key not in effective]
    return [f"{note} [{settings.found[key].source}]" for key, note in zip(keys, notes, strict=True)]


# --- the broker's and the store's own rules -------------------------------------------------------------------------


def build_broker_options(settings: Settings) -> BrokerOptions:
    """Return the broker's options, checked as Java does: the id of a role, the form of an address.

    Members that elect their master keep their ids: each is told what kind of master it would be.
    """
    options = settings.build(BrokerOptions)
    if options.role is BrokerRole.SLAVE and options.broker_id <= 0:
        raise ConfigError("brokerRole=SLAVE needs a brokerId above 0", hint="set brokerId=1")
    if options.role is not BrokerRole.SLAVE and options.broker_id != 0 and not options.failover:
        settings.notes.append(f"brokerId={options.broker_id} becomes 0: brokerRole={options.role.value} is a master")
        options = replace(options, broker_id=0)
    check_addresses("namesrvAddr", options.nameservers)
    return options


def build_store_options(settings: Settings, root: Path, commitlog: Path | None) -> StoreOptions:
    """Return the store's options. An existing store keeps its file sizes unless others are set."""
    given = settings.build(StoreOptions)
    detected = detect_options(LocalFileSystem(), StorePaths(root, commitlog), given)
    explicit = {
        name: getattr(given, name)
        for name, info in info_of(StoreOptions).items()
        if settings.is_set(info.java) and getattr(given, name) != getattr(detected, name)
    }
    return replace(detected, **explicit)


def build_access_options(settings: Settings, directory: Path) -> AccessOptions:
    """Return the options of access control. Without a `.conf` file, the accounts are in `directory`."""
    options = settings.build(AccessOptions)
    if options.file:
        return options
    where = directory if settings.config is None else settings.config.parent
    return replace(options, file=str(where / ACCOUNTS_NAME))


# --- who can reach us -----------------------------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_loopback(what: str, host: str, access: AccessOptions, *, insecure: bool) -> None:
    """Raise ConfigError for an address that other machines can reach, unless there are accounts, or `insecure`."""
    if not access.enabled and not insecure and not is_loopback(host):
        raise ConfigError(
            f"{what} would listen on {host}, which other machines can reach, without accounts: "
            "whoever connects could read and delete everything",
            hint="`eruca init` makes a configuration with accounts; --insecure allows everyone in that network",
        )


def choose_told_address(bind: str) -> str:
    """Return the address to announce when bound to `bind`: the same, or this machine's for a wildcard."""
    if bind not in ("0.0.0.0", "::"):
        return bind
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(_FAR_AWAY)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def describe_settings(settings: Settings, *options: Any) -> list[dict[str, str]]:
    """Return every option in force with its value and where it was set."""
    rows = []
    for part in options:
        for name, info in info_of(part).items():
            setting = settings.found.get(info.java)
            value = show_value(write_value(getattr(part, name)), info)
            rows.append({"key": info.java, "value": value, "source": "default" if setting is None else setting.source})
    return sorted(rows, key=lambda row: row["key"].lower())
