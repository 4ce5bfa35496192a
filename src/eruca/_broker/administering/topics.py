"""Creating, changing and deleting topics, and cleaning up after them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from eruca._broker.administering.stats import Stats
from eruca._broker.groups.locks import QueueLocks
from eruca._broker.groups.offsets import Offsets
from eruca._broker.groups.progress import find_ends, read_time_at
from eruca._broker.options import LiveOptions
from eruca._broker.popping.redelivery import Redelivery
from eruca._broker.pulling.query import LEFT_OVER_REMARK
from eruca._broker.refusals import refuse, refuse_topic_name
from eruca._broker.standing import Standing
from eruca._broker.topics import Topics
from eruca._ground.limits import OPERATORS_MAX, TOPIC_QUEUES_MAX
from eruca._net.handlers import HandlerTable, Reply, Request, Result, encode_apart
from eruca._net.turns import Slices, find_turns
from eruca._store.background import StoreBackground
from eruca._store.messagestore import MessageStore
from eruca._store.tables.saving import TableSaver
from eruca._wire.bodies import MessageQueue, TopicConfig, TopicList, TopicOffset, TopicStatsTable
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import CreateTopicHeader, EmptyHeader
from eruca._wire.names import FORBIDDEN_TO_SEND, POP_TOPIC, TIMER_TOPIC

log = logging.getLogger(__name__)

_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
_PERM_MAX = 15
# An operator's clean-up runs while there is something to delete, but not forever.
_PASSES_MAX = 20


class Operators:
    """Counts requests that wait for a topic or group change to be saved and announced; bounded to limit memory."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._count = 0

    def refuse_on_slave(self) -> None:
        """Refuse changes on a slave."""
        if not self._standing.writable:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
            )

    def check(self) -> None:
        """Refuse a change on a slave, or when too many changes are waiting."""
        self.refuse_on_slave()
        if self._count >= OPERATORS_MAX:
            refuse(ResponseCode.SYSTEM_BUSY, f"{self._count} changes are waiting for the disk, try again later")

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Count a request while it waits."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


