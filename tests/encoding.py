"""Bytes that only tests write: what our servers send in other ways, or never."""

from __future__ import annotations

from typing import Any

from eruca._wire.catalog import encode_answer_body
from eruca._wire.ext import Header
from eruca._wire.frame import Command
from eruca._wire.replication import LogChunk, encode_chunk_head


def build_answer(
    request: Command,
    code: int,
    header: Header | None = None,
    body: Any = None,
    *,
    remark: str | None = None,
    request_header: Header | None = None,
) -> Command:
    """Make the answer to a request of typed parts, written as the requester can read it."""
    data = encode_answer_body(request.code, body, request_header, version=request.version)
    return request.answer(code, header, data, remark=remark)


def encode_chunk(chunk: LogChunk) -> bytes:
    """Encode one chunk of log, or a heartbeat."""
    return encode_chunk_head(chunk.position, len(chunk.data)) + chunk.data
