"""Settling individual messages: done, deliver later, or dead letter; and replying to them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from eruca._client.group.inbox import Inbox
from eruca._client.group.redelivery import Redelivery
from eruca._client.later import Later
from eruca._client.message import Message
from eruca._client.produce.outgoing import Receipt
from eruca._ground.durations import Duration
from eruca.errors import ConfigError

log = logging.getLogger(__name__)


class Settlement:
    """Takes acknowledgements and replies for messages of one queue. Acknowledging does nothing once it is lost."""

    def __init__(
        self, inbox: Inbox, redelivery: Redelivery, *, broadcast: bool = False, in_order: bool = False
    ) -> None:
        self._inbox = inbox
        self._redelivery = redelivery
        self._broadcast = broadcast
        self._in_order = in_order

    async def ack(self, message: Message) -> None:
        """Mark a message as done. The offset moves on as soon as everything before it is done too."""
        if not self._inbox.dropped:
            self._inbox.finish(message.offset)

    async def retry(self, message: Message, later: Later) -> None:
        """Have a message delivered again later, or make it a dead letter. Raises ErucaError."""
        check_retry(later, in_order=self._in_order)
        inbox, record = self._inbox, message.record
        if inbox.dropped or not inbox.process.is_open(message.offset):
            return
        if self._broadcast:
            log.warning("broadcast message at %s, offset %d, failed and is dropped", inbox.queue, message.offset)
        elif self._in_order:
            await self._redelivery.bury(record, message.delivery)
        else:
            await self._redelivery.send_back(record, inbox.queue, later)
        inbox.finish(message.offset)

    async def reply(
        self,
        message: Message,
        body: bytes,
        tags: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
        timeout: Duration | None,
    ) -> Receipt:
        """Reply to a message. Raises ErucaError."""
        return await self._redelivery.replies.send(message, body, tags, keys, properties, timeout)


def check_retry(later: Later, *, in_order: bool) -> None:
    """Raise ConfigError if a single message cannot be retried; it may become a dead letter."""
    if in_order and later.level >= 0:
        raise ConfigError(
            "a single message of an ordered queue cannot be retried: those behind it would overtake it",
            hint="raise an exception or return Outcome.LATER: what is not acknowledged is tried again in order",
        )
