"""kill -9 of a real process that writes to real files: every acknowledged message is there afterwards."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from eruca._store.messagestore import open_store
from eruca._wire.record import decode_record
from tests.crash.killed import OPTIONS
from tests.crash.ledger import Ledger, Stored, expect
from tests.paths import REPOSITORY

_ROUNDS = 3


def run_kill(seed: int) -> None:
    """One seed: one directory, several processes killed in turn, each after some acknowledgements."""
    rng = random.Random(f"kill:{seed}")
    folder = Path(tempfile.mkdtemp(prefix="eruca-kill-"))
    try:
        acknowledged: dict[int, Stored] = {}
        for number in range(_ROUNDS):
            acknowledged.update(_kill_one(folder, seed * 10 + number, rng.randint(1, 120)))
            _check_all(folder, acknowledged)
    finally:
        shutil.rmtree(folder)


def _kill_one(folder: Path, seed: int, count: int) -> dict[int, Stored]:
    """Start a writer, read that many acknowledgements, kill it, and read the ones that were on their way."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))}
    command = [sys.executable, "-m", "tests.crash.killed", str(folder), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(count)]
        process.send_signal(signal.SIGKILL)
        lines.extend(process.stdout.read().split(b"\n"))
    expect(process.returncode == -signal.SIGKILL, f"the writer ended by itself with {process.returncode}")
    found: dict[int, Stored] = {}
    for line in lines:
        position, _, record = line.strip().partition(b" ")
        data = bytes.fromhex(record.decode()) if len(record) % 2 == 0 else b""
        if len(data) < 4 or len(data) != int.from_bytes(data[:4], "big"):
            continue  # the line the writer was at when it was killed
        found[int(position)] = Stored(int(position), data, decode_record(data))
    expect(len(found) >= count, f"{len(found)} of {count} acknowledgements could be read")
    return found


def _check_all(folder: Path, acknowledged: dict[int, Stored]) -> None:
    """Open, hold against the acknowledgements, close: the next writer begins after a clean stop, or not."""
    store = open_store(folder, OPTIONS)
    try:
        expect(store.recovered is not None and not store.recovered.clean, "the abort marker is missing")
        expect(not store.damage.items, f"a kill damaged the log: {store.damage.items}")
        ledger = Ledger()
        # The writer may have appended more than it could acknowledge, so what is in the log is taken as appended.
        end = max(stored.end for stored in acknowledged.values())
        for position, stored in acknowledged.items():
            record = store.reader.view_record(position)
            expect(record is not None and bytes(record) == stored.data, f"acknowledged at {position}, not there")
        position = 0
        while position < store.log.tail:
            record = store.reader.view_record(position)
            if record is None:
                position = (position // OPTIONS.commitlog_segment_bytes + 1) * OPTIONS.commitlog_segment_bytes
                continue
            ledger.records[position] = Stored(position, bytes(record), decode_record(record))
            position += len(record)
        ledger.acknowledge(end)
        ledger.check(store)
    finally:
        store.close()
