"""The workers of one concurrent handler, and the messages that wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress

from eruca._client.group.inbox import Inbox
from eruca._client.group.observing import Tally
from eruca._client.push.handlers import HandlerEntry, HandlerThreads
from eruca._wire.record import Record


class Crew:
    """The workers of one handler and the messages that wait for them."""

    def __init__(self, handler: HandlerEntry, tally: Tally) -> None:
        self.handler = handler
        self.tally = tally
        self.ready: deque[tuple[Inbox, Record]] = deque()
        # The worker tasks, those of them that wait for messages, and the number that are inside the handler.
        self.workers: list[asyncio.Task[None]] = []
        self.idle: deque[asyncio.Future[None]] = deque()
        self.busy = 0
        # The number of handler calls allowed at once, and the number of messages handled so far.
        self.limit = handler.concurrency
        self.done = 0
        # Used instead of tasks: threads, the number of messages they hold or will take, and a lock for taking batches.
        self.threads: HandlerThreads | None = None
        self.in_threads = 0
        self.guard = threading.Lock()

    @property
    def is_quiet(self) -> bool:
        """Whether the handler is working on nothing."""
        return not self.busy and not self.in_threads

    def take(self) -> tuple[Inbox, list[Record]] | None:
        """Return the next messages of one queue, at most one batch of the handler; None when there are none."""
        ready, batch = self.ready, self.handler.batch
        try:
            inbox, record = ready.popleft()
        except IndexError:
            return None
        records = [record]
        while len(records) < batch and ready and ready[0][0] is inbox:
            records.append(ready.popleft()[1])
        return inbox, records

    def take_in_thread(self) -> tuple[Inbox, list[Record]] | None:
        """Do the same in any thread. A batch takes several messages, so it needs a lock; one message does not."""
        if self.handler.batch == 1:
            return self.take()
        with self.guard:
            return self.take()

    def forget(self) -> None:
        """Drop the messages that no worker has started on. Threads may take some meanwhile."""
        with suppress(IndexError):
            while True:
                self.ready.pop()
                if self.threads is not None:
                    self.in_threads -= 1

    def wake_one(self) -> None:
        """Wake one waiting worker."""
        while self.idle:
            future = self.idle.popleft()
            if not future.done():
                future.set_result(None)
                return
