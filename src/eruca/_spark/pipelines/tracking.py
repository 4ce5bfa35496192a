"""What every job has around it: a progress bar, and a summary with its duration."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eruca._spark.pipelines.summary import JobSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How often the progress bar is updated.
_PROGRESS_S = 0.3


@contextmanager
def track_job(session: SparkSession, job: str) -> Iterator[JobSummary]:
    """Run a job with a progress bar; yields the summary, whose duration is set at the end."""
    summary = JobSummary(job)
    started = time.monotonic()
    with _show_progress(session, job):
        try:
            yield summary
        finally:
            summary.seconds = time.monotonic() - started


@contextmanager
def keep(frame: Any) -> Iterator[Any]:
    """Persist a frame, so that it is computed only once."""
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


@contextmanager
def _show_progress(session: SparkSession, job: str) -> Iterator[None]:
    """Show a progress bar of all running stages on stderr, if it is a terminal."""
    tracker = _find_tracker(session) if sys.stderr.isatty() else None
    if tracker is None:
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    ended = threading.Event()

    def watch() -> None:
        task = bar.add_task(job, total=None)
        done = 0
        seen: dict[int, tuple[int, int]] = {}
        while not ended.wait(_PROGRESS_S):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    seen[stage] = (info.numCompletedTasks, info.numTasks)
                    bar.update(task, description=f"{job}: {info.name.partition(' at ')[0]}")
            active = set(tracker.getActiveStageIds())
            for stage in set(seen) - active:
                # A stage that ended has done all its tasks, also those since the last look.
                done += seen.pop(stage)[1]
            running, total = (sum(pair[at] for pair in seen.values()) for at in (0, 1))
            bar.update(task, completed=done + running, total=done + total)

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    with bar:
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _find_tracker(session: SparkSession) -> Any:
    try:
        return session.sparkContext.statusTracker()
    except Exception:
        # Spark Connect has no context on this side.
        return None
