"""How far a consumer is behind the ends of its queues."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from eruca._client.namespaces import unwrap_queue
from eruca._client.session.session import Session
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import RETRY_PREFIX

_ASKED_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Lag:
    """How many messages a consumer is behind."""

    # The sum of all its queues.
    total: int = 0
    # For each of its queues.
    queues: dict[MessageQueue, int] = field(default_factory=dict)


async def find_lag(session: Session, progress: Mapping[MessageQueue, int]) -> Lag:
    """Compare the progress of each queue with its end; retry queues are left out. Raises ErucaError."""
    slots = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def find(queue: MessageQueue, offset: int) -> int:
        async with slots:
            address = session.routes.require_address(queue.broker_name)
            return max(0, await session.calls.find_max_offset(address, queue) - offset)

    mine = [queue for queue in sorted(progress) if not queue.topic.startswith(RETRY_PREFIX)]
    behind = await asyncio.gather(*[find(queue, progress[queue]) for queue in mine])
    namespace = session.options.namespace
    found = {unwrap_queue(namespace, queue): count for queue, count in zip(mine, behind, strict=True)}
    return Lag(sum(behind), found)
