"""A message as a consumer sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from eruca._client.arguments import check_callable
from eruca._client.later import DEAD, LATER, Later, make_later
from eruca._client.namespaces import unwrap, unwrap_queue
from eruca._ground.durations import Duration
from eruca._ground.times import from_epoch_ms
from eruca._wire.bodies import MessageQueue
from eruca._wire.host import unpack_host
from eruca._wire.ids import encode_offset_id
from eruca._wire.names import RETRY_PREFIX
from eruca._wire.properties import KEYS, ORIGIN_MESSAGE_ID, RESERVED, RETRY_TOPIC, TAGS, UNIQ_KEY, split_keys
from eruca._wire.record import Record, user_body
from eruca._wire.sysflag import COMPRESSED
from eruca.errors import ErucaError, MessageIllegal, SerializationError, WireError

if TYPE_CHECKING:
    from eruca._client.produce.outgoing import Receipt

# Turns the body of a message into its `value`.
Decode: TypeAlias = Callable[[bytes], Any]


class Outcome(Enum):
    """What a handler may return instead of None; raising an exception means LATER."""

    DONE = "done"
    # Deliver it again later; an ordered queue pauses and tries the same message again.
    LATER = "later"
    # Make it a dead letter at once.
    DEAD = "dead"
    # For ordered handlers without automatic commit: all messages so far are done, or are to be delivered again.
    COMMIT = "commit"
    ROLLBACK = "rollback"


class Settle(Protocol):
    """Receives the acknowledgements of messages, and replies to them."""

    async def ack(self, message: Message) -> None:
        """Mark the message as done."""

    async def retry(self, message: Message, later: Later) -> None:
        """Have the message delivered again later, or make it a dead letter."""

    async def reply(
        self,
        message: Message,
        body: bytes,
        tags: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
        timeout: Duration | None,
    ) -> Receipt:
        """Reply to the message."""


class ReceivedMessage:
    """A received message. Every field is read from the record on access."""

    # `_body` and `_value` have no value before they are read: few bodies are compressed, and few are decoded.
    __slots__ = (
        "_body",
        "_decode",
        "_later",
        "_namespace",
        "_properties",
        "_settle",
        "_value",
        "delivery",
        "queue",
        "record",
    )

    def __init__(
        self,
        record: Record,
        queue: MessageQueue,
        namespace: str = "",
        settle: Settle | None = None,
        decode: Decode | None = None,
    ) -> None:
        self.record = record
        # As the user knows it, like the queue of a receipt.
        self.queue = unwrap_queue(namespace, queue) if namespace else queue
        # The number of this delivery to this group: 1 for the first.
        self.delivery = record.reconsume_times + 1
        # When it is delivered again if its handler fails.
        self._later = LATER
        self._namespace = namespace
        # Where to settle it; None once it is settled.
        self._settle = settle
        self._decode = decode
        self._properties: dict[str, str] | None = None

    def __repr__(self) -> str:
        return (
            f"<Message {self.message_id} of {self.topic}, queue {self.queue.broker_name}:{self.queue.queue_id},"
            f" offset {self.offset}, {len(self.record.body)} bytes>"
        )

    # -- content -----------------------------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it is delivered from the retry topic of the group."""
        topic = self.record.topic
        if topic.startswith(RETRY_PREFIX):
            topic = self._find(RETRY_TOPIC) or topic
        return unwrap(self._namespace, topic) if self._namespace else topic

    @property
    def body(self) -> bytes:
        """The body as it was sent, decompressed if necessary. Raises WireError when it cannot be decompressed."""
        record = self.record
        if not record.sys_flag & COMPRESSED:
            return record.body
        try:
            return self._body
        except AttributeError:
            pass
        self._body: bytes = user_body(record)
        return self._body

    @property
    def value(self) -> Any:
        """The body, decoded by the consumer's `deserializer` on first access; without a deserializer, the body itself.

        Raises SerializationError for a body that cannot be decoded. In a handler this counts as any other failure.
        """
        try:
            return self._value
        except AttributeError:
            pass
        self._value: Any = self.body if self._decode is None else decode_body(self, self._decode)
        return self._value

    @property
    def tags(self) -> str:
        """Its tag; empty if it has none."""
        return self._find(TAGS) or ""

    @property
    def keys(self) -> list[str]:
        """Its keys."""
        return split_keys(self._find(KEYS) or "")

    @property
    def properties(self) -> dict[str, str]:
        """The properties that its sender set."""
        return {name: text for name, text in self.all_properties.items() if name not in RESERVED}

    @property
    def all_properties(self) -> dict[str, str]:
        """All properties, including system properties."""
        if self._properties is None:
            self._properties = self.record.read_properties()
        return self._properties

    @property
    def message_id(self) -> str:
        """The id that its producer set; the broker's id if the producer set none."""
        return self._find(UNIQ_KEY) or self.offset_id

    @property
    def offset_id(self) -> str:
        """The id of this record: the broker's address and the position in its log."""
        return encode_offset_id(self.record.store_host, self.record.position)

    @property
    def origin_topic(self) -> str:
        """The topic of the original message, also for a retry or a dead letter."""
        topic = self._find(RETRY_TOPIC) or self.record.topic
        return unwrap(self._namespace, topic) if self._namespace else topic

    @property
    def origin_id(self) -> str:
        """The broker's id of the original message, also for a retry or a dead letter."""
        return self._find(ORIGIN_MESSAGE_ID) or self.offset_id

    @property
    def transaction_id(self) -> str:
        """The id of its transaction."""
        return self._find("__transactionId__") or self._find(UNIQ_KEY) or ""

    @property
    def offset(self) -> int:
        """Its offset in the queue."""
        return self.record.queue_offset

    @property
    def flag(self) -> int:
        """The number that its sender set."""
        return self.record.flag

    @property
    def born_at(self) -> datetime:
        """When it was sent, by the sender's clock. Raises WireError for a time that cannot be represented."""
        return _to_time(self.record.born_timestamp)

    @property
    def stored_at(self) -> datetime:
        """When it was stored, by the broker's clock. Raises WireError for a time that cannot be represented."""
        return _to_time(self.record.store_timestamp)

    @property
    def born_host(self) -> str:
        """The address of the sender, `ip:port`."""
        return "{}:{}".format(*unpack_host(self.record.born_host))

    @property
    def store_host(self) -> str:
        """The address of the broker that stored it, `ip:port`."""
        return "{}:{}".format(*unpack_host(self.record.store_host))

    def _find(self, name: str) -> str | None:
        if self._properties is not None:
            return self._properties.get(name)
        return self.record.get_property(name)


