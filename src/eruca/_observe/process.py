"""Figures of this process: memory, files, CPU time. Their names are those that all Prometheus clients use."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from eruca._observe.figures import Description, Figures, Kind

_STATM: Final = Path("/proc/self/statm")
_FILES: Final = Path("/proc/self/fd")
_KIB: Final = 1024
_STARTED: Final = time.time()

RESIDENT: Final = Description("process_resident_memory_bytes", Kind.GAUGE, "Memory of this process.")
CPU: Final = Description("process_cpu_seconds_total", Kind.COUNTER, "CPU time of this process, user and system.")
STARTED: Final = Description("process_start_time_seconds", Kind.GAUGE, "When this process started, in Unix time.")
OPEN_FILES: Final = Description("process_open_fds", Kind.GAUGE, "Open files and connections of this process.")
FILES_MAX: Final = Description("process_max_fds", Kind.GAUGE, "How many files and connections it may have open.")


def read_process() -> Iterator[Figures]:
    """Yield the figures; blocks for about a millisecond."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    values = {
        RESIDENT: _read_memory(used),
        CPU: used.ru_utime + used.ru_stime,
        STARTED: _STARTED,
        FILES_MAX: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    with suppress(OSError):  # not Linux
        values[OPEN_FILES] = len(os.listdir(_FILES))
    for about, value in values.items():
        yield Figures(about, [((), value)])


def _read_memory(used: resource.struct_rusage) -> int:
    try:
        return int(_STATM.read_text("ascii").split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        # The most it ever was: what systems without /proc can tell.
        return used.ru_maxrss * (1 if sys.platform == "darwin" else _KIB)
