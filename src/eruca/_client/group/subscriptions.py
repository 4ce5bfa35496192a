"""The subscriptions of a group to its topics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from eruca._client.arguments import check_type
from eruca._client.namespaces import name_topic
from eruca._filter.tags import TagExpression, parse_tags
from eruca._wire.bodies import SubscriptionData
from eruca.errors import ConfigError

TAG, SQL92, CLASS = "TAG", "SQL92", "CLASS"


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 expression over properties, evaluated by the broker.

    >>> Consumer(..., subscribe={"orders": Sql("region = 'eu' AND total > 100")})
    """

    text: str

    def __post_init__(self) -> None:
        check_type("Sql.text", self.text, str)


@dataclass(frozen=True, slots=True)
class ClassFilter:
    """A filter class, run by a filter server: a WebAssembly module that exports `name`, or one installed there.

    >>> Consumer(..., subscribe={"orders": ClassFilter("OnlyLarge", Path("filters.wasm").read_bytes())})

    `eruca filterserver --help` describes such a module. A topic has one filter class for the whole group.
    """

    name: str
    # Empty: the class is installed at the filter server.
    module: bytes = b""

    def __post_init__(self) -> None:
        check_type("ClassFilter.name", self.name, str)
        check_type("ClassFilter.module", self.module, bytes)


#: Which messages of a topic: tags separated by `||`, an SQL92 expression, or a filter class.
Filter: TypeAlias = str | Sql | ClassFilter
#: A topic, or all topics whose whole name matches.
TopicChoice: TypeAlias = str | re.Pattern[str]
#: What to subscribe to: a topic or pattern, several, or a mapping from them to filters.
Subscribe: TypeAlias = (
    TopicChoice
    | Iterable[TopicChoice]
    | Mapping[str, Filter]
    | Mapping[re.Pattern[str], Filter]
    | Mapping[TopicChoice, Filter]
)


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic and its filter expression."""

    topic: str
    kind: str
    text: str
    # The broker only compares hashes, so the client compares the tags again; None for SQL92 and classes.
    tags: TagExpression | None
    version: int
    class_filter: ClassFilter | None = None

    @property
    def wanted(self) -> Filter:
        """The expression that `make_subscription` was given."""
        if self.class_filter is not None:
            return self.class_filter
        return Sql(self.text) if self.kind == SQL92 else self.text

    @property
    def data(self) -> SubscriptionData:
        """The subscription as heartbeats carry it."""
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.text,
            sub_version=self.version,
            # As in 3.x, the name of a class is sent as if it were a tag.
            class_filter_mode=self.class_filter is not None,
            expression_type=SQL92 if self.kind == SQL92 else TAG,
            tags_set=sorted(self.tags.tags) if self.tags is not None else [],
            code_set=sorted(self.tags.codes) if self.tags is not None else [],
        )


def make_subscription(topic: str, wanted: Filter, version: int) -> Subscription:
    """Parse one expression: tags separated by `||`, `*` for all, Sql, or a class; the topic as the broker knows it."""
    if isinstance(wanted, ClassFilter):
        if not wanted.name.strip():
            raise ConfigError(f"the filter class for {topic} has no name")
        return Subscription(topic, CLASS, wanted.name, None, version, wanted)
    if isinstance(wanted, Sql):
        if not wanted.text.strip():
            raise ConfigError(f"the SQL92 expression for {topic} is empty")
        return Subscription(topic, SQL92, wanted.text, None, version)
    check_type("tags", wanted, str, Sql, ClassFilter)
    tags = parse_tags(wanted)
    return Subscription(topic, TAG, tags.text, tags, version)


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Topics matched by name, as users know them, and their filter expression."""

    pattern: re.Pattern[str]
    wanted: Filter = "*"


def make_subscriptions(
    subscribe: Subscribe, namespace: str, version: int
) -> tuple[dict[str, Subscription], list[TopicPattern]]:
    """Parse the subscriptions of a user: a topic or pattern, several, or a mapping from them to expressions."""
    if isinstance(subscribe, str | re.Pattern):
        subscribe = [subscribe]
    check_type("subscribe", subscribe, Mapping, Iterable)
    wanted: Iterable[tuple[TopicChoice, Filter]]
    wanted = subscribe.items() if isinstance(subscribe, Mapping) else [(topic, "*") for topic in subscribe]
    topics: dict[str, Subscription] = {}
    patterns: list[TopicPattern] = []
    for topic, text in wanted:
        check_type("subscribe", topic, str, re.Pattern)
        if isinstance(topic, re.Pattern):
            patterns.append(make_pattern(topic, text))
        else:
            wrapped = name_topic(namespace, topic, "subscribe")
            topics[wrapped] = make_subscription(wrapped, text, version)
    return topics, patterns


def make_pattern(pattern: re.Pattern[str], wanted: Filter) -> TopicPattern:
    """Check a pattern and the expression for its topics. Raises ConfigError."""
    make_subscription(pattern.pattern, wanted, 0)  # raises now instead of later
    return TopicPattern(pattern, wanted)
