"""Fields of messages that some roles may not read: rules by topic prefix, applied before anything is shown.

A rule names fields of a JSON body by their path (`card.number`; `*` is any one name, and lists are looked into), and
properties as `property:NAME`. A body that cannot be looked into is hidden as a whole from those a rule applies to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eruca._console.identity.rights import Role, User
from eruca._console.state import State
from eruca._ground import limits
from eruca._ground.nesting import nests_deeper
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX, check_topic, is_system_topic
from eruca.errors import ConfigError

#: What a masked field shows.
MASK: Final = "******"
_PROPERTY: Final = "property:"
_FIELDS_CHARS_MAX: Final = 4096
_REACH: Final = {Role.NONE: 0, Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMIN: 3}


@dataclass(frozen=True, slots=True)
class MaskRule:
    """Fields of the messages of some topics that only a role, and those above it, may read."""

    #: The topics whose names start like this; empty: all.
    prefix: str
    fields: tuple[str, ...]
    #: The weakest role that reads them: operator or admin.
    role: Role


class Masking:
    """All rules. Pages that show or export messages get them through `look`."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._rules: list[tuple[int, MaskRule]] = []

    @property
    def rules(self) -> Sequence[tuple[int, MaskRule]]:
        """The rules with their numbers."""
        return self._rules

    async def load(self) -> None:
        """Read the rules from the state file."""
        rows = await self._state.read("SELECT id, prefix, fields, role FROM masks ORDER BY prefix, id")
        self._rules = [
            (row["id"], MaskRule(row["prefix"], tuple(row["fields"].split()), Role(row["role"]))) for row in rows
        ]

    async def add(self, rule: MaskRule) -> None:
        """Add a rule; it applies at once."""
        if len(self._rules) >= limits.CONSOLE_MASKS_MAX:
            raise ConfigError(f"there are {limits.CONSOLE_MASKS_MAX} rules already", hint="delete some first")
        values = (rule.prefix, " ".join(rule.fields), rule.role.value)
        await self._state.write("INSERT INTO masks (prefix, fields, role) VALUES (?, ?, ?)", *values)
        await self.load()

    async def delete(self, number: int) -> MaskRule:
        """Delete a rule, which is returned. Raises ConfigError if there is none."""
        found = dict(self._rules).get(number)
        if found is None:
            raise ConfigError(f"there is no rule {number}", hint="it may have been deleted already")
        await self._state.write("DELETE FROM masks WHERE id = ?", number)
        await self.load()
        return found

    def look(self, user: User, topic: str) -> Mask:
        """Return what is masked for a user in the messages of a topic."""
        # Retries and dead letters can be of every topic, and so can messages that brokers keep for themselves.
        is_any = topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or is_system_topic(topic)
        fields = [
            field
            for _, rule in self._rules
            if (is_any or topic.startswith(rule.prefix)) and _REACH[user.role] < _REACH[rule.role]
            for field in rule.fields
        ]
        properties = frozenset(field.removeprefix(_PROPERTY) for field in fields if field.startswith(_PROPERTY))
        paths = frozenset(tuple(field.split(".")) for field in fields if not field.startswith(_PROPERTY))
        return Mask(paths, properties)


@dataclass(frozen=True, slots=True)
class Mask:
    """What is masked in the messages that a user reads."""

    paths: frozenset[tuple[str, ...]] = frozenset()
    properties: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is masked."""
        return not self.paths and not self.properties

    def hide_value(self, value: Any) -> Any:
        """Return a decoded body (of JSON, Avro or Protobuf: maps, lists, scalars) without its masked fields.

        A body that is not a map or a list is hidden as a whole.
        """
        if not self.paths:
            return value
        if not isinstance(value, Mapping | list | tuple):
            return MASK
        return _hide(value, self.paths)

    def hide_body(self, body: bytes) -> bytes:
        """Return a raw body without its masked fields: as JSON, or hidden as a whole."""
        if not self.paths:
            return body
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return MASK.encode()
        if nests_deeper(value, limits.CONSOLE_BODY_DEPTH_MAX):
            return MASK.encode()
        return json.dumps(self.hide_value(value), ensure_ascii=False).encode("utf-8", "backslashreplace")

    def hide_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return properties without the values of masked ones."""
        return {name: MASK if name in self.properties else text for name, text in properties.items()}


def read_rule(prefix: str, fields: str, role: str) -> MaskRule:
    """Return the rule that a form describes, or raise ConfigError."""
    names = tuple(dict.fromkeys(fields.replace(",", " ").split()))
    if not names or len(fields) > _FIELDS_CHARS_MAX or any("" in name.split(".") for name in names):
        raise ConfigError(
            "a rule needs names of fields", hint="for example `card.number customer.*.email property:token`"
        )
    if role not in (Role.OPERATOR.value, Role.ADMIN.value):
        raise ConfigError(f"{role[:40]!r} cannot be the role of a rule", hint="operator or admin")
    return MaskRule(check_topic(prefix) if prefix else "", names, Role(role))


def _hide(value: Any, paths: frozenset[tuple[str, ...]]) -> Any:
    """Hide what the paths name. Names are compared without regard to case, as those who read JSON often do."""
    if isinstance(value, list | tuple):
        return [_hide(item, paths) for item in value]
    if not isinstance(value, Mapping):
        return value
    hidden: dict[Any, Any] = {}
    for name, item in value.items():
        rest = [path[1:] for path in paths if path[0] == "*" or path[0].lower() == str(name).lower()]
        if () in rest:
            hidden[name] = MASK
        elif rest:
            hidden[name] = _hide(item, frozenset(rest))
        else:
            hidden[name] = item
    return hidden
