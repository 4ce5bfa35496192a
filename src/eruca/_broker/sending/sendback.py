"""Messages that consumers send back: stored again for a later retry, or in the dead letters of their group."""

from __future__ import annotations

import random
from dataclasses import dataclass

from eruca._broker.administering.stats import Stats
from eruca._broker.groups.groups import Groups
from eruca._broker.options import LiveOptions
from eruca._broker.refusals import FAQ, refuse
from eruca._broker.replication.acknowledging import Acknowledgement
from eruca._broker.sending.mapping import DelayLevels, map_timer
from eruca._broker.sending.stored import copy_message, find_message
from eruca._broker.standing import Standing
from eruca._broker.topics import Topics
from eruca._ground.clock import Clock
from eruca._net.handlers import HandlerTable, Reply, Request, Result
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import GroupConfig
from eruca._wire.codes import VERSION_HONOURS_MAX_RECONSUME_TIMES, RequestCode, ResponseCode
from eruca._wire.headers import SendBackHeader
from eruca._wire.ids import encode_offset_id
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, WRITE
from eruca._wire.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_LEVEL_FIRST,
    RETRY_TOPIC,
    TIMER_DEL_UNIQKEY,
    WAIT,
    encode_properties,
    parse_properties,
)
from eruca._wire.record import Record
from eruca._wire.sysflag import TOPIC_UNIT_SUBSCRIBED
from eruca.errors import RequestRefused, StoreError


@dataclass(eq=False)
class SendBackHandlers:
    """Handles 36."""

    _options: LiveOptions
    _standing: Standing
    _clock: Clock
    _store: MessageStore
    _topics: Topics
    _groups: Groups
    _stats: Stats
    _acknowledgement: Acknowledgement

    def __post_init__(self) -> None:
        self._delays = DelayLevels(self._store.options.delay_levels)

    def register(self, table: HandlerTable) -> None:
        """Register the handler."""
        table.add(RequestCode.CONSUMER_SEND_MSG_BACK, self.take_back)

    def take_back(self, request: Request) -> Result:
        """Store the message once more, for a later delivery to the same group."""
        header: SendBackHeader = request.header
        group = self._check_group(header)
        if not self._standing.writable:
            refuse(ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE.name)
        if group.retry_queue_nums <= 0:
            return Reply()  # retries are disabled for the group: the message is dropped
        self._check_retry_topic(header, group)
        found = find_message(self._store, header.offset)
        if found is None:
            refuse(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        times_max = group.retry_max_times
        # Clients from 3.4.9 on send their maximum number of attempts.
        if request.command.version >= VERSION_HONOURS_MAX_RECONSUME_TIMES and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        copy = self._build(header, group, found, times_max)
        self._append(copy)
        self._count(header, copy)
        return self._acknowledge(copy)

    # -- checks ------------------------------------------------------------------------------------------------------

    def _check_group(self, header: SendBackHeader) -> GroupConfig:
        group = self._groups.get(header.group)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group} {FAQ}"
            )
        options = self._options.now
        if not options.permission & WRITE:
            refuse(ResponseCode.NO_PERMISSION, f"the broker[{options.host}] sending message is forbidden")
        return group

    def _check_retry_topic(self, header: SendBackHeader, group: GroupConfig) -> None:
        sys_flag = TOPIC_UNIT_SUBSCRIBED if header.unit_mode else 0
        topic = self._topics.create_internal(RETRY_PREFIX + header.group, group.retry_queue_nums, sys_flag=sys_flag)
        if not topic.perm & WRITE:
            refuse(ResponseCode.NO_PERMISSION, f"the topic[{topic.topic_name}] sending message is forbidden")

    # -- the copy ----------------------------------------------------------------------------------------------------

    def _build(self, header: SendBackHeader, group: GroupConfig, found: Record, times_max: int) -> Record:
        """Build the copy to store: for the dead letters, or for the retry topic, which it reaches after a delay."""
        properties = parse_properties(found.properties)
        if found.topic.startswith(RETRY_PREFIX):
            properties.setdefault(RETRY_TOPIC, found.topic)
        else:
            # Consumers take it for the topic of the message; its sender could have named another.
            properties[RETRY_TOPIC] = found.topic
        properties.setdefault(ORIGIN_MESSAGE_ID, encode_offset_id(found.store_host, found.position))
        properties[WAIT] = "false"
        is_dead = found.reconsume_times >= times_max or header.delay_level < 0
        level = 0 if is_dead else header.delay_level or RETRY_LEVEL_FIRST + found.reconsume_times
        delay_ms = self._find_delay_ms(header, level)
        properties[DELAY] = "0" if delay_ms else str(level)
        if is_dead:
            self._topics.dead_letter_topic(header.group)
            topic, queue_id = DLQ_PREFIX + header.group, 0
        else:
            topic, queue_id = RETRY_PREFIX + header.group, random.randrange(group.retry_queue_nums)
        copy = copy_message(found, topic, queue_id, encode_properties(properties))
        copy.reconsume_times += 1
        if delay_ms:
            # Of a message that waited for a delay level; here it would cancel one that the same group sent back.
            properties.pop(TIMER_DEL_UNIQKEY, None)
            copy.properties = encode_properties(properties)
            self._topics.create_internal(TIMER_TOPIC, 1)
            map_timer(copy, self._clock.now_ms() + delay_ms)
        elif level:
            self._delays.map(copy, level)
        return copy

    def _find_delay_ms(self, header: SendBackHeader, level: int) -> int:
        """Return the exact delay that a consumer wants, if the timer can keep it; 0 if the delay level counts."""
        options = self._options.now
        wanted = header.eruca_delay_ms or 0
        # On a broker whose levels are all zero (for tests in a hurry), nothing waits.
        if not level or wanted <= 0 or not options.timer_enabled or not self._delays.find_ms(level):
            return 0
        return min(wanted, options.timer_delay_seconds_max * 1000)

    def _append(self, copy: Record) -> None:
        try:
            self._store.append(copy)
        except StoreError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error

    def _count(self, header: SendBackHeader, copy: Record) -> None:
        stats = self._stats
        if copy.topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
            stats.on_put(copy.topic, 1, copy.size, copy.queue_id)
        retry_topic = RETRY_PREFIX + header.group
        topic = copy.get_property(RETRY_TOPIC) or retry_topic
        # A message in the retry topic may be from anybody, with any name.
        stats.on_send_back(header.group, topic if self._topics.get(topic) is not None else retry_topic)

    def _acknowledge(self, copy: Record) -> Result:
        # The consumer forgets the message when it gets the response, so the copy must be on disk and slaves by then.
        # (Java does not wait here, whatever the flush mode and role.)
        if self._acknowledgement.needs_wait(True):
            return self._answer_when_safe(copy)
        return Reply()

    async def _answer_when_safe(self, copy: Record) -> Reply:
        code = await self._acknowledgement.wait(copy.position + copy.size)
        # Without a slave there is nothing to wait for, and a refusal would add one more copy with every retry.
        if code in (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE):
            return Reply()
        return Reply(code=ResponseCode.SYSTEM_ERROR, remark=code.name)
