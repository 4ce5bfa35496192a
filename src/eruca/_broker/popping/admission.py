"""Which pops a broker accepts, with the codes and remarks that clients know from pulls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eruca._broker.groups.groups import Groups
from eruca._broker.options import LiveOptions
from eruca._broker.popping.contract import PopRequest
from eruca._broker.popping.poplog import PopLog
from eruca._broker.pulling.pull import refuse_expression
from eruca._broker.pulling.subscriptions import TAG, PullFilters
from eruca._broker.refusals import FAQ, refuse
from eruca._broker.standing import Standing
from eruca._broker.topics import Topics
from eruca._filter.tags import ExpressionError
from eruca._store.reading.slices import Filter
from eruca._wire.codes import ResponseCode
from eruca._wire.names import READ, RETRY_PREFIX, name_pop_retry

#: The longest time for which a message is invisible: Java's clients allow 12 hours, and its broker no limit.
INVISIBLE_MS_MAX: Final = 30 * 24 * 3_600_000


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """Checks requests."""

    _options: LiveOptions
    _standing: Standing
    _topics: Topics
    _groups: Groups
    _filters: PullFilters
    _log: PopLog

    def check_master(self) -> None:
        """Refuse on a broker that cannot write down what is in flight."""
        if not self._standing.writable or not self._log.is_open:
            refuse(ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now, this broker is not the master")

    def check_pop(self, request: PopRequest) -> None:
        """Refuse a pop whose group or topic may not be read, or whose numbers are out of range."""
        options = self._options.now
        self.check_master()
        if not options.permission & READ:
            refuse(ResponseCode.NO_PERMISSION, f"the broker[{options.host}] pop message is forbidden")
        self._check_topic(request)
        group = self._groups.get(request.group)
        if group is None:
            refuse(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{request.group}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            refuse(ResponseCode.NO_PERMISSION, f"subscription group no permission, {request.group}")
        if request.count <= 0:
            refuse(ResponseCode.SYSTEM_ERROR, f"maxMsgNums[{request.count}] is illegal")
        if request.invisible_ms <= 0:
            refuse(ResponseCode.SYSTEM_ERROR, f"invisibleTime[{request.invisible_ms}] is illegal")
        self.check_invisible(request.invisible_ms)
        self._check_retry_topic(request)

    def _check_topic(self, request: PopRequest) -> None:
        topic = self._topics.get(request.topic)
        if topic is None:
            refuse(ResponseCode.TOPIC_NOT_EXIST, f"topic[{request.topic}] not exist, apply first please! {FAQ}")
        if not topic.perm & READ:
            refuse(ResponseCode.NO_PERMISSION, f"the topic[{request.topic}] pop message is forbidden")
        if not -1 <= request.queue_id < topic.read_queue_nums:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}]",
            )
        if request.topic.startswith(RETRY_PREFIX):
            refuse(ResponseCode.SYSTEM_ERROR, f"topic[{request.topic}] is popped with the topic of its messages")

    def _check_retry_topic(self, request: PopRequest) -> None:
        group, topic = request.group, request.topic
        name = name_pop_retry(group, topic)
        if len(name) > self._topics.name_length_max:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"the names of group [{group}] and topic [{topic}] are too long for popping: the topic {name} has "
                f"{len(name)} characters, the maximum is {self._topics.name_length_max}",
            )
        if self._groups.find(f"{group}_{topic}") is not None:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"group [{group}] cannot pop topic [{topic}] while there is a group [{group}_{topic}]: both have the "
                f"retry topic {name}",
            )

    @staticmethod
    def check_invisible(invisible_ms: int) -> None:
        """Refuse a time for which a message cannot be invisible."""
        if not 0 <= invisible_ms <= INVISIBLE_MS_MAX:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"invisibleTime[{invisible_ms}] is illegal, the maximum is {INVISIBLE_MS_MAX} ms",
            )

    async def find_filter(self, request: PopRequest) -> Filter | None:
        """Return what accepts the messages of a request; None accepts all."""
        kind, text = request.filter_kind or TAG, request.filter_text or "*"
        if kind != TAG and not self._options.now.property_filter:
            refuse(ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}")
        try:
            if self._filters.takes_long(kind, text):
                await self._filters.prepare(kind, text)
            return self._filters.get(kind, text).accept
        except ExpressionError as error:
            raise refuse_expression(error) from None
