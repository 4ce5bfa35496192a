"""The process that `kill` kills: it appends to a store with sync flush and prints what is acknowledged.

python -m tests.crash.killed FOLDER SEED
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from eruca._ground.config import FlushMode, StoreOptions
from eruca._store.messagestore import open_store
from eruca._wire.record import encode_record
from tests.crash.world import draw_message

OPTIONS = StoreOptions(
    commitlog_segment_bytes=64 * 1024,
    consumequeue_segment_bytes=20 * 50,
    index_slots=64,
    index_entries=400,
    flush_mode=FlushMode.SYNC,
)


def main(folder: Path, seed: int) -> None:
    """Append until killed; one line for each acknowledged record: its position and its bytes."""
    rng = random.Random(f"killed:{seed}")
    store = open_store(folder, OPTIONS)
    number = seed * 100_000
    while True:
        batch = []
        for _ in range(rng.randint(1, 6)):
            number += 1
            batch.append(store.append(draw_message(rng, number)))
        flushed = store.flusher.sync_log()
        lines = [f"{item.position} {encode_record(item).hex()}\n" for item in batch if item.position < flushed]
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
        if rng.random() < 0.1:
            store.flusher.sync_derived()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
