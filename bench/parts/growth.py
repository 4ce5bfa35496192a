"""How much anonymous memory a process needs while its store grows. Run as a separate process: DIR MIB...

Prints a JSON list of (stage, bytes of log, KiB of anonymous memory): while the log grew to each size, and after opening
the whole, after a clean stop and after a crash.
"""

from __future__ import annotations

import gc
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.parts.workload import CHUNK, Workload, open_bench_store
from eruca._store.messagestore import MessageStore

_SAMPLE_BYTES = 32 * 1024 * 1024


def read_anonymous_kib() -> int:
    """Anonymous memory of this process: what the page cache cannot drop."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise LookupError("this kernel does not report anonymous memory")


def grow(store: MessageStore, workload: Workload, goal: int) -> int:
    """Append until the log has `goal` bytes; returns the peak memory."""
    most = 0
    looked = store.log.tail
    number = looked  # keys differ from those before
    while store.log.tail < goal:
        for message in workload.make(number, CHUNK):
            store.append(message)
        number += CHUNK
        if store.log.tail - looked > _SAMPLE_BYTES or store.log.tail >= goal:
            looked = store.log.tail
            gc.collect()
            most = max(most, read_anonymous_kib())
    return most


def main() -> None:
    """Grow the store, open it twice, and print the results."""
    root = Path(sys.argv[1])
    sizes = [int(text) * 1024 * 1024 for text in sys.argv[2:]]
    workload = Workload(1024)
    seen: list[tuple[str, int, int]] = []
    with ThreadPoolExecutor(2) as executor:
        store = open_bench_store(root, executor)
        for size in sizes:
            most = grow(store, workload, size)
            seen.append(("grown", store.log.tail, most))
        store.close()
        store = open_bench_store(root, executor)
        seen.append(("opened after a clean stop", store.log.tail, read_anonymous_kib()))
        store.close()
        (root / "abort").touch()
        (root / "checkpoint").unlink()
        store = open_bench_store(root, executor)
        seen.append(("opened after a crash", store.log.tail, read_anonymous_kib()))
        store.close()
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
