"""What the behaviour cases have in common: quick clients, bounded waiting, and looking at what a broker has stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from eruca import (
    ClientOptions,
    Consumer,
    Flow,
    Message,
    MessageQueue,
    Offsets,
    Producer,
    Rebalance,
    Receipt,
    Retry,
)
from eruca._client.session.session import Session
from eruca._wire.catalog import build_request
from eruca._wire.codes import RequestCode
from eruca._wire.ext import Header
from eruca._wire.headers import CreateTopicHeader, EmptyHeader, PullMessageHeader
from eruca._wire.sysflag import PULL_SUBSCRIPTION
from eruca.errors import NoRoute
from tests.patience import PATIENCE_S

Case = Callable[[str, str, str], Awaitable[None]]
_Case = TypeVar("_Case", bound=Case)
_Answer = TypeVar("_Answer")

PATIENCE_SECONDS = PATIENCE_S
READ, WRITE = 4, 2
_POLL_SECONDS = 0.02
_STEADY_SECONDS = 0.3
# Groups and queues are looked at often, so that nothing waits for an interval of the defaults.
QUICK_FLOW = Flow(hold=1.0, error_pause=0.1)
QUICK_RETRY = Retry(suspend=0.05)
QUICK_REBALANCE = Rebalance(interval=0.3, lock_interval=0.5)
QUICK: dict[str, Any] = {
    "start": "earliest",
    "flow": QUICK_FLOW,
    "retry": QUICK_RETRY,
    "rebalance": QUICK_REBALANCE,
    "offsets": Offsets(interval=0.2),
    "drain": 5.0,
}
# Routes of topics that somebody else makes are learnt by asking.
QUICK_OPTIONS: dict[str, Any] = {"route_interval": 0.2}


def whole(case: _Case) -> _Case:
    """Mark a case that takes its time: it is left out of the slice that `make test` takes."""
    case.__dict__["is_whole"] = True
    return case


def make_consumer(nameserver: str, group: str, subscribe: Any = (), **settings: Any) -> Consumer:
    """A consumer with short intervals."""
    settings.setdefault("options", ClientOptions(**QUICK_OPTIONS))
    return Consumer(nameserver, group=group, subscribe=subscribe, **{**QUICK, **settings})


# -- waiting -------------------------------------------------------------------------------------------------------


async def wait_until(check: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something is so; fails with `what` when it does not become so in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not check():
        assert loop.time() < deadline, f"after {seconds:.0f} s: not {what}"
        await asyncio.sleep(_POLL_SECONDS)


async def poll(ask: Callable[[], Awaitable[_Answer]], is_wanted: Callable[[_Answer], bool]) -> _Answer:
    """Ask repeatedly until the answer is the wanted one; returns it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_SECONDS
    while not is_wanted(answer := await ask()):
        assert loop.time() < deadline, f"after {PATIENCE_SECONDS:.0f} s: still {answer!r}"
        await asyncio.sleep(_POLL_SECONDS)
    return answer


async def wait_until_steady(measure: Callable[[], int]) -> int:
    """Wait until a number has not changed for a while; returns it."""
    while True:
        before = measure()
        await asyncio.sleep(_STEADY_SECONDS)
        if measure() == before:
            return before


async def wait_for_queues(consumer: Consumer, count: int) -> None:
    """Wait until a consumer has this many queues."""
    await wait_until(lambda: len(consumer.queues) == count, f"{count} queues")


async def read_messages(consumer: Consumer, count: int, *, ack: bool = True) -> list[Message]:
    """Take this many messages from a consumer without handlers."""
    messages: list[Message] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for message in consumer:
            messages.append(message)
            if ack:
                await message.ack()
            if len(messages) == count:
                break
    return messages


class Collector:
    """A handler that keeps what it gets."""

    def __init__(self, consumer: Consumer, topic: str, **settings: Any) -> None:
        self.messages: list[Message] = []
        register: Callable[[Any], Any] = consumer.handler(topic, **settings)
        register(self.keep)

    async def keep(self, message: Message) -> None:
        """The handler."""
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        """What was sent, in the order in which it came."""
        return [message.body for message in self.messages]

    async def wait(self, count: int, seconds: float = PATIENCE_SECONDS) -> list[bytes]:
        """Wait for this many messages, and no more than that; returns their bodies."""
        await wait_until(lambda: len(self.messages) >= count, f"{count} messages", seconds)
        assert len(self.messages) == count, self.messages
        return self.bodies


