"""Services that only a master runs, and how they find their position in a copied log and copied tables."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._broker.delaying.schedule import Schedule
from eruca._broker.delaying.timing import Timing
from eruca._broker.groups.offsets import Offsets
from eruca._broker.popping.redelivery import Redelivery
from eruca._broker.pulling.hold import Holds
from eruca._broker.sending.once import Once
from eruca._broker.topics import Topics
from eruca._broker.transactions.checkback import CheckBackService
from eruca._store.messagestore import MessageStore
from eruca._wire.names import FORBIDDEN_TO_SEND


@dataclass(frozen=True, slots=True, eq=False)
class Services:
    """Delayed delivery, the timer, popping, transaction checks, marks of sinks, and held pulls."""

    _store: MessageStore
    _topics: Topics
    _offsets: Offsets
    _once: Once
    _schedule: Schedule
    _timing: Timing
    _checks: CheckBackService
    _holds: Holds
    _popping: Redelivery

    async def catch_up(self) -> None:
        """Read the marks in the log up to its end."""
        await self._once.catch_up(self._store.log.readable_end)

    def bound_offsets(self) -> int:
        """Move offsets beyond the end of their queue back to it; return how many there were."""
        return self._offsets.bound(self._store.queues.find_end)

    def prepare_to_lead(self, known_until: int) -> None:
        """Add every topic with messages after a position: the last ones may have arrived without their settings."""
        self._once.lead()
        queues: dict[str, int] = {}
        for queue in self._store.queues:
            # Topics that were deleted on the master have older messages only.
            if queue.topic not in FORBIDDEN_TO_SEND and queue.end_position > known_until:
                queues[queue.topic] = max(queues.get(queue.topic, 0), queue.queue_id + 1)
        for topic, count in queues.items():
            self._topics.adopt(topic, count)

    async def lead(self) -> None:
        """Start the services of a master."""
        await self._schedule.start()
        await self._timing.start()
        await self._popping.start()
        self._checks.start()

    async def follow(self) -> None:
        """Prepare for copying the tables of a master."""
        await self._once.follow()
        self._offsets.forget_done()
        await self._schedule.start()
        await self._timing.forget()

    async def stop(self) -> None:
        """Stop storing messages."""
        await self._schedule.stop()
        await self._timing.stop()
        await self._popping.stop()
        await self._checks.stop()

    def renew_topics(self) -> None:
        """Make name servers accept all topics, even those they have."""
        self._topics.renew()

    def release_holds(self) -> None:
        """Answer all held pulls."""
        self._holds.release_all()
