"""A process that appends until it is killed, and the messages it appends, so that a test knows them too.

    python -m tests.interop.crashing_writer DIRECTORY PORT

It prints a line with the number of messages after each append that returned.
"""

from __future__ import annotations

import itertools
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from eruca._ground.config import StoreOptions
from eruca._store.messagestore import open_store
from eruca._wire.host import pack_host
from eruca._wire.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from eruca._wire.record import Record
from tests.interop.workload import QUEUES, make_options

TOPIC: Final = "Roll"
OPTIONS: Final[StoreOptions] = make_options(256 * 1024)
# After this number of appends the disk is told, as the timers of a broker do.
_SYNC_EVERY = 400


def build(number: int, port: int) -> Record:
    """The message with a number."""
    generator = random.Random(number)
    return Record(
        TOPIC,
        number % QUEUES,
        flag=number,
        body=generator.randbytes(generator.randrange(600)),
        properties=encode_properties({UNIQ_KEY: f"{number:032X}", KEYS: f"W{number}", TAGS: f"T{number % 5}"}),
        born_timestamp=1_700_000_000_000 + number,
        born_host=pack_host("10.9.8.7", 1 + number % 60_000),
        store_host=pack_host("127.0.0.1", port),
    )


def main(directory: Path, port: int) -> None:
    """Append for ever."""
    with ThreadPoolExecutor(1) as executor:
        store = open_store(directory, OPTIONS, executor=executor)
        for number in itertools.count():
            store.append(build(number, port))
            if number % _SYNC_EVERY == _SYNC_EVERY - 1:
                store.flusher.sync_log()
                store.flusher.sync_derived()
            print(number + 1, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
