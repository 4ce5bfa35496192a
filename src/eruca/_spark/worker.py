"""What a Python worker of Spark does once, before its first task."""

from __future__ import annotations

import gc

from pyspark import TaskContext

_settled = False


def prepare_worker() -> None:
    """Tell the collector of a worker to leave alone what is there for good: modules, classes, tables.

    Spark's daemon collects after every task, and looks at all of that each time (pandas and pyarrow too): 15 to 30 ms
    of CPU, which a small micro-batch of a stream feels.
    """
    global _settled  # noqa: PLW0603
    if _settled or TaskContext.get() is None:
        return  # a process that is no worker keeps its own ways
    _settled = True
    gc.collect()
    gc.freeze()
