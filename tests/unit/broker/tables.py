"""The tables of a broker, without the broker."""

from __future__ import annotations

from typing import Any

from eruca._broker.groups.groups import Groups
from eruca._broker.options import BrokerOptions, LiveOptions
from eruca._broker.standing import Standing
from eruca._broker.topics import Topics
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import GroupConfigTable, TopicConfigTable


def make_topics(table: TopicConfigTable | None = None, **options: Any) -> Topics:
    """The topics of a broker with these options."""
    given = BrokerOptions(**options)
    return Topics(LiveOptions(given), Standing(given), VirtualClock(), table or TopicConfigTable())


def make_groups(table: GroupConfigTable | None = None, **options: Any) -> Groups:
    """The groups of a broker with these options."""
    given = BrokerOptions(**options)
    return Groups(LiveOptions(given), Standing(given), VirtualClock(), table or GroupConfigTable())
