"""Everything operators and their tools ask of a broker, put together."""

from __future__ import annotations

from eruca.broker.adminconfig import ConfigHandlers
from eruca.broker.admingroups import GroupHandlers
from eruca.broker.admintopics import Operators, TopicHandlers
from eruca.broker.locks import LockHandlers, QueueLocks
from eruca.broker.parts import Parts
from eruca.broker.progress import ProgressHandlers
from eruca.broker.query import QueryHandlers
from eruca.broker.relays import RelayHandlers
from eruca.broker.runtime import RuntimeHandlers
from eruca.net.handlers import HandlerTable

# Ended locks are looked for once a minute: whoever wants a queue looks for itself.
_TICKS_BETWEEN_SWEEPS = 60


class AdminHandlers:
    """Answers all codes that neither send nor pull."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ticks = 0
        self.locks = QueueLocks(parts.clock, parts.options.lock_live_ms)
        operators = Operators()
        self.query = QueryHandlers(parts)
        self.topics = TopicHandlers(parts, self.locks, operators)
        self.groups = GroupHandlers(parts, self.locks, operators)
        self.progress = ProgressHandlers(parts)
        self.relays = RelayHandlers(parts)
        self.config = ConfigHandlers(parts)
        self.runtime = RuntimeHandlers(parts, self.progress)

    def register(self, table: HandlerTable) -> None:
        """Take the codes."""
        for handlers in (
            LockHandlers(self.locks),
            self.query,
            self.topics,
            self.groups,
            self.progress,
            self.relays,
            self.config,
            self.runtime,
        ):
            handlers.register(table)

    def tick(self) -> None:
        """Take samples and forget locks that ended; called once a second."""
        self._parts.stats.tick()
        self._ticks += 1
        if self._ticks % _TICKS_BETWEEN_SWEEPS == 0:
            self.locks.remove_expired()
