"""Client requests besides sending and pulling: heartbeats, groups, offsets."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from eruca._broker.groups.clients import Clients
from eruca._broker.groups.groups import Groups
from eruca._broker.groups.offsets import Offsets
from eruca._broker.options import LiveOptions
from eruca._broker.pulling.subscriptions import TAG, PullFilters
from eruca._broker.refusals import refuse
from eruca._broker.replication.readlimit import ReadLimit
from eruca._broker.topics import Topics
from eruca._filter.tags import ExpressionError
from eruca._net.answers import InOrder
from eruca._net.handlers import HandlerTable, Reply, Request, Result
from eruca._net.turns import Slices
from eruca._store.messagestore import MessageStore
from eruca._store.queues.consumequeue import ConsumeQueue
from eruca._wire.bodies import CheckClientBody, ConsumerData, HeartbeatData, ProducerData
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import CommittedOffsetHeader, EmptyHeader, OffsetAnswerHeader, TimestampAnswerHeader
from eruca._wire.names import check_group, check_label
from eruca.errors import InvalidName, RequestRefused, TableFull

# Heartbeats with more groups are handled in slices.
_GROUPS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, eq=False)
class ClientHandlers:
    """Handles heartbeats and requests about groups and offsets."""

    _options: LiveOptions
    _store: MessageStore
    _topics: Topics
    _groups: Groups
    _offsets: Offsets
    _clients: Clients
    _reads: ReadLimit
    _filters: PullFilters

    def register(self, table: HandlerTable) -> None:
        """Register the handlers."""
        table.add(RequestCode.HEART_BEAT, self.take_heartbeat)
        table.add(RequestCode.UNREGISTER_CLIENT, self.unregister)
        table.add(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self.list_consumers)
        table.add(RequestCode.CHECK_CLIENT_CONFIG, self.check_config)
        table.add(RequestCode.QUERY_CONSUMER_OFFSET, self.query_offset)
        table.add(RequestCode.UPDATE_CONSUMER_OFFSET, self.update_offset)
        table.add(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self.search_offset)
        table.add(RequestCode.GET_MAX_OFFSET, self.get_max_offset)
        table.add(RequestCode.GET_MIN_OFFSET, self.get_min_offset)
        table.add(RequestCode.GET_EARLIEST_MSG_STORETIME, self.get_earliest_time)

    # -- members -----------------------------------------------------------------------------------------------------

    def take_heartbeat(self, request: Request) -> Result:
        """Register a client as a member of its groups."""
        data: HeartbeatData | None = request.body
        if data is None:
            refuse(ResponseCode.SYSTEM_ERROR, "the heartbeat has no body")
        check_label("client id", data.client_id)
        if len(data.consumer_data_set) + len(data.producer_data_set) > _GROUPS_AT_ONCE:
            return InOrder(self._take_many(request, data))
        problems = [self._take_consumer(request, data, consumer) for consumer in data.consumer_data_set]
        problems += [self._take_producer(request, data, producer) for producer in data.producer_data_set]
        return _answer_heartbeat(problems)

    async def _take_many(self, request: Request, data: HeartbeatData) -> Reply:
        """Handle a heartbeat with very many groups: in slices, and before the client's next request."""
        slices = Slices()
        problems: list[str] = []
        for consumer in data.consumer_data_set:
            problems.append(self._take_consumer(request, data, consumer))
            await slices.rest()
        for producer in data.producer_data_set:
            problems.append(self._take_producer(request, data, producer))
            await slices.rest()
        return _answer_heartbeat(problems)

    def _take_consumer(self, request: Request, data: HeartbeatData, consumer: ConsumerData) -> str:
        """Register a member of a consumer group; return what is wrong, if anything."""
        command, link, name = request.command, request.link, consumer.group_name
        if not link.is_open:
            return ""  # it has closed meanwhile, and a member registered now would never be removed
        try:
            check_group(name)
            _check_subscriptions(consumer)
            group = self._groups.get(name)
            if group is not None:
                # A group's name may be longer than a topic's; such a group can consume, but has no retries.
                with suppress(InvalidName):
                    self._topics.retry_topic(name, group.retry_queue_nums)
        except (InvalidName, TableFull) as error:
            return str(error)
        self._clients.register_consumer(consumer, link, data.client_id, command.language, command.version)
        return ""

    def _take_producer(self, request: Request, data: HeartbeatData, producer: ProducerData) -> str:
        """Register a member of a producer group; return what is wrong, if anything."""
        command, link, name = request.command, request.link, producer.group_name
        try:
            check_label("producer group", name)
            if link.is_open:
                self._clients.register_producer(name, link, data.client_id, command.language, command.version)
        except InvalidName as error:
            return str(error)
        except RequestRefused as error:
            return error.remark
        return ""

    def unregister(self, request: Request) -> Reply:
        """Remove a client from its groups."""
        header = request.header
        self._clients.unregister(request.link, header.client_id, header.producer_group, header.consumer_group)
        return Reply(EmptyHeader())

    def list_consumers(self, request: Request) -> Reply:
        """List the client ids of a group."""
        name = request.header.consumer_group
        group = self._clients.consumer(name)
        if group is None or not group.members:
            return Reply(EmptyHeader(), code=ResponseCode.SYSTEM_ERROR, remark=f"no consumer for this group, {name}")
        return Reply(EmptyHeader(), group.encode_ids())

    async def check_config(self, request: Request) -> Reply:
        """Check whether the broker can read an expression."""
        body: CheckClientBody | None = request.body
        if body is None:
            return Reply()
        data = body.subscription_data
        if data.expression_type in (None, "", TAG):
            return Reply()
        if not self._options.now.property_filter:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {data.expression_type}",
            )
        try:
            if data.sub_string is not None and self._filters.takes_long(data.expression_type, data.sub_string):
                await self._filters.prepare(data.expression_type, data.sub_string)
            else:
                self._filters.get(data.expression_type, data.sub_string)
        except ExpressionError as error:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return Reply()

    # -- offsets -----------------------------------------------------------------------------------------------------

    def query_offset(self, request: Request) -> Reply:
        """Return the offset of a group; 0 for a new group on a queue that still has its first message."""
        header = request.header
        offset = self._offsets.get(header.consumer_group, header.topic, header.queue_id)
        if offset >= 0:
            end = self._store.queues.find_end(header.topic, header.queue_id)
            done = self._offsets.get_done(header.consumer_group, header.topic, header.queue_id, end)
            return Reply(CommittedOffsetHeader(offset=offset, eruca_done=done or None))
        queue = self._queue(header.topic, header.queue_id)
        if queue is None or queue.min_offset <= 0:
            return Reply(CommittedOffsetHeader(offset=0))
        return Reply(
            EmptyHeader(),
            code=ResponseCode.QUERY_NOT_FOUND,
            remark="Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )

    def update_offset(self, request: Request) -> Reply:
        """Commit an offset, and which messages behind it are done."""
        header = request.header
        self._offsets.commit(
            header.consumer_group, header.topic, header.queue_id, header.commit_offset, header.eruca_done or ""
        )
        return Reply(EmptyHeader())

    def search_offset(self, request: Request) -> Reply:
        """Return the offset at a store time, limited to the readable range: a later offset may get another message."""
        header = request.header
        offset = self._store.reader.find_offset(header.topic, header.queue_id, header.timestamp)
        reads = self._reads
        if reads.is_bounding:
            offset = min(offset, reads.find_max(self._queue(header.topic, header.queue_id)))
        return Reply(OffsetAnswerHeader(offset=offset))

    def get_max_offset(self, request: Request) -> Reply:
        """Return the end of the readable part of a queue."""
        queue = self._queue(request.header.topic, request.header.queue_id)
        return Reply(OffsetAnswerHeader(offset=self._reads.find_max(queue)))

    def get_min_offset(self, request: Request) -> Reply:
        """Return the start of a queue."""
        queue = self._queue(request.header.topic, request.header.queue_id)
        return Reply(OffsetAnswerHeader(offset=0 if queue is None else queue.min_offset))

    def get_earliest_time(self, request: Request) -> Reply:
        """Return the store time of the first message in a queue."""
        time_ms = self._store.reader.earliest_time(request.header.topic, request.header.queue_id)
        return Reply(TimestampAnswerHeader(timestamp=time_ms))

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._store.queues.get(topic, queue_id)


def _answer_heartbeat(problems: list[str]) -> Reply:
    """Refuse a heartbeat with problems; its valid groups have been registered."""
    found = next(filter(None, problems), None)
    if found is not None:
        refuse(ResponseCode.SYSTEM_ERROR, found)
    return Reply()


def _check_subscriptions(consumer: ConsumerData) -> None:
    """Raise InvalidName for a subscription whose topic is not a valid name. The connection limits their lengths."""
    for item in consumer.subscription_data_set:
        check_label("topic of a subscription", item.topic)
