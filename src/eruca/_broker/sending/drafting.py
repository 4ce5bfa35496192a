"""From a request to the message it describes: the checks, and the real destination.

Checks come in the order of a Java broker, because the first that fails decides the code that a client sees.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec

from eruca._broker.delaying.cancellations import Cancellations
from eruca._broker.groups.groups import Groups
from eruca._broker.options import LiveOptions
from eruca._broker.refusals import FAQ, refuse, refuse_topic_name
from eruca._broker.sending.kernel.ordinary import take_ordinary
from eruca._broker.sending.mapping import TIMER_MARK, DelayLevels, add_property, find_due_time, map_half, map_timer
from eruca._broker.standing import Standing
from eruca._broker.topics import Topics
from eruca._ground.clock import Clock
from eruca._net.link import Link
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import TopicConfig
from eruca._wire.codes import VERSION_HONOURS_MAX_RECONSUME_TIMES, ResponseCode
from eruca._wire.frame import Command
from eruca._wire.headers import AnySendHeader
from eruca._wire.host import pack_host
from eruca._wire.names import DLQ_PREFIX, FORBIDDEN_TO_SEND, READ, RETRY_PREFIX, WRITE
from eruca._wire.properties import TIMER_DEL_UNIQKEY, does_wait, get_property, is_half
from eruca._wire.record import Record
from eruca._wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_MASK, set_host_bits
from eruca.errors import RequestRefused

_HOST_NOTE = "host"
_LEVEL_DIGITS_MAX = 10
_DEL_UNIQKEY = TIMER_DEL_UNIQKEY.encode()


class Draft(msgspec.Struct, gc=False):
    """A message ready to be stored, the queue reported to its sender, and whether it waits for disk and slaves."""

    message: Record
    queue_id: int
    waits: bool


@dataclass(eq=False)
class Drafting:
    """Builds messages from requests."""

    _options: LiveOptions
    _standing: Standing
    _clock: Clock
    _store: MessageStore
    _topics: Topics
    _groups: Groups
    _cancellations: Cancellations

    def __post_init__(self) -> None:
        self._delays = DelayLevels(self._store.options.delay_levels)
        #: The store host of every message.
        self.cluster_property = f"CLUSTER\x01{self._options.now.cluster}".encode()

    def build(self, link: Link, command: Command, header: AnySendHeader) -> Draft:
        """Build the message for its real destination: its topic, or the delay, half or dead letter topic."""
        config = self.check_topic(link, header)
        queue_id = self.choose_queue(header, config)
        topic = header.topic
        if topic.startswith(RETRY_PREFIX):
            topic, queue_id = self._redirect_dead(command, header, topic, queue_id)
        text = header.properties
        ordinary = take_ordinary(text, self.cluster_property) if text else None
        born_host, store_host = host_of(link), self._standing.store_host
        message = Record(
            topic=topic,
            queue_id=queue_id,
            flag=header.flag,
            body=command.body,
            properties=ordinary or b"",
            sys_flag=set_host_bits(header.sys_flag, born_host, store_host),
            born_timestamp=header.born_timestamp,
            born_host=born_host,
            store_host=store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        if ordinary is not None:
            return Draft(message, queue_id, True)
        raw = (text or "").encode()
        waits = does_wait(raw)
        if is_half(raw):
            if self._options.now.reject_transactions:
                refuse(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{self._options.now.host}] sending transaction message is forbidden",
                )
            if TIMER_MARK in raw and self.wants_timer(raw):
                refuse(ResponseCode.MESSAGE_ILLEGAL, "timer message illegal, a transaction cannot be delayed")
            message.properties = add_property(raw, self.cluster_property, drop_wait=False)
            map_half(message)
            self._topics.create_internal(message.topic, 1)
            return Draft(message, queue_id, waits)
        level = self.find_delay_level(raw, message.sys_flag)
        message.properties = add_property(raw, self.cluster_property, drop_wait=level == 0)
        if level:
            self._delays.map(message, level)  # takes precedence over the timer, as in RocketMQ 5
        elif TIMER_MARK in raw:
            due_ms = self._find_due_time(raw)
            if due_ms is not None:
                if get_property(raw, _DEL_UNIQKEY) is not None:
                    self._cancellations.refuse_if_full(topic)
                map_timer(message, due_ms)
                self._topics.create_internal(message.topic, 1)
        return Draft(message, queue_id, waits)

    def check_topic(self, link: Link, header: AnySendHeader) -> TopicConfig:
        """Return the settings of a request's topic, created if the rules allow it; refuses as a Java broker does."""
        options = self._options.now
        if options.accept_sends_from_ms and self._clock.now_ms() < options.accept_sends_from_ms:
            refuse(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {options.accept_sends_from_ms}")
        if not self._standing.writable:
            refuse(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now, {self._store.refusal}")
        topic = header.topic
        config = self._topics.get(topic)
        if not options.permission & WRITE and (config is None or config.order):
            refuse(ResponseCode.NO_PERMISSION, f"the broker[{options.host}] sending message is forbidden")
        if config is None or topic in FORBIDDEN_TO_SEND:
            config = self._find_or_make_topic(header)
        if not config.perm & WRITE and topic not in FORBIDDEN_TO_SEND and config.order:
            refuse(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
        return config

    def _find_or_make_topic(self, header: AnySendHeader) -> TopicConfig:
        topic = header.topic
        refuse_topic_name(topic, self._store.options.topic_bytes_max)
        if topic in FORBIDDEN_TO_SEND:
            refuse(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        topics = self._topics
        config = topics.create_for_send(topic, header.default_topic, header.default_topic_queue_nums)
        if config is None and topic.startswith(RETRY_PREFIX):
            config = topics.create_internal(topic, 1, READ | WRITE)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}")
        return config

    def choose_queue(self, header: AnySendHeader, config: TopicConfig) -> int:
        """Return the queue that a request names, or any if it leaves the choice to the broker."""
        queue_id = header.queue_id
        if 0 <= queue_id < config.write_queue_nums:
            return queue_id
        most = max(config.write_queue_nums, config.read_queue_nums)
        if queue_id >= most:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, topic {config.topic_name} has {most} queues",
            )
        if queue_id < 0:
            return random.randrange(max(1, config.write_queue_nums))
        return queue_id

    def _redirect_dead(self, command: Command, header: AnySendHeader, topic: str, queue_id: int) -> tuple[str, int]:
        """Redirect a retried message that was tried too often to the dead letters of its group."""
        group_name = topic[len(RETRY_PREFIX) :]
        group = self._groups.get(group_name)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group_name} {FAQ}"
            )
        most = group.retry_max_times
        if command.version >= VERSION_HONOURS_MAX_RECONSUME_TIMES and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        if (header.reconsume_times or 0) >= most:
            self._topics.dead_letter_topic(group_name)
            return DLQ_PREFIX + group_name, 0
        return topic, queue_id

    def wants_timer(self, raw: bytes) -> bool:
        """Whether properties with TIMER_MARK delay a message."""
        return self._find_due_time(raw) is not None

    def _find_due_time(self, raw: bytes) -> int | None:
        options = self._options.now
        if not options.timer_enabled:
            return None
        return find_due_time(raw, self._clock.now_ms(), options.timer_delay_seconds_max * 1000)

    def find_delay_level(self, raw: bytes, sys_flag: int) -> int:
        """Return the delay level in the properties; 0 for none."""
        if b"DELAY\x01" not in raw or sys_flag & TRANSACTION_MASK not in (0, TRANSACTION_COMMIT):
            return 0
        text = get_property(raw, b"DELAY")
        if text is None or not text.isdigit():
            return 0
        # Python refuses to parse thousands of digits; any level above the highest counts as the highest anyway.
        return int(text) if len(text) <= _LEVEL_DIGITS_MAX else self._delays.highest


def host_of(link: Link) -> bytes:
    """Return the peer's address in the form that records hold."""
    packed: bytes | None = link.notes.get(_HOST_NOTE)
    if packed is None:
        packed = link.notes[_HOST_NOTE] = pack_host(*link.peer_host)
    return packed
