"""One session per process and cluster: connections, routes and heartbeats for its members.

Producers and consumers with equal options on one event loop share a session. A second consumer of the same group gets
a separate session, because the members of a group are told apart by their client ids.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import secrets
from collections import Counter, defaultdict
from collections.abc import Coroutine
from typing import Any

from eruca._client.options import ClientOptions, check_nameservers
from eruca._client.session.calls import Calls
from eruca._client.session.members import ConsumerMember, Members, ProducerMember
from eruca._client.session.outages import Outages
from eruca._client.session.routes import Routes
from eruca._client.session.uploads import Uploads
from eruca._ground.backoff import Backoff, spread
from eruca._ground.clock import SystemClock
from eruca._ground.durations import to_ms, to_seconds
from eruca._ground.repeating import Repeating
from eruca._net.addresses import NameServers
from eruca._net.caller import Caller
from eruca._net.handlers import HandlerTable
from eruca._net.tls import OutgoingTls
from eruca._wire.ids import UniqueIds
from eruca._wire.names import INNER_PRODUCER_GROUP, MASTER_ID
from eruca._wire.signature import Credentials
from eruca.errors import ClientClosed, ErucaError

log = logging.getLogger(__name__)

_JITTER = 0.1
# The shortest time between two urgent heartbeats.
_HURRY_S = 0.2
# How soon routes are fetched again while a broker has no master; never later than the usual interval.
_LOOKS = Backoff(1.0, math.inf)
# How soon a missing topic is looked up again. A consumer that waits for it may miss its creation for this long.
_MISSES = Backoff(1.0, 5.0, factor=1.1)


class Session:
    """Connections, routes and heartbeats, shared by producers and consumers."""

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self.loop = asyncio.get_running_loop()
        self.clock = SystemClock()
        # Process ids repeat across containers, and addresses behind bridges; the random part does not.
        self.client_id = f"{options.ip}@{os.getpid()}#{secrets.token_hex(8)}"
        self.unique_ids = UniqueIds(options.ip, os.getpid(), self.clock)
        self.members = Members(self.spawn)
        table = HandlerTable()
        self.members.register(table)
        credentials = None
        if options.access_key:
            credentials = Credentials(options.access_key, options.secret_key, options.security_token)
        self.caller = Caller(
            table.handlers,
            tls=OutgoingTls.choose(options.tls),
            credentials=credentials,
            calls_max=options.calls_max,
            on_close=self._on_connection_lost,
        )
        self.call_timeout_s = to_seconds("call_timeout", options.call_timeout)
        call_timeout_ms = to_ms("call_timeout", options.call_timeout)
        self.calls = Calls(self.caller, call_timeout_ms)
        self.outages = Outages()
        nameservers = NameServers(options.nameservers, options.address_server)
        check_nameservers("NAMESRV_ADDR", ";".join(nameservers.addresses))
        self.routes = Routes(self.calls, nameservers, call_timeout_ms, self.outages)
        self.routes.on_change.append(self._on_route_change)
        self.uploads = Uploads(self.calls)
        self._users = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        # How often connections to each broker were lost. After that it may be another process with a shorter log.
        self._losses: Counter[str] = Counter()
        # How many times in a row routes were fetched because of a lost master, or of a missing topic.
        self._looks = 0
        self._missed = 0
        heartbeat_s = to_seconds("heartbeat_interval", options.heartbeat_interval)
        route_s = self._route_s = to_seconds("route_interval", options.route_interval)
        # Sends heartbeats to brokers that do not know this client, whenever there may be some.
        self._greeting = Repeating(
            "the first heartbeat to brokers", self._greet_strangers, lambda: math.inf, retry_s=_HURRY_S
        )
        # If a broker has lost its master, routes are fetched sooner than usual.
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
        # Heartbeats and unregistrations to one broker take turns: a Java broker handles them in different threads, and
        # a heartbeat that overtakes an unregistration leaves a ghost member in the group, whose queues nobody reads.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # Addresses of brokers that are known to have our latest heartbeat.
        self._greeted: set[str] = set()
        # Addresses that were waited for once, whether they answered or not.
        self._tried: set[str] = set()
        self._groups_version = 0
        self._key: tuple[Any, ...] = ()
        # When the last heartbeats went out, for callers that check whether they are starved.
        self.last_heartbeat = 0.0

    # -- sharing -----------------------------------------------------------------------------------------------------

    @classmethod
    def acquire(cls, options: ClientOptions, *, consumer_group: str = "") -> Session:
        """Return a session for a new producer or consumer; return it with `release`."""
        loop = asyncio.get_running_loop()
        # The loop itself, not its id: an id may be reused after an object is gone.
        key = (loop, os.getpid(), options)
        # A copy, because loops in other threads add and remove their sessions in the same dictionary.
        for other in list(_SESSIONS):
            if other[0].is_closed():
                _SESSIONS.pop(other, None)  # left behind by a program that did not close its clients
        for session in _SESSIONS.setdefault(key, []):
            if not consumer_group or consumer_group not in session.members.consumers:
                break
        else:
            session = cls(options)
            session._key = key
            _SESSIONS[key].append(session)
            session._start()
        session._users += 1
        return session

    def check_loop(self) -> None:
        """Check that the session is used in the event loop it was created in. Raises ClientClosed."""
        running = asyncio._get_running_loop()
        if running is not self.loop and running is not None:  # plain functions may be called in any thread
            what = "an event loop that has ended" if self.loop.is_closed() else "another event loop"
            raise ClientClosed(
                f"the client was started in {what}",
                hint="use one asyncio.run() for everything, close the client before its loop ends, or use eruca.sync",
            )

    def is_lost(self) -> bool:
        """Return whether its event loop ended before it was released; then nothing in it can be closed anymore."""
        if not self.loop.is_closed():
            return False
        log.warning("a client was not closed before its event loop ended; work in progress is lost")
        return True

    async def release(self) -> None:
        """Release the session; the last release closes it."""
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
        """Run a coroutine in the background until it is done or the session closes."""
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
        self.members.add_producer(producer)
        self._forget_greetings()
        # Do not wait for the regular heartbeats: brokers send checks and replies only to clients they know.
        self._greeting.wake()

    def add_consumer(self, consumer: ConsumerMember) -> None:
        """Announce a consumer group with the next heartbeats."""
        self.members.add_consumer(consumer)
        self._forget_greetings()

    def _forget_greetings(self) -> None:
        """Our groups changed: what brokers know, including from heartbeats under way, is out of date."""
        self._groups_version += 1
        self._greeted.clear()
        self._tried.clear()

    async def remove_producer(self, producer: ProducerMember) -> None:
        """Leave a producer group, unless another producer of this session is in it."""
        if self.members.remove_producer(producer):
            await self._unregister_everywhere(producer=producer.group)
            if self.members.producers:
                # When one group is unregistered, a Java broker forgets where to send the replies for all groups of a
                # client, and it learns this again only from a group that is new to it.
                await self._unregister_everywhere(producer=INNER_PRODUCER_GROUP)
                await self.heartbeat()

    async def remove_consumer(self, consumer: ConsumerMember) -> None:
        """Leave a consumer group."""
        if self.members.remove_consumer(consumer):
            await self._unregister_everywhere(consumer=consumer.group)

    async def _unregister_everywhere(self, *, producer: str = "", consumer: str = "") -> None:
        async def unregister(address: str) -> None:
            async with self._turns[address]:
                try:
                    await self.calls.unregister(address, self.client_id, producer=producer, consumer=consumer)
                except ErucaError as error:
                    log.info("could not unregister from %s, which will notice on its own: %s", address, error)

        # Slaves too: they know about consumer groups.
        known = {address for by_id in self.routes.list_brokers().values() for address in by_id.values()}
        addresses = [address for address in known if self.caller.is_connected(address)]
        await asyncio.gather(*[unregister(address) for address in addresses])

    # -- heartbeats --------------------------------------------------------------------------------------------------

    async def heartbeat(self, addresses: set[str] | None = None) -> None:
        """Send a heartbeat to all brokers, or to these, and wait for their answers."""
        if not self.members:
            return
        self.last_heartbeat = asyncio.get_running_loop().time()
        targets = self._list_heartbeat_addresses() if addresses is None else addresses
        # The caller may be cancelled, but a heartbeat under way must finish: its turn ends with its answer.
        await asyncio.gather(*[asyncio.shield(self.spawn(self._beat(address))) for address in targets])

    async def _beat(self, address: str) -> None:
        async with self._turns[address]:
            data, version = self.members.describe(self.client_id), self._groups_version
            if not data.producer_data_set:
                return  # there is always one if there are consumers
            try:
                await self.calls.heartbeat(address, data)
            except ErucaError as error:
                self._greeted.discard(address)
                self.outages.report(log, address, error, "heartbeat to broker %s failed: %s", address, error)
            else:
                self.outages.end(address)
                if version == self._groups_version:
                    self._greeted.add(address)

    async def greet(self, address: str) -> None:
        """Make sure that a broker has had a heartbeat since our groups last changed."""
        if address not in self._greeted:
            await self.heartbeat({address})

    async def greet_all(self) -> None:
        """Make sure that every known master has had a heartbeat; one that does not answer is waited for only once."""
        masters = {by_id[MASTER_ID] for by_id in self.routes.list_brokers().values() if MASTER_ID in by_id}
        if new := masters - self._greeted - self._tried:
            self._tried |= new
            await self.heartbeat(new)

    def _list_heartbeat_addresses(self) -> set[str]:
        found = set()
        for by_id in self.routes.list_brokers().values():
            for broker_id, address in by_id.items():
                # Slaves need not know clients that only send.
                if broker_id == MASTER_ID or self.members.consumers:
                    found.add(address)
        return found

    async def _greet_strangers(self) -> float | None:
        """Send a heartbeat to brokers that do not know this client; all others get theirs on time."""
        await self.heartbeat(self._list_heartbeat_addresses() - self._greeted)
        # A broker that accepts us and drops the connection again must not keep us busy.
        await asyncio.sleep(_HURRY_S)
        if self._has_strangers():
            # A broker that restarts takes a moment; the caller limits how often connecting is really tried.
            return random.uniform(0.0, 1.0 - _HURRY_S)
        return None

    def _has_strangers(self) -> bool:
        """Return whether some broker that should know our groups does not."""
        return bool(self.members and self._list_heartbeat_addresses() - self._greeted)

    async def _refresh_routes(self) -> float | None:
        await self.routes.refresh_all()
        if not self.routes.has_lost_master():
            self._looks = 0
            return None
        # A slave may take over, and clients are not notified of that. If none does, we check with increasing back-off.
        self._looks += 1
        return self._bound(_LOOKS.after(self._looks))

    async def _look_for_missing(self) -> float:
        """Look for topics that consumers wait for: often at first, then every few seconds."""
        await self.routes.refresh_missing()
        self._missed += 1
        if not self.routes.list_missing():
            self._missed = 0
            self.routes.wanted.clear()
            await self.routes.wanted.wait()
        return self._bound(_MISSES.after(self._missed))

    def _bound(self, pause_s: float) -> float:
        """Limit a pause before routes are fetched again to the regular interval."""
        return min(pause_s, spread(self._route_s, _JITTER))

    # -- events ------------------------------------------------------------------------------------------------------

    def count_losses(self, address: str) -> int:
        """Return how often connections to a broker were lost."""
        return self._losses[address]

    def _on_connection_lost(self, address: str) -> None:
        self._losses[address] += 1
        self.uploads.forget(server=address)
        if address in self._greeted:
            # The broker forgets us with the connection, so it needs a heartbeat before anything else works.
            self._greeted.discard(address)
            self._greeting.wake()

    def _on_route_change(self, topic: str) -> None:
        self._refreshing.look_again()
        if self._has_strangers():
            self._greeting.wake()
        self.members.wake_consumers()


# The sessions of this process, by event loop and options.
_SESSIONS: dict[tuple[Any, ...], list[Session]] = {}
