"""A whole pass of retention in one thread, which a broker makes in steps."""

from __future__ import annotations

from eruca._store.retention import Retention, RetentionPlan


def retain(retention: Retention, *, asked: bool = False) -> RetentionPlan:
    """Look at the disk, take out what may go, and delete it."""
    plan, detached = retention.apply(retention.observe(), asked=asked)
    retention.dispose(detached)
    return plan
