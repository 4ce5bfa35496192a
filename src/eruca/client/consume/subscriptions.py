"""What a group wants of its topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eruca.client.namespaces import wrap
from eruca.errors import ConfigError
from eruca.filter.tags import TagExpression, parse_tags
from eruca.wire.bodies import SubscriptionData
from eruca.wire.names import check_topic

TAG, SQL92 = "TAG", "SQL92"


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 expression over properties, evaluated by the broker.

    >>> Consumer(..., subscribe={"orders": Sql("region = 'eu' AND total > 100")})
    """

    text: str


Subscribe = str | Iterable[str] | Mapping[str, str | Sql]


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic and what is wanted of it."""

    topic: str
    kind: str
    text: str
    # The broker compares hashes only, so the client looks at tags again; None for SQL92.
    tags: TagExpression | None
    version: int

    @property
    def data(self) -> SubscriptionData:
        """As heartbeats carry it."""
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.text,
            sub_version=self.version,
            expression_type=self.kind,
            tags_set=sorted(self.tags.tags) if self.tags is not None else [],
            code_set=sorted(self.tags.codes) if self.tags is not None else [],
        )


def make_subscription(topic: str, wanted: str | Sql, version: int) -> Subscription:
    """Read one expression: tags separated by `||`, `*` for all, or Sql. The topic is as the broker knows it."""
    if isinstance(wanted, Sql):
        if not wanted.text.strip():
            raise ConfigError(f"the SQL92 expression for {topic} is empty")
        return Subscription(topic, SQL92, wanted.text, None, version)
    tags = parse_tags(wanted)
    return Subscription(topic, TAG, tags.text, tags, version)


def make_subscriptions(subscribe: Subscribe, namespace: str, version: int) -> dict[str, Subscription]:
    """Read all that a user subscribes to: a topic, several, or a mapping from topics to expressions."""
    if isinstance(subscribe, str):
        subscribe = [subscribe]
    wanted: Mapping[str, str | Sql] = subscribe if isinstance(subscribe, Mapping) else dict.fromkeys(subscribe, "*")
    return {
        wrap(namespace, topic): make_subscription(wrap(namespace, check_topic(topic)), text, version)
        for topic, text in wanted.items()
    }
