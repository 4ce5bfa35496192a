"""What a consumer sends: messages back to the broker, to be delivered again or as dead letters, and replies."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence

from eruca._client.group.replying import Replies
from eruca._client.later import LATER, Later, choose_later, find_delay
from eruca._client.produce.sending import Parcel, Sender
from eruca._client.session.route import Route
from eruca._client.session.session import Session
from eruca._ground.durations import Duration
from eruca._wire.bodies import MessageQueue
from eruca._wire.headers import SendBackHeader
from eruca._wire.ids import encode_offset_id
from eruca._wire.names import DLQ_PREFIX, INNER_PRODUCER_GROUP, RETRY_PREFIX
from eruca._wire.properties import (
    DELAY,
    KEYS,
    MAX_RECONSUME_TIMES,
    RECONSUME_TIME,
    RETRY_LEVEL_FIRST,
    RETRY_TOPIC,
    TRAN_MSG,
    UNIQ_KEY,
    encode_properties,
)
from eruca._wire.record import Record
from eruca.errors import ClientClosed, ErucaError, NoRoute

log = logging.getLogger(__name__)

# How often a message is delivered unless its consumer sets another number: once, plus 16 retries as in Java.
DELIVERIES_MAX = 17

_TIMEOUT_MS = 5000


class Redelivery:
    """Sends messages of one group back to the broker."""

    def __init__(self, session: Session, group: str, max_deliveries: int, *, backoff: Sequence[Duration] = ()) -> None:
        self.session = session
        self._group = group
        self._backoff = backoff
        # As the protocol counts: deliveries after the first.
        self._retries_max = max_deliveries - 1
        self._sender = Sender(session, INNER_PRODUCER_GROUP)
        self._replies: Replies | None = None
        self._is_closed = False

    @property
    def replies(self) -> Replies:
        """What sends the replies of the consumer. Raises ClientClosed."""
        if self._is_closed:
            raise ClientClosed("the consumer that received the request is closed", hint="reply before it closes")
        if self._replies is None:
            self._replies = Replies(self.session, self._group)
        return self._replies

    def close(self) -> None:
        """Send no more replies: the consumer leaves its session."""
        self._is_closed = True

    async def send_back(self, record: Record, queue: MessageQueue, later: Later = LATER) -> None:
        """Have a message delivered again later, or make it a dead letter.

        The broker that has the message copies it; if that fails, the client sends a copy itself. Raises ErucaError when
        both fail.
        """
        delivery = record.reconsume_times + 1
        later = choose_later(later, delivery, self._backoff)
        try:
            await self._ask_broker(record, queue, later)
        except ErucaError as error:
            log.warning("message %s could not be sent back, sending a copy instead: %s", _name(record), error)
            times = self._retries_max if later.level < 0 else delivery
            await self.send_again(record, times, delay_level=later.level or RETRY_LEVEL_FIRST + record.reconsume_times)
        if later.level < 0 or record.reconsume_times >= self._retries_max:
            self._log_burial(record, delivery)
            return
        level, delay = find_delay(later, delivery)
        known = "" if later.delay_ms else f" (delay level {level} by default)"
        log.info("%s is not done: again in %g s%s", _describe(record, delivery), delay.total_seconds(), known)

    def _log_burial(self, record: Record, delivery: int) -> None:
        log.warning("%s becomes a dead letter in %s", _describe(record, delivery), DLQ_PREFIX + self._group)

    async def _ask_broker(self, record: Record, queue: MessageQueue, later: Later) -> None:
        address = self.session.routes.require_address(queue.broker_name)
        header = SendBackHeader(
            offset=record.position,
            group=self._group,
            delay_level=later.level,
            origin_message_id=_name(record),
            origin_topic=record.topic,
            unit_mode=False,
            max_reconsume_times=self._retries_max,
            eruca_delay_ms=later.delay_ms or None,
        )
        await self.session.calls.send_back(address, header, _TIMEOUT_MS)

    async def send_again(self, record: Record, times: int, *, delay_level: int = 0) -> None:
        """Send a copy to the retry topic of the group; after the last delivery the broker makes it a dead letter."""
        topic = RETRY_PREFIX + self._group
        properties = record.read_properties()
        properties.setdefault(RETRY_TOPIC, record.topic)
        properties.pop(TRAN_MSG, None)
        for name in (RECONSUME_TIME, MAX_RECONSUME_TIMES, DELAY):
            properties.pop(name, None)
        if delay_level > 0:
            properties[DELAY] = str(delay_level)
        parcel = Parcel(
            topic,
            record.body,
            encode_properties(properties).decode(),
            properties.get(UNIQ_KEY, ""),
            record.sys_flag,
            record.flag,
            reconsume_times=times,
            max_reconsume_times=self._retries_max,
        )
        route: Route = await self.session.routes.get(topic)
        if not route.write_queues:
            raise NoRoute(f"the retry topic {topic} has no queue that can be written to")
        await self._sender.send(parcel, random.choice(route.write_queues), _TIMEOUT_MS)

    async def bury(self, record: Record, delivery: int) -> None:
        """Make a message of an ordered queue a dead letter after its last delivery. Raises ErucaError."""
        # The broker makes a dead letter of a message that is sent to the retry topic after the last attempt.
        await self.send_again(record, self._retries_max)
        self._log_burial(record, delivery)

    async def send_back_stubbornly(self, record: Record, queue: MessageQueue, later: Later, pause_s: float) -> None:
        """Send a message back, retrying until it works: until then it is not done and holds its place in the queue."""
        while True:
            try:
                await self.send_back(record, queue, later)
            except ErucaError as error:
                log.error("message %s cannot be sent back now, retrying: %s", _name(record), error)
            except Exception:
                log.exception("message %s cannot be sent back now, retrying", _name(record))
            else:
                return
            await asyncio.sleep(pause_s)


def _describe(record: Record, delivery: int) -> str:
    """Describe a message for the log: its id, its topic, its keys and the number of this delivery."""
    topic = record.topic
    if topic.startswith(RETRY_PREFIX):
        topic = record.get_property(RETRY_TOPIC) or topic
    name = record.get_property(UNIQ_KEY) or _name(record)
    keys = record.get_property(KEYS)
    return f"message {name} of {topic}{f', keys {keys},' if keys else ','} delivery {delivery},"


def _name(record: Record) -> str:
    return encode_offset_id(record.store_host, record.position)
