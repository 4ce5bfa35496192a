"""What is remembered of the queries of idempotent sinks, and of producers, in order of last use."""

from __future__ import annotations

from typing import TypeAlias

# Queue and partition.
PlaceKey: TypeAlias = tuple[int, int]


class Progress:
    """The newest batch of a query in a topic, and the highest sequence by queue and partition."""

    __slots__ = ("batch", "islands", "places")

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.places: dict[PlaceKey, int] = {}
        # Sequences stored above the highest one without a gap before it.
        self.islands: dict[PlaceKey, list[tuple[int, int]]] = {}


class Query:
    """What is stored of a query, by topic, and the number of its places."""

    __slots__ = ("count", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, Progress] = {}
        self.count = 0

    def get_progress(self, topic: str, batch: int) -> Progress:
        """Return that of a topic, which begins anew with a newer batch."""
        progress = self.topics.get(topic)
        if progress is None or batch > progress.batch:
            if progress is not None:
                self.count -= len(progress.places)
            progress = self.topics[topic] = Progress(batch)
        return progress

    def forget(self, topic: str) -> int:
        """Forget what is stored in a topic; return the number of places."""
        count = len(self.topics.pop(topic).places)
        self.count -= count
        return count


class Shelf:
    """Queries in order of last use, or producers, and the number of their places."""

    __slots__ = ("count", "of_topics", "queries")

    def __init__(self) -> None:
        self.queries: dict[str, Query] = {}
        #: The queries of each topic, in order of last use.
        self.of_topics: dict[str, dict[str, None]] = {}
        self.count = 0

    def use(self, name: str, topic: str) -> Query:
        """Return a query, which is the most recently used one now: the last."""
        query = self.queries.pop(name) if name in self.queries else Query()
        self.queries[name] = query
        names = self.of_topics.setdefault(topic, {})
        names.pop(name, None)
        names[name] = None
        return query

    def forget_oldest(self, topic: str) -> str:
        """Forget what was idle for longest in a topic, to which something was added; return the name of its query.

        So whoever may publish to a topic can push out what is remembered for that topic only. Where the topic has
        nothing else, it is the query that was idle for longest in any.
        """
        names = self.of_topics[topic]
        if len(names) == 1:
            name = next(iter(self.queries))
            for its_topic in list(self.queries[name].topics):
                self._drop(name, its_topic)
            return name
        name = next(iter(names))
        self._drop(name, topic)
        return name

    def _drop(self, name: str, topic: str) -> None:
        query = self.queries[name]
        self.count -= query.forget(topic)
        if not query.topics:
            del self.queries[name]
        names = self.of_topics[topic]
        del names[name]
        if not names:
            del self.of_topics[topic]
