"""Chunks of a master's log as they come."""

from __future__ import annotations

from eruca._wire.replication import Chunk, LogChunk


def make_chunk(
    position: int, data: bytes, epoch: int | None, *, confirmed: int = 0, tail: int | None = None
) -> Chunk | LogChunk:
    """A chunk of a fenced link, or without an epoch of a classic one; the log ends with it unless `tail` is given."""
    if epoch is None:
        return LogChunk(position, data)
    return Chunk(epoch, position, confirmed, position + len(data) if tail is None else tail, 0, data)