class Message(ReceivedMessage):
    """A received message, with methods to settle it.

    In `async for`, settle every message. In a handler this is optional: its return value or exception settles all
    messages that it has not settled explicitly.
    """

    # `_settled_by` has no value before the message is settled: nearly all messages are settled by their handler.
    __slots__ = ("_settled_by",)

    async def ack(self) -> None:
        """Mark the message as done."""
        settle = self._take_settle()
        if settle is not None:
            await settle.ack(self)

    async def retry(self, *, delay: Duration | None = None, delay_level: int = 0) -> None:
        """Deliver it again after `delay`, or by default with a longer delay each time. Raises ErucaError.

        Eruca brokers deliver it after any delay, as a timedelta or in seconds; other brokers after the next longer
        delay level. `delay_level` is the number of a level. A single message of an ordered queue cannot be retried.
        """
        later = make_later(delay, delay_level)
        if self._settle is not None:
            await self._settle.retry(self, later)
            self._take_settle()

    async def bury(self) -> None:
        """Make it a dead letter of the group. Raises ErucaError."""
        if self._settle is not None:
            await self._settle.retry(self, DEAD)
            self._take_settle()

    async def reply(
        self,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
    ) -> Receipt:
        """Reply to a message that was sent with `request`, by a client in any language. It does not settle the message.

        `timeout` is 30 s by default. Raises MessageIllegal if the message is not a request, and SendFailed if its
        sender is gone.
        """
        settle: Settle | None = self._settle or getattr(self, "_settled_by", None)
        if settle is None:
            raise MessageIllegal(
                f"{self!r} was not delivered by a consumer, so it has no way to reply", hint="use `Producer.reply`"
            )
        return await settle.reply(self, body, tags, keys, properties, timeout)

    def _take_settle(self) -> Settle | None:
        """Return where to settle the message; None when it is settled already. May be called in any thread."""
        settle, self._settle = self._settle, None
        if settle is not None:
            self._settled_by = settle
        return settle


def check_decode(deserializer: Decode | None) -> None:
    """Raise ConfigError unless a deserializer is a function, or there is none."""
    if deserializer is not None:
        check_callable("deserializer", deserializer, "body")


def decode_body(message: ReceivedMessage, decode: Decode) -> Any:
    """Return the body of a message, decoded by a deserializer. Raises SerializationError."""
    body = message.body
    try:
        return decode(body)
    except ErucaError as error:
        raise SerializationError(f"the body of {message!r} cannot be decoded: {error}", hint="") from error
    except Exception as error:
        raise SerializationError(f"the body of {message!r} cannot be decoded: {error!r}") from error


def _to_time(time_ms: int) -> datetime:
    time = from_epoch_ms(time_ms)
    if time is None:
        raise WireError(f"{time_ms} ms since 1970 is not a time")
    return time
