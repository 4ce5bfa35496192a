"""Values as Java's mqadmin prints them: `toString` of its classes, times, permissions, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from eruca._admin.settings import GroupSettings, TopicSettings, read_permission, show_permission
from eruca._admin.storedmessages import StoredMessage
from eruca._client.produce.outgoing import Receipt
from eruca._ground.times import from_epoch_ms, to_epoch_ms
from eruca._wire.codes import VERSION_HIGHER
from eruca._wire.names import INHERIT, READ, WRITE
from eruca._wire.versions import name_version
from eruca.errors import ConfigError

_JAVA_TIME = re.compile(r"(\d{4}-\d\d?-\d\d?#\d\d?:\d\d?:\d\d?:\d{3})")

# --- single values --------------------------------------------------------------------------------------------------


def show_bool(value: bool) -> str:
    """Return `true` or `false`."""
    return "true" if value else "false"


def cut(text: str, length: int) -> str:
    """Return the first characters of a text, for a column."""
    return text[:length]


def to_ms(time: datetime | None) -> int:
    """Return a time in milliseconds since 1970; 0 if there is none."""
    return 0 if time is None else to_epoch_ms("time", time)


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return to_ms(datetime.now(UTC))


def show_time(time: datetime | None, none: str = "") -> str:
    """Return a local time as `2026-11-15 07:21:06`."""
    return none if time is None else f"{time.astimezone():%Y-%m-%d %H:%M:%S}"


def show_time_ms(time: datetime | None) -> str:
    """Return a local time as `2026-11-15 07:21:06,123`."""
    return "" if time is None else f"{show_time(time)},{_milliseconds(time)}"


def show_time_compact(time: datetime | None) -> str:
    """Return a local time as `20261115072106123`; that of 1970 if there is none."""
    time = time or from_epoch_ms(0)
    assert time is not None
    return f"{time.astimezone():%Y%m%d%H%M%S}{_milliseconds(time)}"


def _milliseconds(time: datetime) -> str:
    return f"{time.microsecond // 1000:03}"


def parse_java_time(flag: str, text: str) -> datetime:
    """Read a time: milliseconds since 1970, or local time as `2026-11-15#07:21:06:123`. Raises ConfigError."""
    try:
        if re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
            found = from_epoch_ms(int(text))
        else:
            match = _JAVA_TIME.fullmatch(text)
            found = datetime.strptime(f"{match[1]}000", "%Y-%m-%d#%H:%M:%S:%f").astimezone() if match else None
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise ConfigError(f"{flag} {text!r} is not a time", hint="for example 1700000000000 or 2026-11-15#07:21:06:000")
    return found


# --- permissions: a number in mqadmin, letters in the admin API -------------------------------------------------------


def permission_letters(number: int) -> str:
    """Return `RW` for 6. Raises ConfigError for a number that is not a permission."""
    if not 0 <= number <= READ + WRITE + INHERIT:
        raise ConfigError(f"{number} is not a permission", hint="2: write, 4: read, 6: both")
    return show_permission(number)


def permission_marks(letters: str) -> str:
    """Return `RW-` for `RW`, and `R--` for `R`."""
    return "".join(letter if letter in letters else "-" for letter in "RWX")


# --- objects ----------------------------------------------------------------------------------------------------------


def show_queue(topic: str, broker: str, queue: int) -> str:
    """Return a queue as `MessageQueue.toString` does."""
    return f"MessageQueue [topic={topic}, brokerName={broker}, queueId={queue}]"


def show_map(table: Mapping[Any, Any]) -> str:
    """Return a map as Java does: `{KEYS=k1, TAGS=a}`."""
    return "{" + ", ".join(f"{key}={value}" for key, value in table.items()) + "}"


def show_topic(topic: str, settings: TopicSettings) -> str:
    """Return the settings of a topic as `TopicConfig.toString` does."""
    return (
        f"TopicConfig [topicName={topic}, readQueueNums={settings.read_queues}, writeQueueNums={settings.write_queues},"
        f" perm={permission_marks(settings.permission)}, topicFilterType={settings.filter_type},"
        f" topicSysFlag={settings.system_flag}, order={show_bool(settings.ordered)}]"
    )


def list_group_fields(group: str, settings: GroupSettings) -> dict[str, str | int | bool]:
    """Return the settings of a group under the names Java's broker has for them, in its order."""
    return {
        "groupName": group,
        "consumeEnable": settings.consume,
        "consumeFromMinEnable": settings.consume_from_min,
        "consumeBroadcastEnable": settings.broadcast,
        "retryQueueNums": settings.retry_queues,
        "retryMaxTimes": settings.retries,
        "brokerId": settings.broker_id,
        "whichBrokerWhenConsumeSlowly": settings.slow_broker_id,
        "notifyConsumerIdsChangedEnable": settings.notify,
    }


