"""Senders and a ledger of their results: every send is compared with the log afterwards.

A message is acknowledged when the response to its send was 0. Whatever happens to the brokers, it must be in the final
log, at the position and the offset of its response.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eruca import MessageQueue, Outgoing, Producer
from eruca._client.produce.outgoing import SendStatus
from eruca._client.session.calls import Calls
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.headers import SendMessageAnswerHeader, SendMessageV2Header
from eruca._wire.ids import decode_offset_id
from eruca._wire.names import TEMPLATE_TOPIC
from eruca.errors import ErucaError
from tests.replication.segments import Stored, list_queue_faults

TOPIC = "Replicated"
NUMBER_DIGITS = 8
_SHOWN_MAX = 5
_CODES = {
    SendStatus.STORED: int(ResponseCode.SUCCESS),
    SendStatus.FLUSH_DISK_TIMEOUT: int(ResponseCode.FLUSH_DISK_TIMEOUT),
    SendStatus.FLUSH_SLAVE_TIMEOUT: int(ResponseCode.FLUSH_SLAVE_TIMEOUT),
    SendStatus.SLAVE_NOT_AVAILABLE: int(ResponseCode.SLAVE_NOT_AVAILABLE),
}
ACKNOWLEDGED = int(ResponseCode.SUCCESS)
# For an attempt without a response.
NO_ANSWER = -1


def make_body(number: int, size: int = 100) -> bytes:
    """A body that begins with its number."""
    return b"%0*d" % (NUMBER_DIGITS, number) + b"." * (size - NUMBER_DIGITS)


def read_number(body: bytes) -> int:
    """The number a body begins with."""
    return int(body[:NUMBER_DIGITS])


@dataclass(slots=True)
class Attempt:
    """One send and its answer."""

    number: int
    # The member it was sent to, as far as the sender knows.
    member: str
    begun: float
    answered: float = 0.0
    code: int = NO_ANSWER
    queue_id: int = -1
    offset: int = -1
    position: int = -1


class Ledger:
    """All sends of a run."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.acknowledged = 0
        self._numbers = itertools.count()

    def begin(self, member: str = "") -> Attempt:
        """Record a message with a unique number that is about to be sent."""
        attempt = Attempt(next(self._numbers), member, time.monotonic())
        self.attempts.append(attempt)
        return attempt

    def note(self, attempt: Attempt, code: int, queue_id: int = -1, offset: int = -1, offset_id: str = "") -> None:
        """It was answered."""
        attempt.answered = time.monotonic()
        attempt.code, attempt.queue_id, attempt.offset = code, queue_id, offset
        if offset_id:
            attempt.position = decode_offset_id(offset_id).position
        self.acknowledged += code == ACKNOWLEDGED

    @property
    def codes(self) -> Counter[int]:
        """Count each kind of response."""
        return Counter(attempt.code for attempt in self.attempts)

    def list_acknowledged(self) -> list[Attempt]:
        """Those that were answered with 0."""
        return [attempt for attempt in self.attempts if attempt.code == ACKNOWLEDGED]

    def find_pauses(self, moments: Iterable[float]) -> list[float]:
        """Return the time from each moment to the first acknowledgement of a send that started after it."""
        done = sorted((attempt.answered, attempt.begun) for attempt in self.list_acknowledged())
        pauses = []
        for moment in moments:
            following = [answered for answered, begun in done if begun > moment]
            if following:
                pauses.append(following[0] - moment)
        return pauses

    def summarise(self) -> str:
        """The counts in one line."""
        names = {ACKNOWLEDGED: "acknowledged", NO_ANSWER: "without answer"}
        told = (f"{count:,} {names.get(code, f'answered {code}')}" for code, count in sorted(self.codes.items()))
        return f"{len(self.attempts):,} sends ({', '.join(told)})"

    # -- against the log ---------------------------------------------------------------------------------------------

    def list_faults(self, records: Sequence[Stored], topic: str = TOPIC) -> list[str]:
        """Return the differences between the final log and the ledger. None if all is well."""
        by_position = {record.position: record for record in records if record.topic == topic}
        faults = [
            *describe("acknowledged and lost", (a for a in self.list_acknowledged() if a.position not in by_position)),
            *describe("acknowledged, and something else is there", self._list_replaced(by_position)),
            *self.list_disputes(),
            *self.list_disorder(),
        ]
        unknown = [r.position for r in by_position.values() if read_number(r.body) >= len(self.attempts)]
        return [*faults, *describe("nobody sent", unknown), *list_queue_faults(list(records), topic)]

    def _list_replaced(self, by_position: dict[int, Stored]) -> list[tuple[Attempt, int, int, int]]:
        replaced = []
        for attempt in self.list_acknowledged():
            found = by_position.get(attempt.position)
            if found is None:
                continue
            number = read_number(found.body)
            if (number, found.queue_id, found.offset) != (attempt.number, attempt.queue_id, attempt.offset):
                replaced.append((attempt, number, found.queue_id, found.offset))
        return replaced

    def list_disputes(self) -> list[str]:
        """Places that were acknowledged for two messages: two masters did that."""
        by_position: dict[int, Attempt] = {}
        by_offset: dict[tuple[int, int], Attempt] = {}
        disputes = []
        for attempt in self.list_acknowledged():
            for other in (
                by_position.setdefault(attempt.position, attempt),
                by_offset.setdefault((attempt.queue_id, attempt.offset), attempt),
            ):
                if other is not attempt:
                    disputes.append((other, attempt))
        return describe("two messages acknowledged for one place", disputes)

    def list_disorder(self) -> list[str]:
        """Find acknowledged messages that are before others which were acknowledged before they were sent.

        This cannot happen in one log, but can with two masters that alternate without knowing.
        """
        disorder = []
        latest: Attempt | None = None
        for attempt in sorted(self.list_acknowledged(), key=lambda each: each.position):
            if latest is not None and attempt.answered < latest.begun:
                disorder.append((latest, attempt))
            if latest is None or attempt.begun > latest.begun:
                latest = attempt
        return describe("acknowledged in another order than the log has", disorder)


