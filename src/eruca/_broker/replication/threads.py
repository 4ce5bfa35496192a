"""Disk work in a thread that is never left behind half done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


async def finish_in_thread(work: Callable[Arguments, Result], *args: Arguments.args, **how: Arguments.kwargs) -> Result:
    """Run something in a thread and wait for its end, also when whoever waits is cancelled.

    A thread cannot be cancelled. Left alone, it would go on changing the store while somebody else already does.
    """
    task = asyncio.get_running_loop().create_task(asyncio.to_thread(work, *args, **how))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # it counts no more, but must be looked at
        raise
