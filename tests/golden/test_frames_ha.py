"""The captured replication conversation: every row decodes to chunks or reports and encodes again to the same bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eruca._wire.record import RecordView, decode_records, encode_record, inspect_record
from eruca._wire.replication import ChunkDecoder, LogChunk, LogReport, ReportDecoder, encode_report
from tests.encoding import encode_chunk
from tests.paths import GOLDEN


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    with open(GOLDEN / "frames-ha.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_row(row: dict[str, Any]) -> bytes:
    """Return the bytes of one read; the capture keeps at most 4096 of them, the others are zeros."""
    return bytes.fromhex(row["hex"]).ljust(row["len"], b"\0")


def test_there_are_44_reads_of_one_connection(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == 44
    assert {(row["conn"], row["direction"]) for row in rows} == {(6, "slave2master"), (6, "master2slave")}
    # Only the first big read was cut by the capture.
    assert [row["n"] for row in rows if len(row["hex"]) != 2 * row["len"]] == [0]


def test_reports(rows: list[dict[str, Any]]) -> None:
    decoder = ReportDecoder()
    previous = 0
    reads = [read_row(row) for row in rows if row["direction"] == "slave2master"]
    assert len(reads) == 21
    for data in reads:
        (report,) = decoder.feed(data)
        assert type(report) is LogReport
        assert report.position >= previous
        assert encode_report(report) == data
        previous = report.position
    assert previous == 0x3710


def test_chunks(rows: list[dict[str, Any]]) -> None:
    decoder = ChunkDecoder()
    pending = b""
    chunks: list[LogChunk] = []
    reads = [read_row(row) for row in rows if row["direction"] == "master2slave"]
    assert len(reads) == 23
    for data in reads:
        # A read may end between the head of a chunk and its data; what was decoded so far encodes to what was read.
        got = decoder.feed(data)
        pending += data
        encoded = b"".join(map(encode_chunk, got))
        assert pending.startswith(encoded)
        pending = pending[len(encoded) :]
        assert len(pending) == decoder.pending
        chunks += got
    assert pending == b""
    assert chunks[0] == LogChunk(0, b"")
    log = b"".join(chunk.data for chunk in chunks)
    # Chunks follow each other without gaps, and a heartbeat announces where the next one will start.
    position = 0
    for chunk in chunks:
        assert chunk.position == position
        position += len(chunk.data)
    assert position == len(log) == 0x3710


def test_the_replicated_log_is_records(rows: list[dict[str, Any]]) -> None:
    decoder = ChunkDecoder()
    chunks: list[LogChunk] = []
    for row in rows:
        if row["direction"] == "master2slave":
            chunks += decoder.feed(read_row(row))
    first, *others = [chunk for chunk in chunks if chunk.data]
    # Of the first chunk 4096 bytes are known, less the heartbeat and its own head.
    known = 4096 - 24
    at = 0
    seen = 0
    while type(view := inspect_record(first.data, at, known, True, at)) is RecordView:
        at += view.size
        seen += 1
    assert seen > 10
    assert known - at < 400
    for chunk in others:
        messages = decode_records(chunk.data)
        assert b"".join(map(encode_record, messages)) == chunk.data
        position = chunk.position
        for message in messages:
            assert message.position == position
            position += message.size