def describe(what: str, found: Iterable[Any]) -> list[str]:
    """A line for a kind of fault with the first few of them, or none."""
    items = list(found)
    return [f"{what}: {len(items)}, the first: {items[:_SHOWN_MAX]}"] if items else []


# --- senders ------------------------------------------------------------------------------------------------------


class ProducerLoad:
    """A producer that sends endlessly, like a user's: with routes, retries and timeouts."""

    def __init__(self, producer: Producer, ledger: Ledger, *, tasks: int = 4, pause_s: float = 0.002) -> None:
        self._producer, self._ledger = producer, ledger
        self._tasks = [asyncio.create_task(self._run(pause_s)) for _ in range(tasks)]
        self._is_over = False

    async def _run(self, pause_s: float) -> None:
        while not self._is_over:
            attempt = self._ledger.begin()
            try:
                receipt = await self._producer.send(TOPIC, make_body(attempt.number))
            except ErucaError:
                self._ledger.note(attempt, NO_ANSWER)
            else:
                code = _CODES[receipt.status]
                self._ledger.note(attempt, code, receipt.queue.queue_id, receipt.offset, receipt.offset_id)
            await asyncio.sleep(pause_s)

    async def stop(self) -> None:
        """Wait for the last answers."""
        self._is_over = True
        await asyncio.gather(*self._tasks)


async def send_to(calls: Calls, ledger: Ledger, address: str, queues: int, timeout_ms: int = 5000) -> Attempt:
    """Send the next message to a member, whatever its role is and whatever the routes are."""
    attempt = ledger.begin(address)
    header = SendMessageV2Header(
        producer_group="direct",
        topic=TOPIC,
        default_topic=TEMPLATE_TOPIC,
        default_topic_queue_nums=queues,
        queue_id=attempt.number % queues,
        sys_flag=0,
        born_timestamp=int(time.time() * 1000),
        flag=0,
        properties=f"UNIQ_KEY\x01{attempt.number:032X}\x02WAIT\x01true",
        batch=False,
    )
    command = make_request(RequestCode.SEND_MESSAGE_V2, header, make_body(attempt.number))
    try:
        answer = await calls.call(address, command, timeout_ms)
    except ErucaError:
        ledger.note(attempt, NO_ANSWER)
        return attempt
    if answer.code in _CODES.values():
        told = answer.decode_header(SendMessageAnswerHeader)
        ledger.note(attempt, answer.code, told.queue_id, told.queue_offset, told.message_id)
    else:
        ledger.note(attempt, answer.code)
    return attempt


class DirectLoad:
    """Sends to one member endlessly, whatever its role is and whatever the routes are: what it acknowledges counts."""

    def __init__(
        self,
        calls: Calls,
        ledger: Ledger,
        address: str,
        *,
        queues: int,
        tasks: int = 2,
        timeout_ms: int = 1000,
        pause_s: float = 0.005,
    ) -> None:
        self._calls, self._ledger, self._address = calls, ledger, address
        self._queues, self._timeout_ms = queues, timeout_ms
        self._is_over = False
        self._tasks = [asyncio.create_task(self._run(pause_s)) for _ in range(tasks)]

    async def _run(self, pause_s: float) -> None:
        while not self._is_over:
            attempt = await send_to(self._calls, self._ledger, self._address, self._queues, self._timeout_ms)
            # A member that is not there is not asked as often.
            await asyncio.sleep(4 * pause_s if attempt.code == NO_ANSWER else pause_s)

    async def stop(self) -> None:
        """Wait for the last answers."""
        self._is_over = True
        await asyncio.gather(*self._tasks)


async def send_all(
    producer: Producer,
    numbers: range,
    queues: Sequence[MessageQueue],
    *,
    batch: int = 50,
    workers: int = 8,
    on_done: Callable[[int], Awaitable[None] | None] | None = None,
) -> Counter[str]:
    """Send numbered messages as fast as they are accepted, batches and single ones; return the count of each status.

    A batch that fails is sent again, so that each number is stored at least once.
    """
    statuses: Counter[str] = Counter()
    starts = iter(range(numbers.start, numbers.stop, batch))

    async def work(number: int) -> None:
        for start in starts:
            chunk = range(start, min(numbers.stop, start + batch))
            queue = queues[start // batch % len(queues)]
            # One in ten is sent message by message, with the properties that users add.
            if start // batch % 10 == 0:
                for each in chunk:
                    receipt = await producer.send(
                        TOPIC, make_body(each), queue=queue, tags=f"tag{each % 3}", keys=[f"key-{each}"]
                    )
                    statuses[receipt.status.value] += 1
            else:
                outgoing = [Outgoing(make_body(each), tags=f"tag{each % 3}") for each in chunk]
                for receipt in await producer.send_batch(TOPIC, outgoing, queue=queue):
                    statuses[receipt.status.value] += len(chunk)
            if on_done is not None and (waiting := on_done(chunk.stop)) is not None:
                await waiting

    await asyncio.gather(*[work(number) for number in range(workers)])
    return statuses