# -- what is stored ------------------------------------------------------------------------------------------------


def find_session(client: Producer | Consumer) -> Session:
    """The session of a client."""
    return client._session


async def fetch(client: Producer | Consumer, receipt: Receipt) -> Message:
    """Read the message a receipt is about."""
    return (await fetch_queue(find_session(client), receipt.queue, 1, receipt.offset))[0]


async def fetch_queue(session: Session, queue: MessageQueue, count: int, offset: int = 0) -> list[Message]:
    """Wait until a queue has this many messages from an offset on, which may take a moment with Java, and read them."""
    found = await poll(lambda: read_queue(session, queue, offset), lambda found: len(found) >= count)
    return found[:count]


async def read_queue(session: Session, queue: MessageQueue, offset: int = 0) -> list[Message]:
    """Read all that a queue has now from an offset on."""
    found: list[Message] = []
    while batch := await _pull(session, queue, offset + len(found)):
        found += batch
    return found


async def _pull(session: Session, queue: MessageQueue, offset: int) -> list[Message]:
    address = session.routes.find_address(queue.broker_name)
    assert address is not None
    header = PullMessageHeader(
        consumer_group="looker",
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_message_nums=32,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_ms=0,
        subscription="*",
        subscription_version=0,
        expression_type="TAG",
    )
    pulled = await session.calls.pull(address, header, 5000)
    return [Message(record, queue) for record in pulled.records]


async def fetch_topic(session: Session, topic: str, count: int) -> list[Message]:
    """Wait until a topic has this many messages and read them, queue by queue; fails when it has more."""

    async def read() -> list[Message]:
        queues = await list_queues(session, topic)
        return [message for queue in queues for message in await read_queue(session, queue)]

    found = await poll(read, lambda found: len(found) >= count)
    assert len(found) == count, found
    return found


async def list_queues(session: Session, topic: str) -> tuple[MessageQueue, ...]:
    """The queues a topic has for reading, asked anew; none when there is no such topic."""
    try:
        return (await session.routes.refresh(topic)).read_queues
    except NoRoute:
        return ()


async def wait_for_topic(session: Session, topic: str, queues: int) -> tuple[MessageQueue, ...]:
    """Wait until name servers say that a topic has this many queues."""
    return await poll(lambda: list_queues(session, topic), lambda found: len(found) == queues)


# -- administration ------------------------------------------------------------------------------------------------


async def find_broker(session: Session) -> str:
    """The address of the broker."""
    await session.routes.get("TBW102")
    (by_id,) = session.routes.list_brokers().values()
    return by_id[0]


async def ask_broker(session: Session, code: RequestCode, header: Header | None = None, body: Any = None) -> Any:
    """Ask the broker something as an operator; returns the body of its answer."""
    address = await find_broker(session)
    command = build_request(code, header or EmptyHeader(), body)
    return (await session.calls.ask(address, command, 10_000))[1]


async def is_eruca(client: Producer | Consumer) -> bool:
    """Whether the broker is an Eruca, which keeps some things that Java's does not."""
    options = await ask_broker(find_session(client), RequestCode.GET_BROKER_CONFIG)
    return "deleteOnlyArchived" in options


async def create_topic(client: Producer | Consumer, topic: str, queues: int = 4, *, perm: int = READ | WRITE) -> None:
    """Create or change a topic; its route is known to the client afterwards."""
    header = CreateTopicHeader(
        topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=perm
    )
    await ask_broker(find_session(client), RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    await wait_for_topic(find_session(client), topic, queues if perm & READ else 0)


async def send_numbered(producer: Producer, topic: str, numbers: Iterable[int], **how: Any) -> list[Receipt]:
    """Send messages whose bodies are numbers, one after the other."""
    return [await producer.send(topic, b"%d" % number, **how) for number in numbers]


def list_numbers(count: int) -> list[bytes]:
    """The bodies of that many numbered messages."""
    return [b"%d" % number for number in range(count)]
