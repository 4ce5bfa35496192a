"""One session a process and cluster: connections, routes, heartbeats, and what brokers ask of us.

Producers and consumers with equal options on one event loop share a session. A second consumer of the same group gets
a session of its own, because a group tells its members apart by their client ids.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from eruca._client.options import ClientOptions, check_nameservers
from eruca._client.session.calls import Calls, Credentials
from eruca._client.session.outages import Outages
from eruca._client.session.routes import Routes
from eruca._client.session.uploads import Uploads
from eruca._ground.backoff import Backoff, spread
from eruca._ground.clock import Clock, SystemClock
from eruca._ground.durations import to_ms, to_seconds
from eruca._ground.repeating import Repeating
from eruca._net.addresses import NameServers
from eruca._net.caller import Caller
from eruca._net.handlers import HandlerTable, Reply, Request
from eruca._wire.bodies import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    HeartbeatData,
    MessageQueue,
    ProducerData,
    ResetOffsetBody,
)
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import CheckTransactionHeader, PushReplyHeader
from eruca._wire.ids import UniqueIds
from eruca._wire.names import INNER_PRODUCER_GROUP, MASTER_ID
from eruca._wire.properties import PGROUP
from eruca._wire.record import Record
from eruca.errors import ClientClosed, ErucaError, RequestRefused

log = logging.getLogger(__name__)

_JITTER = 0.1
# The least time between two heartbeats that cannot wait.
_HURRY_S = 0.2
# How soon routes are asked for again while a broker has no master: at most as seldom as at other times.
_LOOKS = Backoff(1.0, math.inf)
# How soon a topic that nobody knows is asked for again: who waits for it is deaf that long after it was made.
_MISSES = Backoff(1.0, 5.0, factor=1.1)


class ProducerMember(Protocol):
    """A producer as its session sees it."""

    group: str

    def check_transaction(self, address: str, header: CheckTransactionHeader, record: Record) -> bool:
        """The broker at `address` asks what became of a half message; False when this producer cannot say."""

    def take_reply(self, header: PushReplyHeader, body: bytes) -> bool:
        """A reply to a request message came; False when it is not ours."""


class ConsumerMember(Protocol):
    """A consumer as its session sees it."""

    group: str

    def describe(self) -> ConsumerData:
        """What the heartbeat says of it."""

    def wake(self) -> None:
        """The members of the group changed, or a route did: look again which queues are ours."""

    def describe_running(self, stacks: bool) -> ConsumerRunningInfo:
        """What it is doing, for the console."""

    async def consume_directly(self, record: Record, broker: str) -> ConsumeDirectlyResult:
        """Have its handler work on one message now."""

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """An operator moved the group: go on from these offsets."""

    def list_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far it is."""


