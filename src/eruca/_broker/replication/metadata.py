"""What a slave copies besides the log: topics, groups, consumer offsets, and the progress of delayed delivery.

A Java master is asked for all of it every ten seconds, as by its own slaves. An Eruca broker reports the version of
each table with its state, so it is asked often, and only for what changed.

A table may be ahead of the log. A master that has delivered a delayed message, or completed a half message, reports
that before the slave has the corresponding record; if the slave became the master then, it would never do it again. So
such a table takes effect only when the slave has the log up to where the master's ended at that moment.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from eruca._broker.options import FAST_PORT_BELOW, BrokerOptions, BrokerRole
from eruca._broker.replication.agreeing import FindMaster
from eruca._broker.replication.asking import MemberCaller, ask_state
from eruca._broker.replication.members import KnownMembers
from eruca._broker.replication.tables import CopiedTables
from eruca._broker.standing import Standing
from eruca._ground.repeating import Repeating
from eruca._ground.signals import Signal
from eruca._net.handlers import expect_success
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import (
    ConsumerOffsets,
    DataVersions,
    DelayOffsets,
    GroupConfigTable,
    JsonBody,
    ReplicationState,
    TopicConfigTable,
)
from eruca._wire.catalog import decode_answer
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.headers import EmptyHeader
from eruca._wire.names import SLAVE
from eruca.errors import ErucaError, NetError, RequestRefused

log = logging.getLogger(__name__)

Body = TypeVar("Body", bound=JsonBody)

_CALL_MS = 5000
# A Java master is asked this often, and for the first time after its slave has had a moment to connect.
_JAVA_INTERVAL_S = 10.0
_JAVA_FIRST_S = 3.0
# A working master returns its tables within this time; one that is down must not delay its successor.
_LAST_S = 0.5
# With large tables, copying may take a fiftieth of the time: the master encodes them on its event loop.
_COPY_SHARE = 50


class _Ahead(NamedTuple):
    """Tables that take effect when the log reaches a position."""

    position: int
    offsets: ConsumerOffsets | None
    delays: DelayOffsets | None


@dataclass(eq=False)
class Metadata:
    """Keeps the tables of a slave in sync with its master's."""

    _options: BrokerOptions
    _standing: Standing
    _store: MessageStore
    _tables: CopiedTables
    _members: KnownMembers
    _caller: MemberCaller
    _find_master: FindMaster

    def __post_init__(self) -> None:
        #: Called with the master's state whenever it was requested.
        self.asked: Signal[ReplicationState] = Signal()
        # The broker that the tables were copied from, and their versions.
        self._source = ("", 0)
        self._seen = DataVersions(topics=-1, groups=-1, offsets=-1, delays=-1)
        self._java_at = 0.0
        self._ahead: _Ahead | None = None
        # Messages before this position belong to topics in the table, or to deleted ones.
        self.topics_position = 0
        self._interval_s = self._options.ha_metadata_ms / 1000
        # Repeated errors are logged once; the link to the master logs them too.
        self._copying = Repeating(
            "copying topics, groups and offsets",
            self._copy_turn,
            lambda: self._interval_s,
            at_once=True,
            level=logging.WARNING,
        )

    def start(self) -> None:
        """Start copying."""
        if not self._copying.is_running:
            self._source = ("", 0)
            self._ahead = None
            self._copying.start()

    async def stop(self) -> None:
        """Stop; tables whose log has arrived by now still take effect."""
        if self._copying.is_running:
            await self._copying.stop()
            self._take_ahead()

    async def copy_last(self) -> None:
        """Copy once more from a master that stopped so that this slave can take over; it may be gone already."""
        await self.stop()
        try:
            async with asyncio.timeout(_LAST_S):
                await self.copy()
        except (ErucaError, TimeoutError) as error:
            log.info("cannot copy the tables of the master any more: %s", error)

    async def _copy_turn(self) -> float:
        """Copy once; return how long to wait until the next time."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        await self.copy()
        return max(self._interval_s, min((loop.time() - started) * _COPY_SHARE, _JAVA_INTERVAL_S))

    # -- copying -----------------------------------------------------------------------------------------------------

    async def copy(self) -> None:
        """Copy what changed, if there is a master. Raises ErucaError."""
        address = self._find_master()[0]
        if not address or address == self._standing.address:
            return
        self._take_ahead()
        state = await ask_state(self._caller, address)
        if state is None:
            await self._copy_from_java(address)
            return
        # A fenced master still has what its slaves need before one of them takes over.
        if state.role == SLAVE or state.epoch < self._store.lineage.seen_epoch:
            raise NetError(f"broker {address} is not the expected master: {state.role}, epoch {state.epoch}")
        own = self._store.lineage.store_id
        if state.store_id != own:
            # The log comes first: with it a slave adopts the identity of its master's store, or refuses to follow.
            if not own:
                return
            raise NetError(f"broker {address} has a different store than this broker")
        self.asked.tell(state)
        if self._source != (address, state.epoch):
            # Versions start anew with another mastership.
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
        """Fetch the tables that may be ahead of the log, and only then the end of the log."""
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
        """Apply tables whose log has arrived."""
        ahead = self._ahead
        if ahead is None or self._store.log.readable_end < ahead.position:
            return
        self._ahead = None
        if ahead.offsets is not None:
            self._tables.take_offsets(ahead.offsets)
        if ahead.delays is not None:
            self._tables.take_delays(ahead.delays)

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
        self._tables.take_offsets(await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsets))
        self._tables.take_delays(await self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsets))
        await self._copy_groups(address)
        await self._ask_mode(address)

    async def _ask_mode(self, address: str) -> None:
        """Find out whether a Java master waits for slaves: its successor must keep the same promise."""
        try:
            answer = await self._caller.plain.call(address, make_request(RequestCode.GET_BROKER_CONFIG), _CALL_MS)
            _, options = decode_answer(RequestCode.GET_BROKER_CONFIG, expect_success(answer))
        except ErucaError as error:
            log.debug("cannot read the options of master %s: %s", address, error)
            return
        if isinstance(options, dict) and "brokerRole" in options:
            self._members.hear_java(is_sync=options["brokerRole"].strip() == BrokerRole.SYNC_MASTER.value)

    async def _ask(self, address: str, code: RequestCode, kind: type[Body]) -> Body:
        answer = await self._caller.call(address, make_request(code, EmptyHeader()), _CALL_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, f"master {address} refused {code.name}: {answer.remark}")
        body = decode_answer(code, answer)[1]
        if not isinstance(body, kind):
            raise NetError(f"master {address} responded to {code.name} without a table")
        return body

    async def _copy_topics(self, address: str) -> None:
        before = self._store.log.readable_end
        self._tables.take_topics(await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigTable))
        self.topics_position = before

    async def _copy_groups(self, address: str) -> None:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        self._tables.take_groups(await self._ask(address, code, GroupConfigTable))
