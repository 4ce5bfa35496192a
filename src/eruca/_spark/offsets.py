"""Offsets of queues as JSON: those in a Spark checkpoint, and those in an option.

Spark compares the offsets of a stream as text, so their keys are sorted. In an option, offsets are a tree of topic,
broker and queue; a value at any level applies to everything below it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from eruca._ground.suggestions import suggest_name
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError, OffsetLost

Offsets = dict[MessageQueue, int]
# How options denote the two ends of a queue.
EARLIEST: Final = -2
LATEST: Final = -1
OFFSET_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_TOPICS: Final = "topics"


def name_queue(queue: MessageQueue) -> str:
    """Return the name of a queue for errors and logs."""
    return f"{queue.topic}, broker {queue.broker_name}, queue {queue.queue_id}"


# -- checkpoints -------------------------------------------------------------------------------------------------------


def encode_offsets(offsets: Mapping[MessageQueue, int], **extra: Any) -> dict[str, Any]:
    """Return offsets as a dictionary for JSON, with sorted keys."""
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id)):
        by_broker = topics.setdefault(queue.topic, {})
        by_broker.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return {name: value for name, value in sorted({**extra, _TOPICS: topics}.items())}


def decode_offsets(given: str | Mapping[str, Any]) -> Offsets:
    """Undo `encode_offsets`. Raises OffsetLost if these are not offsets, for example those of another source."""
    try:
        tree = json.loads(given) if isinstance(given, str) else given
        return {
            MessageQueue(broker, int(number), topic): int(offset)
            for topic, by_broker in tree[_TOPICS].items()
            for broker, by_queue in by_broker.items()
            for number, offset in by_queue.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise OffsetLost(
            f"the checkpoint has no offsets of this source: {str(given)[:200]}", hint="does it belong to another query?"
        ) from None


def sum_behind(offsets: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> dict[str, int]:
    """Return how many messages of each topic lie between the offsets of a stream and the ends of its queues."""
    found: dict[str, int] = {}
    for queue, offset in sorted(offsets.items()):
        found[queue.topic] = found.get(queue.topic, 0) + max(0, ends.get(queue, offset) - offset)
    return found


# -- what users write --------------------------------------------------------------------------------------------------


class QueueTree:
    """Values by topic, broker and queue, as given in an option."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        self._tree = tree

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueueTree) and self._tree == other._tree

    def __hash__(self) -> int:
        return hash(json.dumps(self._tree, sort_keys=True, default=str))

    @property
    def topics(self) -> list[str]:
        """The topics in the tree."""
        return list(self._tree)

    def list_values(self) -> list[Any]:
        """Return all values, at any level."""

        def walk(node: Any) -> Iterator[Any]:
            if isinstance(node, Mapping):
                for below in node.values():
                    yield from walk(below)
            else:
                yield node

        return list(walk(self._tree))

    def find(self, queue: MessageQueue) -> Any:
        """Return the value of a queue, or None if the tree has none."""
        found: Any = self._tree
        for name in (queue.topic, queue.broker_name, str(queue.queue_id)):
            if not isinstance(found, Mapping):
                return found
            if name not in found:
                return None
            found = found[name]
        return found

    def check(self, option: str, queues: Iterable[MessageQueue]) -> None:
        """Raise ConfigError for unknown names: a queue with a misspelt name would be read from its beginning."""
        known = list(queues)
        topics = {queue.topic for queue in known}
        for topic, by_broker in self._tree.items():
            _refuse_unknown(option, "topic", topic, topics)
            if not isinstance(by_broker, Mapping):
                continue
            brokers = {queue.broker_name for queue in known if queue.topic == topic}
            for broker, by_queue in by_broker.items():
                _refuse_unknown(option, f"broker of {topic}", broker, brokers)
                if not isinstance(by_queue, Mapping):
                    continue
                numbers = {str(q.queue_id) for q in known if (q.topic, q.broker_name) == (topic, broker)}
                for number in by_queue:
                    _refuse_unknown(option, f"queue of {topic} on {broker}", number, numbers)


def _refuse_unknown(option: str, what: str, name: str, known: set[str]) -> None:
    if name in known:
        return
    listed = ", ".join(sorted(known)[:20]) or "none"
    raise ConfigError(
        f"{option} contains {name}, which is not a {what} that is read",
        hint=suggest_name(name, known, f"known: {listed}"),
    )


def read_tree(text: str, read_leaf: Callable[[Any], Any], example: str) -> QueueTree:
    """Parse JSON of topic, broker and queue. Raises ValueError with an example."""
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}; expected for example {example}") from None
    if not isinstance(tree, dict) or not tree:
        raise ValueError(f"expected for example {example}")

    def read(node: Any, path: tuple[str, ...]) -> Any:
        if isinstance(node, dict):
            if len(path) == 3:
                raise ValueError(f"it is deeper than topic, broker and queue; expected for example {example}")
            if len(path) == 2 and not all(name.isdecimal() for name in node):
                raise ValueError(f"a queue is a number; expected for example {example}")
            return {name: read(value, (*path, name)) for name, value in node.items()}
        try:
            return read_leaf(node)
        except ValueError as error:
            raise ValueError(f"{'/'.join(path)}: {error}") from None

    return QueueTree({topic: read(node, (topic,)) for topic, node in tree.items()})


def read_offset(value: Any) -> int:
    """Parse one offset: a number, -2 or `earliest`, -1 or `latest`."""
    if isinstance(value, str):
        word = OFFSET_WORDS.get(value.strip().lower())
        if word is not None:
            return word
        try:
            value = int(value)
        except ValueError:
            raise ValueError(f"{value!r} is not an offset: expected a number, earliest or latest") from None
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
        raise ValueError(f"{value!r} is not an offset: expected a number, -2 for earliest or -1 for latest")
    return value
