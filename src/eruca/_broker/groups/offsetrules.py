"""Which offsets a broker accepts: only those of possible groups and queues."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._broker.groups.groups import Groups
from eruca._broker.options import LiveOptions
from eruca._broker.refusals import refuse
from eruca._broker.topics import Topics
from eruca._ground.limits import RECORD_TOPIC_BYTES_MAX, TOPIC_QUEUES_MAX
from eruca._store.messagestore import MessageStore
from eruca._wire.codes import ResponseCode
from eruca._wire.names import RETRY_PREFIX, check_group, check_topic


@dataclass(frozen=True, slots=True, eq=False)
class OffsetRules:
    """Checks the first offset of a group in a queue."""

    _options: LiveOptions
    _groups: Groups
    _topics: Topics
    _store: MessageStore

    def check(self, group: str, topic: str, queue_id: int) -> None:
        """Refuse a first offset unless both the group and the queue are possible here.

        As in Java, neither of them has to exist: a consumer may be faster than the creation of its retry topic, and a
        deleted topic may still be read to its end.
        """
        options = self._options.now
        check_group(group)
        check_topic(topic, RECORD_TOPIC_BYTES_MAX)
        if self._groups.find(group) is None and not options.auto_create_group:
            refuse(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group}] does not exist")
        if self._store.queues.get(topic, queue_id) is not None:
            return
        config = self._topics.get(topic)
        if config is None and not options.auto_create_topic and not topic.startswith(RETRY_PREFIX):
            refuse(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        most = TOPIC_QUEUES_MAX if config is None else max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= queue_id < most:
            refuse(ResponseCode.SYSTEM_ERROR, f"queueId[{queue_id}] is illegal, topic {topic} has {most} queues")
