"""Pulling queues, one request after the other: what to ask for, when to wait, and how to handle each answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from eruca._client.group.inbox import Inbox, LastRead
from eruca._client.group.offsets import Progress
from eruca._client.group.settings import Flow
from eruca._client.group.subscriptions import TAG, Subscription
from eruca._client.session.calls import Calls, Pulled, PullStatus
from eruca._client.session.session import Session
from eruca._ground.backoff import spread
from eruca._ground.durations import to_ms, to_seconds
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import ResponseCode
from eruca._wire.headers import PullMessageHeader
from eruca._wire.names import MASTER_ID
from eruca._wire.properties import TAGS
from eruca._wire.record import Record
from eruca._wire.sysflag import PULL_CLASS_FILTER, PULL_SUBSCRIPTION, PULL_SUSPEND
from eruca.errors import ConnectFailed, ErucaError, NetError, RequestRefused

log = logging.getLogger(__name__)

_NOT_KNOWN_YET = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)

# A broker holds a pull that finds nothing. A broker that always answers at once would keep the client busy.
_FRUITLESS_MAX = 3
_HELD_S = 0.1


class Puller:
    """Pulls queues and passes on the messages."""

    def __init__(
        self,
        session: Session,
        group: str,
        flow: Flow,
        deliver: Callable[[Inbox, list[Record]], None],
        *,
        flags: int = 0,
        has_room: Callable[[], bool] | None = None,
        find_kept: Callable[[MessageQueue], Awaitable[Progress | None]] | None = None,
    ) -> None:
        self._session = session
        self._group = group
        self._flow = flow
        self._hold_ms = to_ms("Flow.hold", flow.hold)
        self._timeout_ms = to_ms("Flow.timeout", flow.timeout)
        self._error_pause_s = to_seconds("Flow.error_pause", flow.error_pause)
        self._interval_s = to_seconds("Flow.interval", flow.interval)
        self._deliver = deliver
        # Flags that this kind of consumer sets in every pull.
        self._flags = PULL_SUSPEND | flags
        # Returns whether more may be pulled, given all queues. After False, `changed` is set once there is room.
        self._has_room = has_room
        # What the group has committed; pulling continues there after a failover.
        self._find_kept = find_kept
        self.pulled_count = 0

    async def run(self, inbox: Inbox) -> None:
        """Pull a queue until it is dropped, whatever fails."""
        while inbox.is_ours():
            try:
                await self._pull_often(inbox)
            except Exception:
                log.exception("queue %s could not be pulled", inbox.queue)
                await asyncio.sleep(self._error_pause_s)

    async def _pull_often(self, inbox: Inbox) -> None:
        fruitless, outages = 0, self._session.outages
        while inbox.is_ours():
            if inbox.paused or self._is_full(inbox):
                if inbox.paused:
                    inbox.forget_done()  # much may happen to the log meanwhile
                inbox.changed.clear()
                await inbox.changed.wait()
                continue
            try:
                await self._check_master(inbox)
                pulled = await self.pull(inbox)
                if not await self._check_answer(inbox, pulled):
                    continue
            except ErucaError as error:
                await self._recover(inbox, error)
                continue
            inbox.trouble = ""
            if outages:
                outages.end(inbox.asked)
                outages.end(inbox.queue.broker_name)
            if not inbox.is_ours():
                return
            if inbox.is_paused():
                continue  # this pull was sent before the pause; it is sent again after it
            before = inbox.next_offset
            self._take(inbox, pulled)
            is_held = asyncio.get_running_loop().time() - inbox.last_pull >= _HELD_S
            is_moved = inbox.next_offset > before and pulled.status is not PullStatus.ILLEGAL_OFFSET
            fruitless = 0 if is_held or is_moved else fruitless + 1
            if fruitless > _FRUITLESS_MAX:
                await asyncio.sleep(min(_HELD_S, self._error_pause_s))
            if self._interval_s:
                await asyncio.sleep(self._interval_s)

    def _is_full(self, inbox: Inbox) -> bool:
        flow, process = self._flow, inbox.process
        if self._has_room is not None and not self._has_room():
            return True
        return (
            process.count > flow.count_max
            or process.bytes > flow.bytes_max
            or (flow.span_max is not None and process.span > flow.span_max)
        )

    async def _check_master(self, inbox: Inbox) -> None:
        """Check whether the master has been replaced by another broker, before pulling from it."""
        master = self._session.routes.find_address(inbox.queue.broker_name, only_this=True)
        if master is None or master == inbox.master:
            return
        # A broker that was read from as a slave has what was read.
        if inbox.master and inbox.source != master:
            await self._go_back(inbox, master)
        inbox.master = master

    async def _check_answer(self, inbox: Inbox, pulled: Pulled) -> bool:
        """Check whether an answer is from the log that was read before; False when the queue continues elsewhere."""
        if -1 < inbox.epoch < pulled.epoch and inbox.source != inbox.asked:
            await self._go_back(inbox, inbox.asked)
            inbox.epoch = pulled.epoch
            return False
        if inbox.process.expects_done:
            if inbox.epoch not in (-1, pulled.epoch):
                inbox.forget_done()
            inbox.check_done((inbox.asked, self._session.count_losses(inbox.asked)))
        inbox.epoch = max(inbox.epoch, pulled.epoch)
        # Only a broker that has everything that was read may get offsets for it.
        inbox.source = inbox.asked if pulled.max_offset >= inbox.next_offset else ""
        return True

    async def _go_back(self, inbox: Inbox, address: str) -> None:
        """Continue at the offset a new master has for the group, unless it has everything that was read.

        A slave may not have received the last messages that its old master delivered. As the new master, it assigns the
        same offsets to other messages, which a client that just continued would never see. The group offsets of a slave
        are never beyond its log, so only what was not committed, or not replicated to it, is read twice.
        """
        inbox.forget_done()
        if self._find_kept is None or await self._has_last(inbox, address):
            return
        kept = await self._find_kept(inbox.queue)
        if kept is not None and kept.offset < inbox.next_offset:
            log.warning(
                "the master of %s is %s now: continuing at %d, not at %d",
                inbox.queue,
                address,
                kept.offset,
                inbox.next_offset,
            )
            inbox.move(kept.offset)
            inbox.expect_done(kept.done, kept.source)

    async def _has_last(self, inbox: Inbox, address: str) -> bool:
        """Return whether a broker has the last message that was read: then its log is the same up to there."""
        last, queue = inbox.last, inbox.queue
        if last is None or last.queue_offset != inbox.next_offset - 1:
            return False
        calls, timeout_ms = self._session.calls, self._timeout_ms
        found = await peek(calls, address, self._group, queue, last.queue_offset, count_max=1, timeout_ms=timeout_ms)
        return bool(found) and LastRead.of(found[0]) == last

    async def pull(self, inbox: Inbox) -> Pulled:
        """Ask once."""
        session, queue = self._session, inbox.queue
        subscription = inbox.subscription
        address, flags = await find_source(session, self._group, queue, inbox.broker_id, subscription)
        header = PullMessageHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=inbox.next_offset,
            max_message_nums=self._flow.batch,
            sys_flag=self._flags | flags,
            # Java's clients commit with their pulls. A multi-threaded broker may apply that after it has answered a
            # later commit, and then deliver the messages between the two again to the next member.
            commit_offset=0,
            suspend_timeout_ms=self._hold_ms,
            subscription=subscription.text,
            subscription_version=subscription.version,
            expression_type=subscription.kind,
        )
        inbox.last_pull = asyncio.get_running_loop().time()
        inbox.asked = address
        pulled = await session.calls.pull(address, header, self._timeout_ms)
        inbox.broker_id = pulled.suggested_id
        return pulled

    def _take(self, inbox: Inbox, pulled: Pulled) -> None:
        if pulled.status is PullStatus.ILLEGAL_OFFSET:
            log.warning(
                "queue %s has no offset %d (it has %d to %d): continuing at %d",
                inbox.queue,
                inbox.next_offset,
                pulled.min_offset,
                pulled.max_offset,
                pulled.next_offset,
            )
            inbox.move(pulled.next_offset)
            return
        self.pulled_count += len(pulled.records)
        if pulled.records:
            inbox.last = LastRead.of(pulled.records[-1])
        records = keep_tagged(pulled.records, inbox.subscription)
        fresh = inbox.process.put(records) if records else records
        inbox.process.skip_to(pulled.next_offset)
        inbox.next_offset = pulled.next_offset
        if fresh:
            # In the next loop iteration, so that the next request is sent before handlers begin with this answer.
            asyncio.get_running_loop().call_soon(self._hand_over, inbox, fresh)

    def _hand_over(self, inbox: Inbox, fresh: list[Record]) -> None:
        if inbox.is_ours():  # it may have been revoked since the last iteration
            self._deliver(inbox, fresh)

    async def _recover(self, inbox: Inbox, error: ErucaError) -> None:
        """Try to recover from an error, and wait a moment."""
        self._report(inbox, error)
        session = self._session
        inbox.broker_id = MASTER_ID
        try:
            if inbox.subscription.class_filter is not None:
                # For any error: the filter server may be gone, or may have restarted without the filter class.
                session.uploads.forget(topic=inbox.queue.topic)
                await session.routes.refresh(inbox.queue.topic)
            elif isinstance(error, RequestRefused) and error.code in _NOT_KNOWN_YET:
                await session.heartbeat()
            elif isinstance(error, NetError):
                await session.routes.refresh(inbox.queue.topic)
        except ErucaError as other:
            log.debug("the recovery failed too: %s", other)
        await asyncio.sleep(spread(self._error_pause_s, 0.5))

    def _report(self, inbox: Inbox, error: ErucaError) -> None:
        """Log an error once, however often it repeats in a row."""
        words = ("queue %s could not be pulled: %s", inbox.queue, error)
        if isinstance(error, NetError):
            address = self._session.routes.find_address(inbox.queue.broker_name)
            self._session.outages.report(log, inbox.asked if address else inbox.queue.broker_name, error, *words)
        elif inbox.trouble != str(error):
            inbox.trouble = str(error)
            log.warning(*words)
        else:
            log.debug(*words)


async def find_source(
    session: Session, group: str, queue: MessageQueue, broker_id: int, subscription: Subscription
) -> tuple[str, int]:
    """Return where to pull a queue from (a broker or its filter server), and the flags. Raises ErucaError."""
    address = session.routes.require_address(queue.broker_name, broker_id)
    wanted = subscription.class_filter
    if wanted is None:
        return address, PULL_SUBSCRIPTION
    server = session.routes.find_filter_server(queue.topic, queue.broker_name)
    if server is None:
        raise ConnectFailed(
            f"broker {queue.broker_name} has no filter server for {queue.topic}",
            hint="start one (`eruca filterserver`); the broker accepts up to filterServerNums of them",
        )
    await session.uploads.ensure(server, group, queue.topic, wanted.name, wanted.module)
    return server, PULL_CLASS_FILTER


async def peek(
    calls: Calls, address: str, group: str, queue: MessageQueue, offset: int, *, count_max: int, timeout_ms: int
) -> list[Record]:
    """Return the records a broker has at an offset now, whatever their tags; does not wait or commit."""
    header = make_peek_header(group, queue, offset, count_max)
    return (await calls.pull(address, header, timeout_ms)).records


def make_peek_header(
    group: str,
    queue: MessageQueue,
    offset: int,
    count_max: int,
    *,
    expression: str = "*",
    kind: str = TAG,
    bytes_max: int | None = None,
) -> PullMessageHeader:
    """Return the header of a pull that does not wait for messages and does not commit an offset."""
    return PullMessageHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_message_nums=count_max,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_ms=0,
        subscription=expression,
        subscription_version=0,
        expression_type=kind,
        max_message_bytes=bytes_max,
    )


def keep_tagged(records: list[Record], subscription: Subscription) -> list[Record]:
    """Return the records with the wanted tags: the broker only compares hashes, which may collide."""
    tags = subscription.tags
    if not records or tags is None or not tags.tags:
        return records
    return [record for record in records if record.get_property(TAGS) in tags.tags]