@dataclass(frozen=True, slots=True, eq=False)
class TopicHandlers:
    """Handles operator requests about topics."""

    _options: LiveOptions
    _store: MessageStore
    _background: StoreBackground
    _topics: Topics
    _offsets: Offsets
    _stats: Stats
    _saver: TableSaver
    _locks: QueueLocks
    _operators: Operators
    # Registers the broker again, and waits for the name servers.
    _tell_nameservers: Callable[[], Awaitable[None]]
    _popping: Redelivery

    def register(self, table: HandlerTable) -> None:
        """Register the handlers."""
        table.add(RequestCode.UPDATE_AND_CREATE_TOPIC, self.put)
        table.add(RequestCode.DELETE_TOPIC_IN_BROKER, self.delete)
        table.add_long(RequestCode.GET_ALL_TOPIC_CONFIG, self.list_all)
        table.add(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self.list_own)
        table.add_long(RequestCode.GET_TOPIC_STATS_INFO, self.describe)
        table.add(RequestCode.CLEAN_UNUSED_TOPIC, self.clean_unused)
        table.add(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, self.clean_queues)
        table.add(RequestCode.DELETE_EXPIRED_COMMITLOG, self.clean_log)

    # -- changing -----------------------------------------------------------------------------------------------------

    def put(self, request: Request) -> Result:
        """Create a topic or change its settings. As in Java, replies once the name servers know it too."""
        self._operators.check()
        header: CreateTopicHeader = request.header
        self._check_name(header.topic)
        for key, value in (("readQueueNums", header.read_queue_nums), ("writeQueueNums", header.write_queue_nums)):
            if not 0 <= value <= TOPIC_QUEUES_MAX:
                refuse(ResponseCode.SYSTEM_ERROR, f"{key}[{value}] is illegal, the range is 0 to {TOPIC_QUEUES_MAX}")
        if not 0 <= header.perm <= _PERM_MAX:
            refuse(ResponseCode.SYSTEM_ERROR, f"perm[{header.perm}] is illegal, 4 is read, 2 is write")
        if header.topic_filter_type not in _FILTER_TYPES:
            refuse(ResponseCode.SYSTEM_ERROR, f"topicFilterType[{header.topic_filter_type}] is not a filter type")
        known = self._topics.get(header.topic)
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            # Name servers know which topics are ordered; the request does not say.
            order=known is not None and known.order,
        )
        if config != known:
            log.info("topic %s was %s by %s", header.topic, "changed" if known else "created", request.link.peer)
        self._topics.put(config)
        # A oneway request gets no reply, so there is nothing to wait for.
        return None if request.command.is_oneway else self._answer_when_told()

    async def _answer_when_told(self) -> Reply:
        with self._operators.wait():
            # A change that was reported as done must survive a crash.
            await self._saver.wait_until_saved("topics")
            turns = find_turns(asyncio.get_running_loop())
            await turns.take_part()
            await self._tell_nameservers()
            await turns.take_part()
        return Reply(remark=LEFT_OVER_REMARK)

    async def delete(self, request: Request) -> Reply:
        """Delete a topic: its settings, queues, offsets, locks and statistics; records stay until they expire."""
        self._operators.check()
        topic: str = request.header.topic
        self._check_name(topic)
        log.info("topic %s was deleted by %s", topic, request.link.peer)
        self._topics.delete(topic)
        with self._operators.wait():
            await self._forget(topic)
            await self._saver.wait_until_saved("topics")
        return Reply()

    async def _forget(self, topic: str) -> None:
        self._offsets.remove_topic(topic)
        self._stats.remove_topic(topic)
        self._locks.remove_topic(topic)
        self._popping.forget(topic=topic)
        await self._background.remove_topic(topic)

    def _check_name(self, topic: str) -> None:
        """Refuse invalid names and names of system topics, with Java's remarks."""
        refuse_topic_name(topic, self._store.options.topic_bytes_max)
        if self._topics.is_system(topic):
            refuse(ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic.")

    # -- looking ------------------------------------------------------------------------------------------------------

    async def list_all(self, request: Request) -> Reply:
        """Return the settings of all topics."""
        return Reply(EmptyHeader(), await encode_apart(request, self._topics.snapshot()))

    def list_own(self, request: Request) -> Reply:
        """List the system topics."""
        topics = self._topics
        # 4.9 has no timer topic, so it is listed only once it is used. What is in flight is nobody's business.
        unused = {POP_TOPIC} if topics.get(TIMER_TOPIC) is not None else {TIMER_TOPIC, POP_TOPIC}
        return Reply(body=TopicList(topic_list=sorted((topics.own | FORBIDDEN_TO_SEND) - unused)))

    async def describe(self, request: Request) -> Reply:
        """Return the offsets of a topic's queues."""
        name: str = request.header.topic
        topic = self._topics.get(name)
        if topic is None:
            refuse(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        store, broker = self._store, self._options.now.name
        table = TopicStatsTable()
        slices = Slices()
        for queue_id in range(topic.write_queue_nums):
            first, end = find_ends(store, name, queue_id)
            table.offset_table[MessageQueue(broker, queue_id, name)] = TopicOffset(
                last_update_timestamp=read_time_at(store, name, queue_id, end - 1) if end else 0,
                max_offset=end,
                min_offset=first,
            )
            await slices.rest()
        return Reply(body=await encode_apart(request, table))

    # -- cleaning up --------------------------------------------------------------------------------------------------

    async def clean_unused(self, request: Request) -> Reply:
        """Delete the queues of topics that no longer exist."""
        self._operators.refuse_on_slave()  # it may not know all topics yet; it follows the deletions of its master
        topics = self._topics
        # The broker keeps queues for system topics that have no settings.
        unused = {queue.topic for queue in self._store.queues if topics.get(queue.topic) is None}
        for topic in sorted(unused):
            if not topics.is_system(topic) and topics.get(topic) is None:
                log.info("deleting the queues of %s: the topic does not exist", topic)
                await self._forget(topic)
        return Reply()

    async def clean_queues(self, request: Request) -> Reply:
        """Delete queue files whose messages are all gone."""
        count = await self._background.clean_derived()
        log.info("%d queue and index files deleted for %s", count, request.link.peer)
        return Reply()

    async def clean_log(self, request: Request) -> Reply:
        """Delete expired segments of the log now, whatever the hour."""
        passes = 0
        while passes < _PASSES_MAX and await self._background.retain(asked=True):
            passes += 1
        return Reply()
