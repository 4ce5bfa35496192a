"""What a handler may do besides answering at once: have its connection wait, or wait itself, or refuse.

It may also answer in pieces.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from eruca._wire.codes import FLAG_ONEWAY, ResponseCode
from eruca._wire.frame import Command, encode_command
from eruca.errors import ErucaError, RequestRefused

log = logging.getLogger(__name__)

T = TypeVar("T")

# A remark quotes what the peer sent; without a bound, a name of a megabyte makes an answer that is not a frame.
_REMARK_CHARS_MAX = 4096


class InOrder(Awaitable[T]):
    """Something to wait for before the next request of the connection is looked at."""

    __slots__ = ("_awaitable",)

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, T]:
        return self._awaitable.__await__()


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """An answer that would take too long to copy in one go: one piece in each turn of the loop, while the peer reads.

    An exception of the iterator ends the connection, for the peer has a part of the frame already.
    """

    pieces: Iterator[bytes]


class NotNow(BaseException):
    """A handler has to wait for a turn of its connection. Not an Exception, so that it does not end as a refusal."""


def encode_refusal(command: Command, error: Exception, peer: str) -> bytes | None:
    """The answer to a request that could not be done: its code and why; one of our own mistakes is logged whole."""
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
