"""Disk work in a thread that is never abandoned half done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


async def finish_in_thread(work: Callable[Arguments, Result], *args: Arguments.args, **how: Arguments.kwargs) -> Result:
    """Run something in a thread and wait for its end, even if the waiting task is cancelled.

    A thread cannot be cancelled. If abandoned, it would continue to change the store while other code already does.
    """
    task = asyncio.get_running_loop().create_task(asyncio.to_thread(work, *args, **how))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # irrelevant now, but must be retrieved
        raise
