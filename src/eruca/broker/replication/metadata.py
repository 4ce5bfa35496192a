"""What a slave copies besides the log: topics, groups, how far consumers are, and how far delayed delivery is.

A Java master is asked for all of it every ten seconds, as its own slaves do. An Eruca says with its state how new each
table is, so it is asked often and for what is new only.

A table may be ahead of the log. A master that has delivered a delayed message, or has seen what became of a half, says
so before the slave has the record that shows it; becoming the master then, it would never do it again. So what such a
table says counts only when the log has arrived that the master had at that moment.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from eruca.broker.options import FAST_PORT_BELOW, BrokerRole
from eruca.broker.parts import Parts
from eruca.broker.schedule import Schedule
from eruca.broker.timing import Timing
from eruca.errors import ErucaError, NetError, RequestRefused, WireError
from eruca.net.caller import Caller
from eruca.net.handlers import expect_success
from eruca.wire.bodies import (
    ConsumerOffsets,
    DataVersions,
    DelayOffsets,
    GroupConfigTable,
    JsonBody,
    ReplicationState,
    TopicConfigTable,
)
from eruca.wire.catalog import decode_answer
from eruca.wire.codes import RequestCode, ResponseCode
from eruca.wire.frame import make_request
from eruca.wire.headers import EmptyHeader, ReplicationStateHeader
from eruca.wire.names import SLAVE

log = logging.getLogger(__name__)

Body = TypeVar("Body", bound=JsonBody)

_CALL_MS = 5000
# A Java master is asked this often, and first when its slave has had a moment to connect.
_JAVA_INTERVAL_S = 10.0
_JAVA_FIRST_S = 3.0
# A master that is there gives its tables within this time, and one that is not must not hold up its successor.
_LAST_S = 0.5
# Copying may take a fiftieth of the time, if the tables are large: the master writes them on its loop.
_COPY_SHARE = 50


class OnJava(Protocol):
    """What is told of a Java master."""

    def __call__(self, address: str, *, is_sync: bool) -> None:
        """Take note of it."""


class _Ahead(NamedTuple):
    """Tables that count when the log has a position."""

    position: int
    offsets: ConsumerOffsets | None
    delays: DelayOffsets | None


def seal(body: bytes) -> str:
    """What stands beside a state, so that a slave does not cut its log because a digit changed on its way."""
    return f"crc32 {zlib.crc32(body)}"


async def ask_state(
    caller: Caller, address: str, timeout_ms: int = _CALL_MS, *, check: tuple[int, int] = (0, 0)
) -> ReplicationState | None:
    """How a broker stands to the others of its name; None when it is no Eruca. Raises ErucaError.

    `check` is a part of the log whose CRC is wanted too.
    """
    command = make_request(RequestCode.REPLICATION_STATE, ReplicationStateHeader(*check))
    answer = await caller.call(address, command, timeout_ms)
    # The words too: a digit that changed on its way must not make a Java broker of it.
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and (answer.remark or "").endswith("not supported"):
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(answer.code, f"broker {address} does not tell its state: {answer.remark}")
    if answer.remark != seal(answer.body):
        raise WireError(f"what broker {address} said of its state is damaged")
    state = decode_answer(RequestCode.REPLICATION_STATE, answer)[1]
    if not isinstance(state, ReplicationState):
        raise WireError(f"broker {address} answers without its state")
    return state


class Metadata:
    """Keeps the tables of a slave as its master's are."""

    def __init__(
        self,
        parts: Parts,
        caller: Caller,
        schedule: Schedule,
        timing: Timing,
        find_master: Callable[[], tuple[str, str]],
    ) -> None:
        self._parts = parts
        self._caller = caller
        self._schedule = schedule
        self._timing = timing
        self._find_master = find_master
        # Told the state of the master whenever it was asked.
        self.on_state: Callable[[ReplicationState], None] = lambda _: None
        # Told the address of a Java master, and whether it waits for slaves.
        self.on_java: OnJava = lambda address, *, is_sync: None
        # Whom the tables were copied from, and how new they were.
        self._source = ("", 0)
        self._seen = DataVersions(topics=-1, groups=-1, offsets=-1, delays=-1)
        self._java_at = 0.0
        self._ahead: _Ahead | None = None
        self._is_failing = False
        # Messages before this position are of topics that the table has, or that were deleted.
        self.topics_position = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to copy."""
        if self._task is None:
            self._source = ("", 0)
            self._ahead = None
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End; what has arrived with the log by now still counts."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        self._take_ahead()

    async def copy_last(self) -> None:
        """Copy once more from a master that has stopped for this slave to take over; it may be gone already."""
        await self.stop()
        try:
            async with asyncio.timeout(_LAST_S):
                await self.copy()
        except (ErucaError, TimeoutError) as error:
            log.info("the master does not give its tables any more: %s", error)

    async def _run(self) -> None:
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await self.copy()
            except ErucaError as error:
                # The same trouble again and again is said once; the link says it too.
                log.log(
                    logging.DEBUG if self._is_failing else logging.WARNING,
                    "topics, groups and offsets were not copied: %s",
                    error,
                )
                self._is_failing = True
            except Exception:
                # A mistake of ours must not end the copying for good.
                log.exception("topics, groups and offsets were not copied")
            else:
                self._is_failing = False
            spent = asyncio.get_running_loop().time() - started
            interval_s = self._parts.options.ha_metadata_ms / 1000
            await asyncio.sleep(max(interval_s, min(spent * _COPY_SHARE, _JAVA_INTERVAL_S)))

    # -- copying -----------------------------------------------------------------------------------------------------

    async def copy(self) -> None:
        """Copy what is new, if the master is there. Raises ErucaError."""
        address = self._find_master()[0]
        if not address or address == self._parts.options.address:
            return
        self._take_ahead()
        state = await ask_state(self._caller, address)
        if state is None:
            await self._copy_from_java(address)
            return
        # A master that was fenced still has what its slaves need before one of them takes over.
        if state.role == SLAVE or state.epoch < self._parts.store.replication.seen_epoch:
            raise NetError(f"broker {address} is not the master to copy from: {state.role}, epoch {state.epoch}")
        own = self._parts.store.replication.store_id
        if state.store_id != own:
            # The log comes first: with it a slave takes the identity of its master's store, or refuses to follow.
            if not own:
                return
            raise NetError(f"broker {address} is of another store than this one")
        self.on_state(state)
        if self._source != (address, state.epoch):
            # Another mastership counts anew.
            self._source = (address, state.epoch)
            self._seen = DataVersions(topics=-1, groups=-1, offsets=-1, delays=-1)
            self._ahead = None
        seen, now = self._seen, state.versions
        if now.topics != seen.topics:
            await self._copy_topics(address)
            seen.topics = now.topics
        if now.groups != seen.groups:
            await self._copy_groups(address)
            seen.groups = now.groups
        if self._ahead is None and (now.offsets, now.delays) != (seen.offsets, seen.delays):
            await self._fetch_ahead(address, now)

    async def _fetch_ahead(self, address: str, now: DataVersions) -> None:
        """Fetch what may be ahead of the log, and only then ask how long that is."""
        seen, offsets, delays = self._seen, None, None
        if now.offsets != seen.offsets:
            offsets = await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsets)
        if now.delays != seen.delays:
            delays = await self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsets)
        after = await ask_state(self._caller, address)
        if after is None or (address, after.epoch) != self._source:
            return
        self._ahead = _Ahead(after.tail, offsets, delays)
        seen.offsets, seen.delays = now.offsets, now.delays
        self._take_ahead()

    def _take_ahead(self) -> None:
        """Let tables count whose log has arrived."""
        ahead = self._ahead
        if ahead is None or self._parts.store.commitlog.readable_end < ahead.position:
            return
        self._ahead = None
        if ahead.offsets is not None:
            self._adopt_offsets(ahead.offsets)
        if ahead.delays is not None:
            self._adopt_delays(ahead.delays)

    async def _copy_from_java(self, address: str) -> None:
        now = asyncio.get_running_loop().time()
        if self._source != (address, 0):
            self._source = (address, 0)
            self._java_at = now + _JAVA_FIRST_S
        if now < self._java_at:
            return
        self._java_at = now + _JAVA_INTERVAL_S
        host, _, port = address.rpartition(":")
        await self._copy_topics(f"{host}:{int(port) - FAST_PORT_BELOW}")
        self._adopt_offsets(await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsets))
        self._adopt_delays(await self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsets))
        await self._copy_groups(address)
        await self._ask_mode(address)

    async def _ask_mode(self, address: str) -> None:
        """Learn whether a Java master waits for slaves: whoever takes over from it promises the same."""
        try:
            answer = await self._caller.call(address, make_request(RequestCode.GET_BROKER_CONFIG), _CALL_MS)
            _, options = decode_answer(RequestCode.GET_BROKER_CONFIG, expect_success(answer))
        except ErucaError as error:
            log.debug("master %s does not show its options: %s", address, error)
            return
        if isinstance(options, dict) and "brokerRole" in options:
            self.on_java(address, is_sync=options["brokerRole"].strip() == BrokerRole.SYNC_MASTER.value)

    async def _ask(self, address: str, code: RequestCode, kind: type[Body]) -> Body:
        answer = await self._caller.call(address, make_request(code, EmptyHeader()), _CALL_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, f"master {address} refused {code.name}: {answer.remark}")
        body = decode_answer(code, answer)[1]
        if not isinstance(body, kind):
            raise NetError(f"master {address} answered {code.name} without a table")
        return body

    # -- taking over -------------------------------------------------------------------------------------------------

    async def _copy_topics(self, address: str) -> None:
        """Copy the topics. The queues of one that was deleted stay: should it be made again, the log tells that."""
        before = self._parts.store.commitlog.readable_end
        table = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigTable)
        if table.data_version != self._parts.topics.data_version:
            self._parts.topics.replace(table)
        self.topics_position = before

    async def _copy_groups(self, address: str) -> None:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        groups = self._parts.groups
        table = await self._ask(address, code, GroupConfigTable)
        if table.data_version != groups.data_version:
            groups.replace(table)

    def _adopt_offsets(self, table: ConsumerOffsets) -> None:
        # They are saved with all others, in intervals.
        self._parts.offsets.merge(table)

    def _adopt_delays(self, table: DelayOffsets) -> None:
        if table.eruca_timer is not None:
            self._timing.inherit(table.eruca_timer)
        self._schedule.adopt(table.offset_table)
