"""The topics of a broker: the table, the rules for creating topics, and the changes to register."""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from typing import Any, Final

import msgspec

from eruca._broker.options import LiveOptions
from eruca._broker.standing import Standing
from eruca._broker.tableroom import TableRoom
from eruca._ground.clock import Clock
from eruca._ground.limits import TOPIC_BYTES_MAX
from eruca._ground.signals import Signal
from eruca._wire.bodies import DataVersion, TopicConfig, TopicConfigTable
from eruca._wire.names import (
    BENCHMARK_TOPIC,
    DLQ_PREFIX,
    FORBIDDEN_TO_SEND,
    HALF_TOPIC,
    INHERIT,
    OFFSET_MOVED_TOPIC,
    READ,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
    TEMPLATE_TOPIC,
    WRITE,
    check_topic,
)

log = logging.getLogger(__name__)

# Maximum bytes of one topic in the table besides its name, which occurs twice: with every number at its longest.
_TOPIC_BYTES: Final = 200


class Topics:
    """The table of topics."""

    def __init__(
        self,
        options: LiveOptions,
        standing: Standing,
        clock: Clock,
        table: TopicConfigTable,
        *,
        name_length_max: int = TOPIC_BYTES_MAX,
    ) -> None:
        self._options = options.now
        self._standing = standing
        self._clock = clock
        #: The longest name of a new topic.
        self.name_length_max = name_length_max
        self.data_version = table.data_version
        self._topics: dict[str, TopicConfig] = dict(table.topic_config_table)
        #: Return the settings of a topic, None if there is none. Every send calls it.
        self.get: Final[Callable[[str], TopicConfig | None]] = self._topics.get
        #: Notified of every change.
        self.changed: Signal[()] = Signal()
        #: Notified of every topic that is created, after `changed`.
        self.created: Signal[str] = Signal()
        #: Counts the changes of this run; name servers are sent what changed since the revision they know.
        self.revision = 0
        # When each topic last changed, the latest at the end, and when all of them did.
        self._changed_at: dict[str, int] = {}
        self._all_changed_at = 0
        #: Topics not in the saved table yet, and when they were created: sends to them wait for the disk.
        self.unsaved: dict[str, int] = {}
        self._saving = 0
        self._add_own()
        self._bytes = sum(map(_weigh, self._topics))
        self._room = TableRoom("topics", options, "topics_max", self._measure, log)

    def _add_own(self) -> None:
        """Create the topics that every broker has."""
        options = self._options
        inherit = READ | WRITE | INHERIT
        own: list[tuple[str, int, int]] = [
            (SELF_TEST_TOPIC, 1, READ | WRITE),
            (BENCHMARK_TOPIC, 1024, READ | WRITE),
            (options.cluster, 16, inherit if options.cluster_topic else READ | WRITE),
            (options.name, 1, inherit if options.broker_topic else READ | WRITE),
            (OFFSET_MOVED_TOPIC, 1, READ | WRITE),
            (SCHEDULE_TOPIC, 18, READ | WRITE),
            (self.reply_topic, 1, READ | WRITE),
        ]
        if options.auto_create_topic:
            own.append((TEMPLATE_TOPIC, options.topic_queue_nums, inherit))
        if options.trace_topic:
            own.append((options.trace_topic_name, 1, READ | WRITE))
        for name, queues, perm in own:
            self._topics.setdefault(name, _make(name, queues, perm))
        self.own = frozenset([name for name, _, _ in own]) | {HALF_TOPIC, options.trace_topic_name, TEMPLATE_TOPIC}

    @property
    def reply_topic(self) -> str:
        """The topic for replies to request messages."""
        return f"{self._options.cluster}_REPLY_TOPIC"

    def __len__(self) -> int:
        return len(self._topics)

    def names(self) -> list[str]:
        """List every topic."""
        return list(self._topics)

    def is_system(self, topic: str) -> bool:
        """Whether it is a topic that operators can neither create nor delete."""
        return topic in self.own or topic in FORBIDDEN_TO_SEND or topic.startswith(SYSTEM_PREFIX)

    def snapshot(self) -> TopicConfigTable:
        """Return the table as it is saved and registered."""
        return self.make_table(dict(self._topics))

    def make_table(self, topics: dict[str, TopicConfig]) -> TopicConfigTable:
        """Return a table of some topics with the version of the whole."""
        version = DataVersion(counter=self.data_version.counter, timestamp=self.data_version.timestamp)
        return TopicConfigTable(data_version=version, topic_config_table=topics)

    def snapshot_to_save(self) -> TopicConfigTable:
        """Return the table for the disk; call `note_saved` once it is written."""
        self._saving = self.revision
        return self.snapshot()

    def note_saved(self) -> None:
        """The last snapshot is on disk: sends no longer wait for its topics."""
        self.unsaved = {name: made_at for name, made_at in self.unsaved.items() if made_at > self._saving}

    def list_changes(self, revision: int) -> dict[str, TopicConfig] | None:
        """Return the topics that changed after a revision; None if all may have."""
        if revision < self._all_changed_at:
            return None
        changes: dict[str, TopicConfig] = {}
        for name, changed_at in reversed(self._changed_at.items()):
            if changed_at <= revision:
                break
            changes[name] = self._topics[name]
        return changes

    def put(self, config: TopicConfig) -> TopicConfig:
        """Create or change a topic. Raises InvalidName, or TableFull if the table is full."""
        name = config.topic_name
        check_topic(name, self.name_length_max)
        is_new = name not in self._topics
        if is_new:
            size = _weigh(name)
            self._room.check(f"topic {name} cannot be created", 1, size)
            self._bytes += size
        self._topics[name] = config
        self._advance()
        self._changed_at.pop(name, None)
        self._changed_at[name] = self.revision
        if is_new:
            self.unsaved[name] = self.revision
        self.changed.tell()
        if is_new:
            self.created.tell(name)
        return config

    def mark_ordered(self, ordered: Set[str]) -> None:
        """Mark these topics as ordered, and no others."""
        for config in [each for name, each in self._topics.items() if each.order != (name in ordered)]:
            self.put(msgspec.structs.replace(config, order=not config.order))

    def _measure(self) -> tuple[int, int]:
        return len(self._topics), self._bytes

    def delete(self, topic: str) -> bool:
        """Delete a topic; return False if there was none."""
        if self._topics.pop(topic, None) is None:
            return False
        self._bytes -= _weigh(topic)
        self._changed_at.pop(topic, None)
        self.unsaved.pop(topic, None)
        self._advance()
        self.changed.tell()
        return True

    def replace(self, table: TopicConfigTable) -> None:
        """Replace the table with a master's."""
        known = set(self._topics)
        self._topics.clear()
        self._topics.update(table.topic_config_table)
        self._bytes = sum(map(_weigh, self._topics))
        self.data_version = table.data_version
        self._note_all_changed()
        self.unsaved = {name: self.revision for name in self._topics if name not in known or name in self.unsaved}
        self.changed.tell()

    def renew(self) -> None:
        """Mark the table as new, so that name servers accept all of it from a broker that just became a master."""
        self._advance()
        self._note_all_changed()
        self.changed.tell()

    def _advance(self) -> None:
        self.revision += 1
        self.data_version = DataVersion(counter=self.data_version.counter + 1, timestamp=self._clock.now_ms())

    def _note_all_changed(self) -> None:
        self.revision += 1
        self._all_changed_at = self.revision
        self._changed_at.clear()

    # -- automatic creation ------------------------------------------------------------------------------------------

    def create_for_send(self, topic: str, template_name: str, queue_nums: int) -> TopicConfig | None:
        """Create a topic on a send, from its template; return None if there is no template to inherit from."""
        template = self._topics.get(template_name)
        if template is None or not template.perm & INHERIT:
            return None
        if template_name == TEMPLATE_TOPIC and not self._options.auto_create_topic:
            return None
        queues = max(0, min(queue_nums, template.write_queue_nums))
        log.info("topic %s created with %d queues from template %s", topic, queues, template_name)
        perm, kind = template.perm & ~INHERIT, template.topic_filter_type
        return self.put(_make(topic, queues, perm, topic_filter_type=kind))

    def create_internal(self, topic: str, queues: int, perm: int = READ | WRITE, sys_flag: int = 0) -> TopicConfig:
        """Return the topic, created if needed: retry, dead letter and transaction topics need no template."""
        found = self._topics.get(topic)
        if found is not None:
            return found
        made = _make(topic, queues, perm, topic_sys_flag=sys_flag)
        # Only the master creates topics.
        return made if self._standing.is_slave else self.put(made)

    def adopt(self, topic: str, queues: int) -> None:
        """Add a topic that has messages in the store but is missing from the table: a crash came before the save."""
        if topic not in self._topics:
            log.warning("topic %s has messages but no settings; creating it again with %d queues", topic, queues)
            self.put(_make(topic, queues, READ | WRITE))

    def retry_topic(self, group: str, queues: int) -> TopicConfig:
        """Return the retry topic of a group."""
        return self.create_internal(RETRY_PREFIX + group, queues)

    def dead_letter_topic(self, group: str) -> TopicConfig:
        """Return the dead letter topic of a group."""
        return self.create_internal(DLQ_PREFIX + group, 1)


def _make(name: str, queues: int, perm: int, **more: Any) -> TopicConfig:
    """Return a topic with as many read queues as write queues."""
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm, **more)


def _weigh(topic: str) -> int:
    """Return the maximum bytes of a topic in the table."""
    return 2 * len(topic) + _TOPIC_BYTES
