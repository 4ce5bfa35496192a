"""The settings of topics and groups as brokers keep them, and permissions as text."""

from __future__ import annotations

import msgspec

from eruca._admin.connection import Connection
from eruca._wire.bodies import GroupConfig, GroupConfigTable, TopicConfig, TopicConfigTable
from eruca._wire.codes import RequestCode
from eruca._wire.names import INHERIT, READ, WRITE
from eruca.errors import ConfigError

_PRIORITY = 8
_LETTERS = {READ: "R", WRITE: "W", INHERIT: "X", _PRIORITY: "P"}


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a topic on one broker."""

    read_queues: int
    write_queues: int
    # `RW`, `R` (no new messages), `W` or `-`; with an `X`: topics created automatically are like this one.
    permission: str = "RW"
    # Name servers know a fixed order of its queues, which producers keep when brokers come and go.
    ordered: bool = False
    filter_type: str = "SINGLE_TAG"
    # 1: of a unit, 2: subscribed by a unit.
    system_flag: int = 0


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a group on one broker."""

    consume: bool = True
    consume_from_min: bool = True
    broadcast: bool = True
    retry_queues: int = 1
    # How many times a message is delivered again before it becomes a dead letter.
    retries: int = 16
    # The broker to read from, and the one for members that are far behind.
    broker_id: int = 0
    slow_broker_id: int = 1
    # Whether members hear at once that others come and go.
    notify: bool = True


def describe_topic(config: TopicConfig, order: str = "", broker: str = "") -> TopicSettings:
    """Return the settings of a topic; `order` is what name servers have for it."""
    return TopicSettings(
        read_queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        permission=show_permission(config.perm),
        ordered=any(part.partition(":")[0] == broker for part in order.split(";")) if order else False,
        filter_type=config.topic_filter_type,
        system_flag=config.topic_sys_flag,
    )


def describe_group(config: GroupConfig) -> GroupSettings:
    """Return the settings of a group."""
    return GroupSettings(
        consume=config.consume_enable,
        consume_from_min=config.consume_from_min_enable,
        broadcast=config.consume_broadcast_enable,
        retry_queues=config.retry_queue_nums,
        retries=config.retry_max_times,
        broker_id=config.broker_id,
        slow_broker_id=config.which_broker_when_consume_slowly,
        notify=config.notify_consumer_ids_changed_enable,
    )


def make_group_config(group: str, settings: GroupSettings) -> GroupConfig:
    """Return the settings of a group as a broker takes them."""
    return GroupConfig(
        group_name=group,
        consume_enable=settings.consume,
        consume_from_min_enable=settings.consume_from_min,
        consume_broadcast_enable=settings.broadcast,
        retry_queue_nums=settings.retry_queues,
        retry_max_times=settings.retries,
        broker_id=settings.broker_id,
        which_broker_when_consume_slowly=settings.slow_broker_id,
        notify_consumer_ids_changed_enable=settings.notify,
    )


def show_permission(number: int) -> str:
    """Return a permission as letters: `RW`."""
    return "".join(letter for bit, letter in _LETTERS.items() if number & bit) or "-"


def read_permission(text: str) -> int:
    """Return the number of a permission: `RW` is 6. Raises ConfigError."""
    bits = {letter: bit for bit, letter in _LETTERS.items()}
    letters = text.upper()
    if letters != "-" and (not letters or not set(letters) <= bits.keys() or len(set(letters)) < len(letters)):
        raise ConfigError(
            f"permission={text!r}: expected RW, R, W or -", hint="RW: all; R: no new messages; W: no consuming"
        )
    return sum(bits[letter] for letter in letters if letter in bits)


async def read_topic_configs(connection: Connection, address: str) -> dict[str, TopicConfig]:
    """Return the settings of all topics of a broker."""
    _, body = await connection.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
    return body.topic_config_table if isinstance(body, TopicConfigTable) else {}


async def read_group_configs(connection: Connection, address: str) -> dict[str, GroupConfig]:
    """Return the settings of all groups of a broker."""
    _, body = await connection.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return body.subscription_group_table if isinstance(body, GroupConfigTable) else {}