def list_topic_fields(topic: str, settings: TopicSettings) -> dict[str, str | int | bool]:
    """Return the settings of a topic under the names Java's broker has for them."""
    return {
        "order": settings.ordered,
        "perm": read_permission(settings.permission),
        "readQueueNums": settings.read_queues,
        "topicFilterType": settings.filter_type,
        "topicName": topic,
        "topicSysFlag": settings.system_flag,
        "writeQueueNums": settings.write_queues,
    }


def show_plain(value: object) -> str:
    """Return a value as text, with booleans as Java writes them."""
    return show_bool(value) if isinstance(value, bool) else str(value)


def show_group(group: str, settings: GroupSettings) -> str:
    """Return the settings of a group as `SubscriptionGroupConfig.toString` does."""
    fields = list_group_fields(group, settings)
    return "SubscriptionGroupConfig [" + ", ".join(f"{key}={show_plain(fields[key])}" for key in fields) + "]"


def show_receipt(receipt: Receipt) -> str:
    """Return the outcome of a send as `SendResult.toString` does."""
    queue = show_queue(receipt.queue.topic, receipt.queue.broker_name, receipt.queue.queue_id)
    return (
        f"SendResult [sendStatus={receipt.status.value}, msgId={receipt.message_id}, offsetMsgId={receipt.offset_id},"
        f" messageQueue={queue}, queueOffset={receipt.offset}]"
    )


def show_message(message: StoredMessage, properties: Mapping[str, str]) -> str:
    """Return a message as `MessageExt.toString` does, with these properties."""
    signed = ", ".join(str(byte - 256 if byte > 127 else byte) for byte in message.body)
    transaction = message.message_id if message.properties.get("TRAN_MSG") == "true" else "null"
    inner = (
        f"Message{{topic='{message.stored_in}', flag={message.flag}, properties={show_map(properties)},"
        f" body=[{signed}], transactionId='{transaction}'}}"
    )
    return (
        f"MessageExt [brokerName={message.broker}, queueId={message.queue}, storeSize={message.size},"
        f" queueOffset={message.offset}, sysFlag={message.sys_flag}, bornTimestamp={to_ms(message.born_at)},"
        f" bornHost=/{message.born_host}, storeTimestamp={to_ms(message.stored_at)}, storeHost=/{message.store_host},"
        f" msgId={message.offset_id}, commitLogOffset={message.position}, bodyCRC={message.body_crc},"
        f" reconsumeTimes={message.tries}, preparedTransactionOffset={message.prepared_position}, toString()={inner}]"
    )


def show_json(value: object, indent: str = "") -> str:
    """Return JSON as fastjson's pretty format has it: keys sorted, a tab per level, scalars of a list in one line."""
    inner = indent + "\t"
    if isinstance(value, dict) and value:
        keys = sorted(value, key=str)
        parts = [f"{json.dumps(str(key), ensure_ascii=False)}:{show_json(value[key], inner)}" for key in keys]
        opening, closing = "{}"
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        parts = [show_json(each, inner) for each in value]
        opening, closing = "[]"
    else:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    lines = f",\n{inner}".join(parts)
    return f"{opening}\n{inner}{lines}\n{indent}{closing}"


# --- versions ---------------------------------------------------------------------------------------------------------

# The numbers of releases by their names.
_NUMBERS = {name_version(number): number for number in range(VERSION_HIGHER + 1)}


def java_version(version: str) -> str:
    """Return a version as Java names it: `V4_9_7` for `4.9.7`."""
    if not version[:1].isdigit() or " " in version:
        return "HIGHER_VERSION" if version == name_version(VERSION_HIGHER) else version
    return "V" + version.replace(".", "_").replace("-", "_")


def java_version_number(version: str) -> int:
    """Return the number that clients announce for a version: 407 for `4.9.7`; 0 if it is not known."""
    return _NUMBERS.get(version, 0)
