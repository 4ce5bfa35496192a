"""Plain loops: the best that the machine and Python can do with the same bytes, without a store around them."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from bench.runner import Sample

PAGE_BYTES = mmap.PAGESIZE


def write_plainly(path: Path, records: Sequence[bytes], count: int, records_each: int = 1) -> Sample:
    """`pwrite` each element to a file whose blocks are reserved, over and over until `count` are written; records/s."""
    rounds = count // len(records)
    total = sum(map(len, records)) * rounds
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.posix_fallocate(fd, 0, total)
        at = 0
        cpu = time.thread_time()
        started = time.perf_counter()
        for _ in range(rounds):
            for record in records:
                at += os.pwrite(fd, record, at)
        elapsed = time.perf_counter() - started
        cpu = time.thread_time() - cpu
    finally:
        os.close(fd)
        path.unlink()
    return per_record(rounds * len(records) * records_each, elapsed, cpu)


def copy_plainly(path: Path, records: Sequence[bytes], count: int, records_each: int = 1) -> Sample:
    """Assign each element to a slice of a mapped file whose pages have all been touched; records/s."""
    rounds = count // len(records)
    total = sum(map(len, records)) * rounds
    with path.open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, total)
        with mmap.mmap(file.fileno(), total) as mapped:
            for page in range(0, total, PAGE_BYTES):
                mapped[page] = 0
            at = 0
            cpu = time.thread_time()
            started = time.perf_counter()
            for _ in range(rounds):
                for record in records:
                    end = at + len(record)
                    mapped[at:end] = record
                    at = end
            elapsed = time.perf_counter() - started
            cpu = time.thread_time() - cpu
    path.unlink()
    return per_record(rounds * len(records) * records_each, elapsed, cpu)


def sync_plainly(path: Path, record: bytes, group: int, seconds: float) -> Sample:
    """`pwrite` a group of records and `fdatasync`, one group after the other for a while; records/s."""
    data = record * group
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.posix_fallocate(fd, 0, 256 * 1024 * 1024)
        os.fsync(fd)
        at = syncs = 0
        started = time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            at += os.pwrite(fd, data, at)
            os.fdatasync(fd)
            syncs += 1
    finally:
        os.close(fd)
        path.unlink()
    return Sample(syncs * group / elapsed, {"ms/sync": elapsed / syncs * 1000})


def copy_out_plainly(paths: Sequence[Path], total: int, chunk_bytes: int) -> Sample:
    """Copy mapped files into bytes objects, one chunk after the other; MB/s."""
    rest = total
    elapsed = 0.0
    for path in paths:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            size = min(rest, len(mapped))
            started = time.perf_counter()
            for at in range(0, size, chunk_bytes):
                mapped[at : at + chunk_bytes]
            elapsed += time.perf_counter() - started
            rest -= size
    return Sample(total / elapsed / 1e6)


def check_plainly(paths: Sequence[Path], total: int, chunk_bytes: int) -> Sample:
    """Compute the CRC of mapped files, one chunk after the other; MB/s."""
    rest = total
    elapsed = 0.0
    for path in paths:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as view,
        ):
            size = min(rest, len(mapped))
            started = time.perf_counter()
            for at in range(0, size, chunk_bytes):
                crc32(view[at : at + chunk_bytes])
            elapsed += time.perf_counter() - started
            rest -= size
    return Sample(total / elapsed / 1e6)


def per_record(count: int, elapsed: float, thread_cpu: float) -> Sample:
    """A sample in records per second, with the time each one took."""
    return Sample(count / elapsed, {"wall us": elapsed / count * 1e6, "thread cpu us": thread_cpu / count * 1e6})
