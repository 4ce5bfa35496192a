"""Every exception Eruca raises, on one screen.

An error answers three questions: what is wrong (the message), may I try again (`retryable`), and what do I do next
(`hint`, a command or a setting). Foreign exceptions are converted to these at one boundary per room.
"""

from __future__ import annotations

from datetime import timedelta

__all__ = [
    "BatchTooLarge",
    "CallTimeout",
    "ClientClosed",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "ErucaError",
    "EtcdRefused",
    "FilterFailed",
    "InvalidName",
    "MessageIllegal",
    "NetError",
    "NoListener",
    "NoRoute",
    "OffsetLost",
    "QueueNotOurs",
    "ReplicaCorrupt",
    "RequestRefused",
    "RequestTimeout",
    "RetryLater",
    "SendFailed",
    "SerializationError",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreIOError",
    "StoreLayoutError",
    "StoreLocked",
    "StoreReadOnly",
    "TableCorrupt",
    "TableFull",
    "TableUnsaved",
    "TooManyCalls",
    "WireError",
    "WrongType",
]


class ErucaError(Exception):
    """Base of all errors Eruca raises on purpose."""

    retryable: bool = False
    hint: str = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} ({self.hint})" if self.hint else text


class ConfigError(ErucaError):
    """An option has a value that cannot be used."""


class WrongType(ConfigError, TypeError):
    """An argument has a wrong type; it is a TypeError too."""


class InvalidName(ErucaError):
    """A topic or group name breaks the naming rule, so it never reaches a path."""


class WireError(ErucaError):
    """A peer sent bytes that are not a frame, header, body or record we can accept."""


class StoreError(ErucaError):
    """The store directory cannot do what was requested."""


class StoreLocked(StoreError):
    """Another process has the store directory open."""


class StoreLayoutError(StoreError):
    """A file in the store does not fit: wrong segment size, foreign name, gap in a chain."""


class StoreClosed(StoreError):
    """The store is closed or closing."""


class StoreFull(StoreError):
    """There is no space on the disk; appends resume automatically when space returns."""

    retryable = True


class StoreReadOnly(StoreError):
    """The store accepts no appends now, because this broker is not the master."""

    retryable = True


class StoreIOError(StoreError):
    """The disk failed a read, a write or a sync."""

    retryable = True


class MessageIllegal(StoreError):
    """A message is larger than the limits allow, or its fields contradict each other."""


class BatchTooLarge(MessageIllegal):
    """A batch has more messages, or its records more bytes, than allowed. Nothing of it is stored."""


class TableCorrupt(StoreError):
    """A JSON table and its backup are both unreadable."""


class TableUnsaved(StoreError):
    """A change of a JSON table is not on the disk; saving is retried as long as the server runs."""

    retryable = True


class TableFull(StoreError):
    """A table has reached its size limit; unused entries must be removed first."""


class ReplicaCorrupt(StoreError):
    """A master sent bytes that are not records; the log was cut back to the last good one, where copying resumes."""

    retryable = True


class NetError(ErucaError):
    """A peer could not be reached or did not answer."""

    retryable = True


class ConnectFailed(NetError):
    """No connection to the peer."""


class ConnectionLost(NetError):
    """The connection ended before the answer came."""


class CallTimeout(NetError):
    """The peer did not answer in time."""


class TooManyCalls(NetError):
    """The limit on calls waiting for answers is reached."""


class EtcdRefused(ErucaError):
    """etcd refused a request; `code` is the gRPC status."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class SerializationError(ErucaError):
    """A serializer cannot turn an object into a body, or a deserializer cannot turn a body into an object."""


class NoRoute(ErucaError):
    """No name server knows the topic; the hint explains why and what to do."""


class ClientClosed(ErucaError):
    """The producer or consumer is not started, or is already closed."""


class SendFailed(ErucaError):
    """A message could not be stored; `attempts` lists the result of each try. The last one is the cause."""

    def __init__(self, message: str, attempts: list[str], *, retryable: bool = True, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.attempts = attempts
        self.retryable = retryable


class FilterFailed(ErucaError):
    """A filter class was refused, or did something it may not do."""


class RequestTimeout(ErucaError):
    """No reply to a request message arrived in time."""

    retryable = True


class NoListener(RequestTimeout):
    """No connected consumer subscribes to the topic of a request, so nobody can reply."""


class RetryLater(ErucaError):
    """A handler raises it to have its message delivered again after a delay of its choice.

    `delay` is a timedelta or seconds; brokers other than Eruca use the next longer delay level. `delay_level` is the
    number of a level; below 0, the message becomes a dead letter.
    """

    def __init__(
        self,
        message: str = "the handler asked for a later delivery",
        *,
        delay: timedelta | float | None = None,
        delay_level: int = 0,
    ) -> None:
        super().__init__(message)
        if delay is not None and (isinstance(delay, bool) or not isinstance(delay, timedelta | float | int)):
            raise WrongType(
                f"RetryLater.delay={delay!r:.80}: expected a duration, not {type(delay).__name__}",
                hint="pass a timedelta, or a number of seconds",
            )
        if isinstance(delay_level, bool) or not isinstance(delay_level, int):
            raise WrongType(
                f"RetryLater.delay_level={delay_level!r:.80}: expected int, not {type(delay_level).__name__}"
            )
        if delay is not None and delay_level:
            raise ConfigError("RetryLater: delay and delay_level are mutually exclusive", hint="pass one of them")
        self.delay = delay
        self.delay_level = delay_level


class OffsetLost(ErucaError):
    """A position to read from is outside what the queue still has."""


class QueueNotOurs(ErucaError):
    """A queue belongs to another member of the group, or is not assigned."""


# System error, busy, service not available, no permission, no buyer id, not in the current unit: codes after which
# Java's client tries another broker; and topic not exist (17), which a broker that just started may answer.
_RETRYABLE_CODES = frozenset({1, 2, 14, 16, 17, 204, 205})
# Access control has no code of its own: a refusal is a system error with this word, and stays one when tried again.
_ACCESS_WORD = "AclException"


class RequestRefused(ErucaError):
    """A request was answered with a response code other than success.

    Handlers raise it to refuse; callers get it when a peer refused. `code` is a ResponseCode.
    """

    def __init__(self, code: int, remark: str, *, hint: str | None = None) -> None:
        super().__init__(remark, hint=hint)
        self.code = code
        self.remark = remark
        # Another broker, or the same one in a moment, may succeed.
        self.retryable = code in _RETRYABLE_CODES and _ACCESS_WORD not in remark