class Session:
    """Connections, routes and heartbeats, shared by producers and consumers."""

    def __init__(self, options: ClientOptions, clock: Clock | None = None) -> None:
        self.options = options
        self.loop = asyncio.get_running_loop()
        self.clock = clock or SystemClock()
        # Process ids repeat in containers and addresses behind bridges; the random part does not.
        self.client_id = f"{options.ip}@{os.getpid()}#{secrets.token_hex(8)}"
        self.unique_ids = UniqueIds(options.ip, os.getpid(), self.clock)
        table = HandlerTable()
        self._register(table)
        self.caller = Caller(
            table.handlers, tls=options.tls, calls_max=options.calls_max, on_close=self._on_connection_lost
        )
        credentials = None
        if options.access_key:
            credentials = Credentials(options.access_key, options.secret_key, options.security_token)
        self.call_timeout_s = to_seconds("call_timeout", options.call_timeout)
        call_timeout_ms = to_ms("call_timeout", options.call_timeout)
        self.calls = Calls(self.caller, credentials, call_timeout_ms)
        self.outages = Outages()
        nameservers = NameServers(options.nameservers, options.address_server)
        check_nameservers("NAMESRV_ADDR", ";".join(nameservers.addresses))
        self.routes = Routes(self.calls, nameservers, call_timeout_ms, self.outages)
        self.routes.on_change.append(self._on_route_change)
        self.uploads = Uploads(self.calls)
        self.producers: dict[str, list[ProducerMember]] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self._users = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        # How often in a row routes were looked at because of a lost master, or of a topic that nobody knows.
        self._looks = 0
        self._missed = 0
        heartbeat_s = to_seconds("heartbeat_interval", options.heartbeat_interval)
        route_s = self._route_s = to_seconds("route_interval", options.route_interval)
        # Introduces us to brokers that do not know us, whenever there may be some.
        self._greeting = Repeating(
            "the first heartbeat to brokers", self._greet_strangers, lambda: math.inf, retry_s=_HURRY_S
        )
        # A broker that has no master any more is worth a look sooner than usual.
        self._refreshing = Repeating(
            "the refresh of routes",
            self._refresh_routes,
            lambda: 0.0 if self.routes.has_lost_master() else route_s,
            retry_s=_HURRY_S,
            jitter=_JITTER,
        )
        self._timers = [
            Repeating("the heartbeat", self.heartbeat, lambda: heartbeat_s, retry_s=_HURRY_S, jitter=_JITTER),
            self._greeting,
            self._refreshing,
            Repeating(
                "the search for missing topics", self._look_for_missing, lambda: route_s, at_once=True, retry_s=_HURRY_S
            ),
        ]
        # Heartbeats and farewells to one broker take turns: Java's works on them in different threads, and a heartbeat
        # that passes a farewell leaves a member in the group that nobody is, with queues that nobody reads.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # Broker addresses that know of us, as far as we know.
        self._greeted: set[str] = set()
        # Those that were waited for once, whether they answered or not.
        self._tried: set[str] = set()
        self._groups_version = 0
        self._key: tuple[Any, ...] = ()
        # When the last heartbeats went out, for those who look whether anything starves them.
        self.last_heartbeat = 0.0

    # -- sharing -----------------------------------------------------------------------------------------------------

    @classmethod
    def acquire(cls, options: ClientOptions, *, consumer_group: str = "", clock: Clock | None = None) -> Session:
        """A session for a new producer or consumer; give it back with `release`."""
        loop = asyncio.get_running_loop()
        # The loop and the clock themselves: the id of one that is gone may be that of another now.
        key = (loop, os.getpid(), clock, options)
        # A copy, which no other thread changes: loops in other threads have sessions of their own here.
        for other in list(_SESSIONS):
            if other[0].is_closed():
                _SESSIONS.pop(other, None)  # left behind by a program that did not close its clients
        for session in _SESSIONS.setdefault(key, []):
            if not consumer_group or consumer_group not in session.consumers:
                break
        else:
            session = cls(options, clock)
            session._key = key
            _SESSIONS[key].append(session)
            session._start()
        session._users += 1
        return session

    def check_loop(self) -> None:
        """Refuse to be used in another event loop than the one it was made in. Raises ClientClosed."""
        running = asyncio._get_running_loop()
        if running is not self.loop and running is not None:  # plain functions may be called in any thread
            what = "an event loop that has ended" if self.loop.is_closed() else "another event loop"
            raise ClientClosed(
                f"the client was started in {what}",
                hint="use one asyncio.run() for all, close the client before its loop ends, or take eruca.sync",
            )

    def is_lost(self) -> bool:
        """Has its event loop ended before it was released? Then nothing of it can be closed any more."""
        if not self.loop.is_closed():
            return False
        log.warning("a client was not closed before its event loop ended: what was under way is lost")
        return True

    async def release(self) -> None:
        """Give a session back; the last one closes it."""
        self._users -= 1
        if self._users > 0:
            return
        sessions = _SESSIONS.get(self._key, [])
        if self in sessions:
            sessions.remove(self)
        if not sessions:
            _SESSIONS.pop(self._key, None)
        await self._close()

    def _start(self) -> None:
        for timer in self._timers:
            timer.start()

    async def _close(self) -> None:
        for timer in self._timers:
            await timer.stop()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.caller.close()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something beside everything else until it is done or the session closes."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a background task of the client failed", exc_info=error)

    # -- groups ------------------------------------------------------------------------------------------------------

    def add_producer(self, producer: ProducerMember) -> None:
        """Announce a producer group with the next heartbeats."""
        self.producers.setdefault(producer.group, []).append(producer)
        self._forget_greetings()
        # Not only with the next heartbeats: brokers ask and bring replies only to those they know.
        self._greeting.wake()

    def add_consumer(self, consumer: ConsumerMember) -> None:
        """Announce a consumer group with the next heartbeats."""
        assert consumer.group not in self.consumers
        self.consumers[consumer.group] = consumer
        self._forget_greetings()

    def _forget_greetings(self) -> None:
        """Our groups changed: what brokers know of us, also by heartbeats on their way, is not all any more."""
        self._groups_version += 1
        self._greeted.clear()
        self._tried.clear()

    async def remove_producer(self, producer: ProducerMember) -> None:
        """Leave a producer group, unless another producer of ours is in it."""
        others = self.producers.get(producer.group, [])
        if producer in others:
            others.remove(producer)
        if not others:
            self.producers.pop(producer.group, None)
            await self._unregister_everywhere(producer=producer.group)
            if self.producers:
                # Java's broker forgets with one group where to bring the replies for all groups of a client, and
                # learns it again only from a group that is new to it.
                await self._unregister_everywhere(producer=INNER_PRODUCER_GROUP)
                await self.heartbeat()

    async def remove_consumer(self, consumer: ConsumerMember) -> None:
        """Leave a consumer group."""
        if self.consumers.get(consumer.group) is consumer:
            del self.consumers[consumer.group]
            await self._unregister_everywhere(consumer=consumer.group)

    async def _unregister_everywhere(self, *, producer: str = "", consumer: str = "") -> None:
        async def unregister(address: str) -> None:
            async with self._turns[address]:
                try:
                    await self.calls.unregister(address, self.client_id, producer=producer, consumer=consumer)
                except ErucaError as error:
                    log.info("not unregistered from %s, it will notice by itself: %s", address, error)

        # Slaves too: they knew of the group if it was one of consumers.
        known = {address for by_id in self.routes.list_brokers().values() for address in by_id.values()}
        addresses = [address for address in known if self.caller.is_connected(address)]
        await asyncio.gather(*[unregister(address) for address in addresses])

    # -- heartbeats --------------------------------------------------------------------------------------------------

    async def heartbeat(self, addresses: set[str] | None = None) -> None:
        """Tell brokers (all of them, or these) that we are alive, and wait for their answers."""
        if not self.consumers and not self.producers:
            return
        self.last_heartbeat = asyncio.get_running_loop().time()
        targets = self._list_heartbeat_addresses() if addresses is None else addresses
        # Whoever waits may be cancelled; the heartbeat is under way all the same, and its turn ends with its answer.
        await asyncio.gather(*[asyncio.shield(self.spawn(self._beat(address))) for address in targets])

    async def _beat(self, address: str) -> None:
        async with self._turns[address]:
            data, version = self._describe(), self._groups_version
            if not data.producer_data_set:
                return  # there are always some beside consumers
            try:
                await self.calls.heartbeat(address, data)
            except ErucaError as error:
                self._greeted.discard(address)
                self.outages.report(log, address, error, "no heartbeat to broker %s: %s", address, error)
            else:
                self.outages.end(address)
                if version == self._groups_version:
                    self._greeted.add(address)

    async def greet(self, address: str) -> None:
        """Make sure that a broker has heard of our groups since they changed last."""
        if address not in self._greeted:
            await self.heartbeat({address})

    async def greet_all(self) -> None:
        """Make sure that every master we know has heard of our groups; one that does not answer is waited for once."""
        masters = {by_id[MASTER_ID] for by_id in self.routes.list_brokers().values() if MASTER_ID in by_id}
        if new := masters - self._greeted - self._tried:
            self._tried |= new
            await self.heartbeat(new)

    def _describe(self) -> HeartbeatData:
        consumers = [consumer.describe() for consumer in self.consumers.values()]
        producers = [ProducerData(group_name=group) for group in self.producers]
        if producers or consumers:
            producers.append(ProducerData(group_name=INNER_PRODUCER_GROUP))
        return HeartbeatData(client_id=self.client_id, consumer_data_set=consumers, producer_data_set=producers)

    def _list_heartbeat_addresses(self) -> set[str]:
        found = set()
        for by_id in self.routes.list_brokers().values():
            for broker_id, address in by_id.items():
                # Slaves need not know those who only send.
                if broker_id == MASTER_ID or self.consumers:
                    found.add(address)
        return found

    async def _greet_strangers(self) -> float | None:
        """Tell the brokers that do not know us; all others get their heartbeats in time."""
        await self.heartbeat(self._list_heartbeat_addresses() - self._greeted)
        # A broker that takes us in and throws us out again must not keep us busy with it.
        await asyncio.sleep(_HURRY_S)
        if self._has_strangers():
            # A broker that restarts takes a moment; the caller bounds how often it is really tried.
            return random.uniform(0.0, 1.0 - _HURRY_S)
        return None

    def _has_strangers(self) -> bool:
        """Is there a broker that should know of our groups and does not?"""
        return bool((self.consumers or self.producers) and self._list_heartbeat_addresses() - self._greeted)

    async def _refresh_routes(self) -> float | None:
        await self.routes.refresh_all()
        if not self.routes.has_lost_master():
            self._looks = 0
            return None
        # A slave may take its place, and nobody tells us; if none does, we look less and less often.
        self._looks += 1
        return self._bound(_LOOKS.after(self._looks))

    async def _look_for_missing(self) -> float:
        """Ask for topics that a consumer waits for and nobody has made: often at first, and then every few seconds."""
        await self.routes.refresh_missing()
        self._missed += 1
        if not self.routes.list_missing():
            self._missed = 0
            self.routes.wanted.clear()
            await self.routes.wanted.wait()
        return self._bound(_MISSES.after(self._missed))

    def _bound(self, pause_s: float) -> float:
        """A pause before routes are asked for again: never longer than the interval in which they are asked for."""
        return min(pause_s, spread(self._route_s, _JITTER))

    # -- what happens ------------------------------------------------------------------------------------------------

    def _on_connection_lost(self, address: str) -> None:
        self.uploads.forget(server=address)
        if address in self._greeted:
            # The broker forgets us with the connection, so it must hear of us again before anything else works.
            self._greeted.discard(address)
            self._greeting.wake()

    def _on_route_change(self, topic: str) -> None:
        self._refreshing.look_again()
        if self._has_strangers():
            self._greeting.wake()
        for consumer in self.consumers.values():
            consumer.wake()

    # -- what brokers ask --------------------------------------------------------------------------------------------

    def _register(self, table: HandlerTable) -> None:
        handlers: dict[RequestCode, Callable[[Request], Reply | Awaitable[Reply | None] | None]] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._on_group_change,
            RequestCode.CHECK_TRANSACTION_STATE: self._on_transaction_check,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._on_reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._on_offsets_asked,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._on_running_info_asked,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._on_consume_directly,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._on_reply,
        }
        for code, handler in handlers.items():
            table.add(code, handler)

    def _on_group_change(self, request: Request) -> None:
        consumer = self.consumers.get(request.header.consumer_group)
        if consumer is not None:
            consumer.wake()

    def _on_transaction_check(self, request: Request) -> None:
        record: Record | None = request.body
        if record is None:
            return
        group = record.get_property(PGROUP) or ""
        for producer in self.producers.get(group, []):
            if producer.check_transaction(request.link.peer, request.header, record):
                return
        log.warning("a transaction of group %s is asked about, but nobody here can say what became of it", group)

    def _on_reset_offsets(self, request: Request) -> None:
        consumer = self.consumers.get(request.header.group)
        body: ResetOffsetBody | None = request.body
        if consumer is not None and body is not None:
            self.spawn(self._reset_offsets(consumer, request.header.topic, dict(body.offset_table)))

    async def _reset_offsets(self, consumer: ConsumerMember, topic: str, offsets: dict[MessageQueue, int]) -> None:
        try:
            await consumer.reset_offsets(topic, offsets)
        except ErucaError as error:
            log.warning("group %s could not go to the offsets an operator wished: %s", consumer.group, error)

    def _on_offsets_asked(self, request: Request) -> Reply:
        consumer = self._find_consumer(request.header.group)
        return Reply(body=ConsumerStatusBody(message_queue_table=consumer.list_offsets(request.header.topic)))

    def _on_running_info_asked(self, request: Request) -> Reply:
        consumer = self._find_consumer(request.header.consumer_group)
        return Reply(body=consumer.describe_running(bool(request.header.jstack_enable)))

    async def _on_consume_directly(self, request: Request) -> Reply:
        consumer = self._find_consumer(request.header.consumer_group)
        if request.body is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "there is no message to consume")
        return Reply(body=await consumer.consume_directly(request.body, request.header.broker_name or ""))

    def _on_reply(self, request: Request) -> Reply:
        body = request.body or b""
        for producers in self.producers.values():
            for producer in producers:
                if producer.take_reply(request.header, body):
                    return Reply()
        return Reply()

    def _find_consumer(self, group: str) -> ConsumerMember:
        consumer = self.consumers.get(group)
        if consumer is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")
        return consumer


# The sessions of this process by event loop and options.
_SESSIONS: dict[tuple[Any, ...], list[Session]] = {}
