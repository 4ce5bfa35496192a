"""What a route needs, and what a user may do: a role, and other roles for topics and groups by prefix."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from eruca._ground import limits
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX, check_group, check_topic, is_system_topic
from eruca.errors import ConfigError

# The characters of a name that can be part of a page, a log line and a header.
_USER_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@+-")


class Need(enum.IntEnum):
    """What a route needs. Each includes those before it."""

    #: Everyone, also without log-in: the log-in page and static files.
    PUBLIC = 0
    #: Every user who has logged in, even one who still has to choose a password.
    LOGGED_IN = 1
    VIEW = 2
    OPERATE = 3
    ADMIN = 4


class Role(enum.Enum):
    """What a user is, in general or for the names with a prefix."""

    #: Neither sees nor changes. Only for a prefix: a user who may do nothing at all is disabled instead.
    NONE = "none"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


#: The roles that a user may have in general, the weakest first.
USER_ROLES: Final = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
#: The roles that a user may have for a prefix. Administering concerns a whole cluster.
GRANT_ROLES: Final = (Role.NONE, Role.VIEWER, Role.OPERATOR)
_REACH: Final = {
    Role.NONE: Need.LOGGED_IN,
    Role.VIEWER: Need.VIEW,
    Role.OPERATOR: Need.OPERATE,
    Role.ADMIN: Need.ADMIN,
}


class Kind(enum.Enum):
    """What a prefix is of."""

    TOPIC = "topic"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Grant:
    """The role of a user for topics or groups whose names have a prefix; the empty prefix is that of all."""

    kind: Kind
    prefix: str
    role: Role


@dataclass(frozen=True, slots=True)
class User:
    """A user of the console, as routes and pages see one."""

    name: str
    role: Role
    grants: tuple[Grant, ...] = ()
    #: Still has the one-time password: only choosing another is possible.
    must_change: bool = False
    #: Logs in here with a password; otherwise through the provider of OpenID Connect.
    is_local: bool = True

    def may(self, need: Need, *, topic: str = "", group: str = "") -> bool:
        """Whether the user may do what needs this right, with a topic, a group, both or neither."""
        if need in (Need.PUBLIC, Need.LOGGED_IN):
            return True
        if self.must_change:
            return False
        if self.role is Role.ADMIN:
            return True
        roles: list[Role] = [] if topic or group else [self.role]
        if topic:
            roles.append(self._role_for_topic(topic))
        if group:
            roles.append(self._role_for(Kind.GROUP, group))
        return all(_REACH[role] >= need for role in roles)

    @property
    def sees_all(self) -> bool:
        """Whether no topic and no group is hidden from the user."""
        return self.role is Role.ADMIN or all(grant.role is not Role.NONE for grant in self.grants)

    def _role_for_topic(self, topic: str) -> Role:
        """Retries and dead letters belong to their group. A topic of brokers has messages of all topics, so the weakest
        role counts."""
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if topic.startswith(prefix):
                return self._role_for(Kind.GROUP, topic.removeprefix(prefix))
        if is_system_topic(topic):
            return min((self.role, *(grant.role for grant in self.grants)), key=_REACH.__getitem__)
        return self._role_for(Kind.TOPIC, topic)

    def _role_for(self, kind: Kind, name: str) -> Role:
        """The longest prefix decides; where none matches, the role of the user."""
        matching = [grant for grant in self.grants if grant.kind is kind and name.startswith(grant.prefix)]
        return max(matching, key=lambda grant: len(grant.prefix)).role if matching else self.role


def check_user_name(name: str) -> str:
    """Return the name of a user, or raise ConfigError."""
    if not 0 < len(name) <= limits.CONSOLE_USER_CHARS_MAX or not _USER_CHARS.issuperset(name):
        raise ConfigError(
            f"{name[: limits.CONSOLE_USER_CHARS_MAX]!r} is not the name of a user",
            hint=f"1 to {limits.CONSOLE_USER_CHARS_MAX} letters, digits and . _ @ + -",
        )
    return name


def read_role(text: str) -> Role:
    """Return the role of a user by its name, or raise ConfigError."""
    for role in USER_ROLES:
        if role.value == text:
            return role
    raise ConfigError(f"{text[:40]!r} is not a role", hint=f"one of {', '.join(role.value for role in USER_ROLES)}")


def read_grants(text: str) -> tuple[Grant, ...]:
    """Read one grant per line, as `write_grants` writes them: `topic shop- operator`; `*` is the empty prefix."""
    grants: dict[tuple[Kind, str], Grant] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        grant = _read_grant(line)
        if (grant.kind, grant.prefix) in grants:
            raise ConfigError(f"{line[:80]!r}: this prefix has a role already", hint="one line for each prefix")
        grants[grant.kind, grant.prefix] = grant
        if len(grants) > limits.CONSOLE_GRANTS_MAX:
            raise ConfigError(f"more than {limits.CONSOLE_GRANTS_MAX} prefixes", hint="use shorter prefixes")
    return tuple(grants.values())


def write_grants(grants: tuple[Grant, ...]) -> str:
    """Return grants as lines of text."""
    return "\n".join(f"{grant.kind.value} {grant.prefix or '*'} {grant.role.value}" for grant in grants)


def _read_grant(line: str) -> Grant:
    words = line.split()
    roles = {role.value: role for role in GRANT_ROLES}
    kinds = {kind.value: kind for kind in Kind}
    if len(words) != 3 or words[0] not in kinds or words[2] not in roles:
        raise ConfigError(
            f"{line[:80]!r} is not a right", hint="for example `topic shop- operator` or `group * none`, one per line"
        )
    kind, prefix = kinds[words[0]], "" if words[1] == "*" else words[1]
    if prefix:
        (check_topic if kind is Kind.TOPIC else check_group)(prefix)
    return Grant(kind, prefix, roles[words[2]])
