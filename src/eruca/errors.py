"""Every exception Eruca raises, on one screen.

An error answers three questions: what is wrong (the message), may I try again (`retryable`), and what do I do next
(`hint`, a command or a setting). Foreign exceptions are turned into these at one boundary per room.
"""

from __future__ import annotations


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


class InvalidName(ErucaError):
    """A topic or group name breaks the naming rule, so it never reaches a path."""


class WireError(ErucaError):
    """A peer sent bytes that are not a frame, header, body or record we can accept."""


class StoreError(ErucaError):
    """The store directory cannot do what was asked."""


class StoreLocked(StoreError):
    """Another process has the store directory open."""


class StoreLayoutError(StoreError):
    """A file in the store does not fit: wrong segment size, foreign name, gap in a chain."""


class StoreClosed(StoreError):
    """The store is closed or closing."""


class StoreFull(StoreError):
    """There is no room on the disk; appends resume by themselves when space returns."""

    retryable = True


class StoreIOError(StoreError):
    """The disk failed a read, a write or a sync."""

    retryable = True


class MessageIllegal(StoreError):
    """A message is larger than the limits allow, or its fields contradict each other."""


class TableCorrupt(StoreError):
    """A JSON table and its backup are both unreadable."""


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
    """As many calls wait for answers as the bound allows."""


class RequestRefused(ErucaError):
    """A request is answered with a response code other than success.

    Handlers raise it to refuse; callers get it when a peer refused. `code` is a ResponseCode.
    """

    def __init__(self, code: int, remark: str, *, hint: str | None = None) -> None:
        super().__init__(remark, hint=hint)
        self.code = code
        self.remark = remark
