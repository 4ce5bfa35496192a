"""Responses with records straight from the mapped log: a large one is copied and written in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from eruca._net.answers import LongAnswer
from eruca._store.messagestore import MessageStore
from eruca._wire.command import FRAME_PREFIX
from eruca.errors import StoreError

# A larger response is copied and written in pieces: 4 MB in one go would block the loop for some milliseconds.
WHOLE_BYTES_MAX: Final = 512 * 1024
_PIECE_BYTES: Final = 256 * 1024


class LogPieces:
    """Builds such responses."""

    def __init__(self, store: MessageStore) -> None:
        # How often the log was cut: data that is written in pieces may have been removed.
        self._cuts = 0
        store.lineage.was_cut.listen(self._on_cut)

    def _on_cut(self, _position: int) -> None:
        self._cuts += 1

    def answer(self, head: bytes, slices: Sequence[memoryview | bytearray], size: int) -> bytes | LongAnswer:
        """Return a response: its encoded head and slices of the log, `size` bytes together."""
        if size > WHOLE_BYTES_MAX:
            return LongAnswer(self._cut_in_pieces(head, slices))
        return b"".join((head, *slices))

    def _cut_in_pieces(self, head: bytes, slices: Sequence[memoryview | bytearray]) -> Iterator[bytes]:
        cuts = self._cuts
        yield head
        for part in slices:
            view = memoryview(part)
            for begin in range(0, len(view), _PIECE_BYTES):
                if self._cuts != cuts:
                    raise StoreError("the log was truncated while it was read", hint="pull again")
                yield bytes(view[begin : begin + _PIECE_BYTES])


def extend_frame(frame: bytes, size: int) -> bytes:
    """Return a frame without a body as the head of one whose body has `size` bytes."""
    length, mark = FRAME_PREFIX.unpack_from(frame)
    return FRAME_PREFIX.pack(length + size, mark) + frame[FRAME_PREFIX.size :]
