"""Asking producers whether their half messages are committed or rolled back.

A pass at every interval walks the half queue (`eruca._core.transactions` decides, this module reads, writes and asks).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from eruca._broker.administering.stats import Stats
from eruca._broker.delaying.steadytime import SteadyTime
from eruca._broker.groups.clients import Clients, Member
from eruca._broker.groups.offsets import Offsets
from eruca._broker.options import LiveOptions
from eruca._broker.sending.stored import copy_message, read_message
from eruca._broker.standing import Standing
from eruca._broker.topics import Topics
from eruca._broker.transactions.decisions import Decisions
from eruca._broker.transactions.halves import make_copy, read_half, read_op
from eruca._core.transactions import (
    Action,
    CheckBack,
    CheckPass,
    Event,
    Finish,
    GiveUp,
    HalfMissing,
    HalfRead,
    HalvesEnded,
    Op,
    OpsRead,
    PassStarted,
    PutBack,
    ReadHalf,
    ReadOps,
    Rules,
    Stored,
    StoreRefused,
)
from eruca._ground.config import shorten
from eruca._ground.digits import read_digits
from eruca._ground.repeating import Repeating
from eruca._net.guards import Reporter
from eruca._net.link import Link
from eruca._store.messagestore import MessageStore
from eruca._store.queues.consumequeue import FILLER_SIZE
from eruca._store.reading.slices import ReadBounds, ReadStatus
from eruca._store.tables.saving import TableSaver
from eruca._wire.codes import RequestCode
from eruca._wire.frame import make_request
from eruca._wire.halves import HALF_QUEUE, PROGRESS_GROUP
from eruca._wire.headers import CheckTransactionHeader
from eruca._wire.ids import encode_offset_id
from eruca._wire.names import HALF_TOPIC, MAX_CHECK_TOPIC, OP_HALF_TOPIC
from eruca._wire.properties import PGROUP, REAL_QID, REAL_TOPIC, UNIQ_KEY, WAIT, encode_properties, parse_properties
from eruca._wire.record import Record, decode_record, encode_record
from eruca.errors import MessageIllegal, StoreError, WireError

log = logging.getLogger(__name__)

_HOUR_MS = 3_600_000
# Op records per read, and steps per loop iteration: about a millisecond each.
_OPS_READ_MAX = 128
_TURN_STEPS_MAX = 32


class CheckBackService:
    """Runs a pass at every interval while the broker is a master."""

    def __init__(
        self,
        options: LiveOptions,
        standing: Standing,
        store: MessageStore,
        sync: Callable[[], asyncio.Future[bool]],
        topics: Topics,
        offsets: Offsets,
        clients: Clients,
        stats: Stats,
        saver: TableSaver,
        steady: SteadyTime,
        decisions: Decisions,
        may_publish: Callable[[Link, str], bool],
    ) -> None:
        """`sync` syncs the store to disk; `may_publish` tells whether a client may publish to a topic."""
        self._options = options
        self._standing = standing
        self._store = store
        self._sync = sync
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._stats = stats
        self._saver = saver
        self._steady = steady
        self._decisions = decisions
        self._may_publish = may_publish
        given = options.now
        self._repeating = Repeating(
            "checking half messages", self.run_pass, lambda: given.transaction_check_interval_ms / 1000
        )
        self._turn = 0
        self._reporter = Reporter(log)
        # The half that is being decided; read once, used by the actions.
        self._message: Record | None = None
        #: Halves of the last pass whose group had no connected producer, and those given up since the start.
        self.orphans = 0
        self.given_up = 0
        self._orphans = 0

    def start(self) -> None:
        """Start; does nothing on a slave. Must run before the first message arrives."""
        # Earlier decisions may be at other offsets in the current log.
        self._decisions.forget()
        if not self._repeating.is_running and not self._standing.is_slave:
            for topic in (HALF_TOPIC, OP_HALF_TOPIC):
                self._correct(topic)
            self._repeating.start()

    async def stop(self) -> None:
        """Stop; the progress is saved with the consumer offsets."""
        await self._repeating.stop()

    async def run_pass(self) -> None:
        """Walk the half queue once."""
        options, offsets, steady = self._options.now, self._offsets, self._steady
        # As in Java, the topic exists (and tools list it) from the first pass on, not from the first half.
        self._topics.create_internal(HALF_TOPIC, 1)
        self._decisions.keep()
        machine = CheckPass(
            Rules(
                options.transaction_timeout_ms,
                options.transaction_check_max,
                self._store.options.retention_hours * _HOUR_MS,
            )
        )
        begin = (self._find_start(HALF_TOPIC), self._find_start(OP_HALF_TOPIC))
        action = machine.handle(PassStarted(*begin, self._store.log.tail), steady.now_ms())
        steps = self._orphans = 0
        while not isinstance(action, Finish):
            steps += 1
            # Only between two halves: a decision that arrives while a half is being processed would be missed.
            if steps >= _TURN_STEPS_MAX and isinstance(action, ReadHalf):
                steps = 0
                await asyncio.sleep(0)
            action = machine.handle(self._do(action), steady.now_ms())
        self.orphans = self._orphans
        # Otherwise a power loss could leave the progress past a half whose copy is lost, and it would stay unchecked.
        if (action.half_offset, action.op_offset) != begin and await self._sync():
            offsets.put(PROGRESS_GROUP, HALF_TOPIC, HALF_QUEUE, action.half_offset)
            offsets.put(PROGRESS_GROUP, OP_HALF_TOPIC, HALF_QUEUE, action.op_offset)
            # Not with the next save of offsets: a crash before that would cause the same halves to be checked twice.
            self._saver.mark("offsets")

    def count_halves(self) -> int:
        """Count the halves from the first undecided one on; some of them may be decided."""
        queue = self._store.queues.get(HALF_TOPIC, HALF_QUEUE)
        return 0 if queue is None else max(0, queue.max_offset - self._find_start(HALF_TOPIC))

    def _correct(self, topic: str) -> None:
        """Move the progress back to the end of its queue: a crash may have cost the queue its last entries.

        The next messages get those offsets, and would be skipped.
        """
        end = self._store.queues.find_end(topic, HALF_QUEUE)
        offset = self._offsets.get(PROGRESS_GROUP, topic, HALF_QUEUE)
        if offset > end:
            log.warning("%s was checked up to %d, but ends at %d", topic, offset, end)
            self._offsets.put(PROGRESS_GROUP, topic, HALF_QUEUE, end)

    def _find_start(self, topic: str) -> int:
        offset = self._offsets.get(PROGRESS_GROUP, topic, HALF_QUEUE)
        if offset >= 0:
            return offset
        queue = self._store.queues.get(topic, HALF_QUEUE)
        return 0 if queue is None else queue.min_offset

    def _do(self, action: Action) -> Event:
        """Execute an action of the state machine, and return the result."""
        match action:
            case ReadHalf(offset):
                return self._read_half(offset)
            case ReadOps(offset):
                return self._read_ops(offset)
            case Finish():
                raise ValueError("a pass that is finished has nothing more to do")
        message = self._message
        assert message is not None
        try:
            match action:
                case PutBack(half):
                    self._append(make_copy(message, half.root, waits=False))
                case CheckBack(half, checks):
                    self._ask(message, self._append(make_copy(message, half.root, checks=checks)))
                case GiveUp():
                    self._give_up(message)
        except MessageIllegal as error:
            # The properties have no room for one more. There will be no copy to decide, but the half can still be
            # decided.
            log.error("this is the last check of a half message: %s", error)
            self._ask(message, message)
        except StoreError as error:
            log.error("checking half messages is paused: %s", error)
            return StoreRefused()
        return Stored()

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read_half(self, offset: int) -> HalfRead | HalfMissing | HalvesEnded:
        queue = self._store.queues.get(HALF_TOPIC, HALF_QUEUE)
        if queue is None or offset == queue.max_offset:
            return HalvesEnded()
        if not queue.min_offset <= offset < queue.max_offset:
            log.warning("half messages were checked up to offset %d, which is outside their queue", offset)
            return HalfMissing(max(queue.min_offset, min(offset, queue.max_offset)))
        entry = queue.entry(offset)
        message = None if entry is None or entry.size == FILLER_SIZE else read_message(self._store, entry.position)
        if message is None:
            log.warning("the half message at offset %d cannot be read and is skipped", offset)
            return HalfMissing(offset + 1)
        self._message = message
        half = read_half(message, self._options.now.transaction_timeout_ms)
        # By the steady clock of the pass: setting the machine's clock does not make a half old, or young forever.
        stored_ms = self._steady.find_stored(half.position, message.store_timestamp)
        return HalfRead(replace(half, born_ms=half.born_ms - message.store_timestamp + stored_ms))

    def _read_ops(self, offset: int) -> OpsRead:
        result = self._store.reader.read(OP_HALF_TOPIC, HALF_QUEUE, offset, ReadBounds(_OPS_READ_MAX))
        if result.status is ReadStatus.NO_MATCHED_LOGIC_QUEUE:
            return OpsRead((), 0, True)
        ops: list[Op] = []
        for view in result.slices:
            try:
                ops.append(read_op(decode_record(view)))
            except WireError as error:
                log.warning("an op record is skipped: %s", error)
        return OpsRead(ops, result.next_offset, result.next_offset >= result.max_offset)

    # -- writing and asking ------------------------------------------------------------------------------------------

    def _append(self, message: Record) -> Record:
        stored = self._store.append(message)
        self._stats.on_own(stored.size)
        return stored

    def _give_up(self, message: Record) -> None:
        self._topics.create_internal(MAX_CHECK_TOPIC, 1)
        self._append(copy_message(message, MAX_CHECK_TOPIC, 0))
        self.given_up += 1
        group, half_id = _find_group(message), encode_offset_id(message.store_host, message.position)
        # Its sender chose the group: not a line for each half, and no long ones.
        self._reporter.report(
            f"given up {group}",
            f"the half message {half_id} of group {group} was undecided for too long and was moved to"
            f" {MAX_CHECK_TOPIC}",
        )

    def _ask(self, found: Record, copy: Record) -> None:
        """Ask a producer of the group; the response will name the copy."""
        group, topic = copy.get_property(PGROUP) or "", copy.get_property(REAL_TOPIC) or ""
        producer = self._choose_producer(group, topic)
        if producer is None:
            self._orphans += 1
            group = _find_group(copy)
            self._reporter.report(
                group, f"no producer of group {group} that may publish to {topic} is connected to check a half message"
            )
            return
        unique_id = copy.get_property(UNIQ_KEY)
        header = CheckTransactionHeader(
            half_offset=copy.queue_offset,
            position=copy.position,
            message_id=unique_id,
            transaction_id=unique_id,
            offset_message_id=encode_offset_id(copy.store_host, copy.position),
        )
        body = encode_record(_as_sent(found, copy))
        producer.link.notify(make_request(RequestCode.CHECK_TRANSACTION_STATE, header, body))

    def _choose_producer(self, group: str, topic: str) -> Member | None:
        """Choose a connected producer of the group, each in turn.

        Any account can call itself a producer of any group, but the question contains the whole message.
        """
        members = [
            member
            for member in self._clients.producers.get(group, {}).values()
            if member.link.is_open and self._may_publish(member.link, topic)
        ]
        if not members:
            return None
        self._turn += 1
        return members[self._turn % len(members)]


def _find_group(message: Record) -> str:
    """Return the group of the producer, shortened for the log."""
    return shorten(message.get_property(PGROUP) or "")


def _as_sent(found: Record, copy: Record) -> Record:
    """Return the half as its producer knows it: with its own topic and queue, but the position of the copy."""
    properties = parse_properties(copy.properties)
    sent = copy_message(
        copy,
        properties.get(REAL_TOPIC, copy.topic),
        read_digits(properties.get(REAL_QID)) or 0,
        encode_properties(properties | {WAIT: "false"}),
    )
    sent.queue_offset, sent.position = copy.queue_offset, copy.position
    sent.store_timestamp = found.store_timestamp
    return sent
