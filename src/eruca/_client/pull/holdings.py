"""The queues of a pull consumer: what was fetched ahead, what was handed out, and what may be committed."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable

from eruca._client.group.inbox import Inbox
from eruca._client.group.offsets import OffsetStore, Progress
from eruca._client.group.pausing import Pauses
from eruca._client.group.pulling import Puller
from eruca._client.group.settings import Flow
from eruca._client.group.subscriptions import Subscription
from eruca._client.message import Decode, Message, Settle
from eruca._client.session.session import Session
from eruca._wire.bodies import MessageQueue
from eruca._wire.record import Record
from eruca._wire.sysflag import PULL_LITE
from eruca.errors import ErucaError

log = logging.getLogger(__name__)


class PullInbox(Inbox):
    """One queue of a pull consumer. A message counts as done for the process queue when it is handed out."""

    def __init__(self, queue: MessageQueue, subscription: Subscription, offset: int) -> None:
        super().__init__(queue, subscription, offset)
        # Fetched ahead, not handed out yet.
        self.ready: deque[Record] = deque()
        # Not before the listener for queues has returned.
        self.may_fetch = False
        self.is_in_turn = False
        # The first offset that the latest poll handed out; the next poll, or a commit, marks it as done.
        self.unfinished: int | None = None
        # The last committed position.
        self.written = offset

    @property
    def position(self) -> int:
        """The offset of the next message to hand out."""
        return self.commit_offset

    @property
    def done_offset(self) -> int:
        """The offset to continue at after a crash: everything before it is done."""
        return self.position if self.unfinished is None else min(self.unfinished, self.position)


class Holdings:
    """The queues of one started pull consumer."""

    def __init__(
        self,
        session: Session,
        group: str,
        flow: Flow,
        offsets: OffsetStore,
        *,
        namespace: str,
        settle: Settle,
        decode: Decode | None = None,
    ) -> None:
        self.inboxes: dict[MessageQueue, PullInbox] = {}
        self.offsets = offsets
        self._namespace = namespace
        self._settle = settle
        self._decode = decode
        self._puller = Puller(session, group, flow, self._deliver, flags=PULL_LITE, has_room=lambda: self._has_room)
        self._cached_max = flow.cached_max
        # What was fetched ahead, except for paused queues: nothing takes those messages, and they must not starve the
        # others.
        self._cached = 0
        self._pauses = Pauses()
        # Queues that have messages ready, the one whose turn it is first.
        self._turns: deque[PullInbox] = deque()
        # The queues whose messages the latest poll handed out.
        self._handed: set[PullInbox] = set()
        self._arrived = asyncio.Event()
        self._is_fetching = False
        # No longer ours, but not committed yet.
        self._leaving: set[PullInbox] = set()
        # One commit at a time, so that an older position never overtakes a newer one.
        self._committing = asyncio.Lock()

    @property
    def _has_room(self) -> bool:
        return self._cached < self._cached_max

    # -- queues ------------------------------------------------------------------------------------------------------

    def add(self, queue: MessageQueue, subscription: Subscription, offset: int, *, fetch: bool = True) -> PullInbox:
        """Add a queue and start at an offset; without `fetch`, nothing is fetched before `fetch` is called."""
        inbox = self.inboxes[queue] = PullInbox(queue, subscription, offset)
        inbox.paused = self._pauses.covers(queue)
        if fetch:
            self.fetch(queue)
        return inbox

    def fetch(self, queue: MessageQueue) -> None:
        """Fetch from a queue from now on, unless nothing is fetched yet."""
        inbox = self.inboxes.get(queue)
        if inbox is not None and not inbox.leaving:
            inbox.may_fetch = True
            if self._is_fetching:
                self._fetch(inbox)

    def remove(self, queue: MessageQueue) -> PullInbox | None:
        """Remove a queue and drop what was fetched ahead from it."""
        inbox = self.inboxes.pop(queue, None)
        if inbox is None:
            return None
        if inbox.task is not None:
            inbox.task.cancel()
        inbox.drop()
        self._handed.discard(inbox)
        self._drop_ready(inbox)
        return inbox

    def retire(self, inbox: PullInbox) -> None:
        """Hand out nothing more of a queue that is about to be removed."""
        if inbox.task is not None:
            inbox.task.cancel()
        inbox.leaving = True
        self._drop_ready(inbox)

    def _drop_ready(self, inbox: PullInbox) -> None:
        if not inbox.paused:
            self._count(-len(inbox.ready))
        inbox.ready.clear()

    def move(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset of one of our queues."""
        before = self.remove(queue)
        assert before is not None
        inbox = self.add(queue, before.subscription, offset, fetch=before.may_fetch)
        # Whatever was committed before, this position counts now.
        inbox.written = -1

    def start_fetching(self) -> None:
        """Start fetching ahead. A consumer that only calls `pull` never needs it."""
        if not self._is_fetching:
            self._is_fetching = True
            for inbox in self.inboxes.values():
                if inbox.may_fetch:
                    self._fetch(inbox)

    def _fetch(self, inbox: PullInbox) -> None:
        inbox.task = asyncio.get_running_loop().create_task(self._puller.run(inbox))

    async def stop_fetching(self) -> None:
        """Stop pulling, and wake the task that waits for messages."""
        self._is_fetching = False
        tasks = [inbox.task for inbox in self.inboxes.values() if inbox.task is not None]
        for task in tasks:
            task.cancel()
        self._arrived.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    def pause(self, queues: Iterable[MessageQueue] | None) -> None:
        """Hand out nothing from these queues (default: all), and stop fetching from them."""
        self._pauses.pause(queues)
        self._follow_pauses()

    def resume(self, queues: Iterable[MessageQueue] | None) -> None:
        """Undo `pause`."""
        self._pauses.resume(queues)
        self._follow_pauses()

    def _follow_pauses(self) -> None:
        for queue, inbox in self.inboxes.items():
            is_paused = self._pauses.covers(queue)
            if is_paused == inbox.paused:
                continue
            inbox.paused = is_paused
            self._count(-len(inbox.ready) if is_paused else len(inbox.ready))
            if not is_paused:
                inbox.changed.set()
                if inbox.ready:
                    self._put_in_turn(inbox)

    # -- messages ----------------------------------------------------------------------------------------------------

    def _deliver(self, inbox: Inbox, records: list[Record]) -> None:
        assert isinstance(inbox, PullInbox)
        if inbox.leaving:
            return
        inbox.ready.extend(records)
        if not inbox.paused:
            self._count(len(records))
        self._put_in_turn(inbox)

    def _put_in_turn(self, inbox: PullInbox) -> None:
        if not inbox.is_in_turn:
            inbox.is_in_turn = True
            self._turns.append(inbox)
        self._arrived.set()

    def take(self, count: int) -> list[Message]:
        """Hand out at most `count` of the fetched messages; those handed out before count as done."""
        self.finish_handed()
        found: list[Message] = []
        while self._turns and len(found) < count:
            inbox = self._turns.popleft()
            inbox.is_in_turn = False
            if inbox.leaving or inbox.paused:
                continue
            found += self._take_from(inbox, count - len(found))
            if inbox.ready:
                self._put_in_turn(inbox)
        self._count(-len(found))
        return found

    def finish_handed(self) -> None:
        """Mark everything that was handed out as done."""
        for inbox in self._handed:
            inbox.unfinished = None
            if inbox.leaving:
                inbox.changed.set()
        self._handed.clear()

    def _take_from(self, inbox: PullInbox, count: int) -> list[Message]:
        ready = inbox.ready
        records = [ready.popleft() for _ in range(min(count, len(ready)))]
        inbox.unfinished = records[0].queue_offset
        self._handed.add(inbox)
        for record in records:
            inbox.process.finish(record.queue_offset)
        inbox.changed.set()
        inbox.last_consumed = asyncio.get_running_loop().time()
        queue, namespace, settle, decode = inbox.queue, self._namespace, self._settle, self._decode
        return [Message(record, queue, namespace, settle, decode) for record in records]

    def _count(self, change: int) -> None:
        had_room = self._has_room
        self._cached += change
        if not had_room and self._has_room:
            for inbox in self.inboxes.values():
                inbox.changed.set()

    async def wait(self, seconds: float | None) -> None:
        """Wait until messages arrive, for at most `seconds`."""
        self._arrived.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            pass

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def commit_done(self) -> None:
        """Commit the offsets up to which everything is done. Raises ErucaError."""
        known = [*self._leaving, *self.inboxes.values()]
        await self._write_positions([inbox for inbox in known if not inbox.is_lost])

    async def commit_handed_out(self) -> None:
        """Commit everything that was handed out. Raises ErucaError."""
        self.finish_handed()
        await self.commit_done()

    async def commit_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Commit these offsets; they hold until the next message of a queue is done. Raises ErucaError."""
        async with self._committing:
            await self.offsets.write({queue: Progress(offset) for queue, offset in offsets.items()}, wait=True)

    async def commit_last(self, inbox: PullInbox) -> None:
        """Commit a queue that is no longer ours."""
        self._leaving.add(inbox)
        try:
            kept = await self.offsets.read(inbox.queue) if inbox.is_lost else None
            if kept is not None and kept.offset > inbox.done_offset:
                inbox.written = inbox.done_offset  # the new owner is further ahead
            await self._write_positions([inbox])
        except ErucaError as error:
            log.warning("could not commit the offset of %s, messages will be delivered again: %s", inbox.queue, error)
        # Not reached if this is cancelled; closing commits it then.
        self._leaving.discard(inbox)

    async def _write_positions(self, inboxes: Iterable[PullInbox]) -> None:
        async with self._committing:
            changed = [(inbox, inbox.done_offset) for inbox in inboxes if inbox.done_offset != inbox.written]
            if not changed:
                return
            await self.offsets.write({inbox.queue: Progress(offset) for inbox, offset in changed}, wait=True)
            for inbox, offset in changed:
                inbox.written = offset
