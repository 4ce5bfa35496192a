"""How long tests wait for what must happen, and how they measure how long something takes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, NamedTuple

# A test that waits for a condition fails after this. It is not a measure of speed: on an idle machine the conditions
# take a fraction of a second, and a busy machine must not turn a test red.
PATIENCE_S: Final = 300

# The same for a program of its own that starts Spark, perhaps several times.
SPARK_S: Final = 900

_NS_PER_S = 1e9


class Stopwatch:
    """Measures how long something takes, without the time in which processes were ready and had no processor.

    Whatever else runs on a machine lengthens that time only, as Linux counts it for the first thread of a process. On
    an idle machine this is the time that passed, and so it is on other systems.
    """

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._before = {pid: _read_times(pid) for pid in pids}
        self._started = time.perf_counter()

    def read(self) -> float:
        """The seconds since the start. A process that has ended counts as long as it was not waited for."""
        passed = time.perf_counter() - self._started
        ran = waited = 0.0
        for pid in self._pids:
            after, before = _read_times(pid), self._before[pid]
            ran += after.running - before.running
            waited += after.ready - before.ready
        # Two processes may have waited at the same time.
        return max(passed - waited, min(ran, passed))


class _Times(NamedTuple):
    """Seconds since a process started."""

    running: float
    ready: float


def _read_times(pid: int) -> _Times:
    try:
        running, ready, _ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    except OSError:
        return _Times(0.0, 0.0)
    return _Times(int(running) / _NS_PER_S, int(ready) / _NS_PER_S)
