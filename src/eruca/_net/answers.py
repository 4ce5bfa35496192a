"""What a handler may do besides responding at once: block its connection, respond later or in pieces, refuse."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from eruca._net.calls import FAREWELL
from eruca._wire.codes import FLAG_ONEWAY, FLAG_RESPONSE, ResponseCode
from eruca._wire.frame import Command, encode_command
from eruca.errors import ErucaError, RequestRefused

log = logging.getLogger(__name__)

T = TypeVar("T")

# A remark quotes what the peer sent; without a limit, a name of a megabyte would make the response too large.
_REMARK_CHARS_MAX = 4096


class InOrder(Awaitable[T]):
    """An awaitable that must complete before the next request of the connection is handled."""

    __slots__ = ("_awaitable",)

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, T]:
        return self._awaitable.__await__()


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """A response too large to copy in one go: one piece in each loop iteration, while the peer reads.

    An exception of the iterator closes the connection, because the peer already has a part of the frame.
    """

    pieces: Iterator[bytes]


class NotNow(BaseException):
    """A handler has to wait for a turn of its connection. Not an Exception, so that it does not become a refusal."""


def encode_refusal(command: Command, error: Exception, peer: str) -> bytes | None:
    """Encode the response to a failed request: its code and the reason; unexpected exceptions are logged in full."""
    if isinstance(error, RequestRefused):
        code, remark = error.code, error.remark
    elif isinstance(error, ErucaError):
        code, remark = int(ResponseCode.SYSTEM_ERROR), str(error)
    else:
        log.error("request %d of %s failed", command.code, peer, exc_info=error)
        code, remark = int(ResponseCode.SYSTEM_ERROR), f"{error.__class__.__name__}: {error}"
    if command.flag & FLAG_ONEWAY:
        return None
    return encode_command(command.answer(code, remark=remark[:_REMARK_CHARS_MAX]))


def encode_farewell(reason: str) -> bytes:
    """Encode what a connection is told for which there is no place."""
    return encode_command(Command(code=ResponseCode.SYSTEM_BUSY, flag=FLAG_RESPONSE, opaque=FAREWELL, remark=reason))
