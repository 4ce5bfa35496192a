"""What the cases of the admin have in common: an admin that notes which methods are called, and clients.

A case is written once, with `await`. For the plain admin the calls are made in a thread, so that the same case runs.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeVar, cast

import eruca.sync
from eruca import ClientOptions, Consumer, Flow, Message, Offsets, Producer, Rebalance, Receipt, Retry
from eruca.admin import Admin, Moved
from eruca.admin import Changed as AnyChanged
from tests.integration.admin.staging import wait_for_queues
from tests.patience import PATIENCE_S

Case = Callable[["Stage"], Awaitable[None]]
_Case = TypeVar("_Case", bound=Callable[..., Awaitable[None]])
Answer = TypeVar("Answer")

FLAVOURS: Final = ("async", "plain")
BROKER: Final = "broker-a"
_POLL_SECONDS = 0.05
_END: Final = object()


def covers(*methods: str) -> Callable[[_Case], _Case]:
    """Declare the methods that a case calls: `topics.list`."""

    def remember(case: _Case) -> _Case:
        case.__dict__["covers"] = frozenset(methods)
        return case

    return remember


class Noted:
    """An admin that notes which methods of its parts are called."""

    def __init__(self, admin: Admin | eruca.sync.Admin) -> None:
        self.admin = admin
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        part = getattr(self.admin, name)
        return part if name in ("connection", "options") else NotedPart(self, name, part)


class NotedPart:
    """A part of an admin."""

    def __init__(self, noted: Noted, name: str, part: object) -> None:
        self._noted = noted
        self._name = name
        self._part = part

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._part, name)
        self._noted.called.add(f"{self._name}.{name}")
        return method if isinstance(self._noted.admin, Admin) else _make_async(method)


def _make_async(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plain method as an async one, which runs in a thread."""
    if str(inspect.signature(method).return_annotation).startswith("Iterator["):

        async def iterate(*given: Any, **named: Any) -> AsyncIterator[Any]:
            rows: Iterator[Any] = method(*given, **named)
            while (row := await asyncio.to_thread(next, rows, _END)) is not _END:
                yield row

        return iterate

    async def call(*given: Any, **named: Any) -> Any:
        return await asyncio.to_thread(method, *given, **named)

    return call


class Stage:
    """One case with one admin on one system."""

    def __init__(self, kind: str, flavour: str, nameserver: str, word: str, noted: Noted, raw: Admin) -> None:
        self.kind = kind
        self.nameserver = nameserver
        self._word = f"{flavour}-{word}"
        self.noted = noted
        # The case calls it as an async admin, which it may not be.
        self.admin = cast(Admin, noted)
        # For what only prepares.
        self.raw = raw

    @property
    def is_java(self) -> bool:
        """Whether the broker is Java's."""
        return self.kind == "java"

    def name(self, word: str) -> str:
        """A name of a topic or group that no other case has."""
        return f"{self._word}-{word}"

    async def create_topic(self, word: str = "orders", queues: int = 2) -> str:
        """Create a topic; returns its name when it can be written to."""
        topic = self.name(word)
        changed = await self.raw.topics.create(topic, queues=queues)
        assert not changed.failed, changed

        async def has_route() -> bool:
            route = await self.raw.connection.find_route(topic)
            return route is not None and len(route.write_queues) == queues

        await until(has_route, f"a route of {topic}")
        return topic

    async def send(self, topic: str, count: int, **how: Any) -> list[Receipt]:
        """Send messages, numbered by a property, with keys and tags."""
        async with Producer(self.nameserver, group=self.name("senders"), options=QUICK_OPTIONS) as producer:
            receipts = [
                await producer.send(
                    topic,
                    b"body %d" % number,
                    **{"tags": "even" if number % 2 == 0 else "odd", "keys": self.name(f"key{number}"), **how},
                )
                for number in range(count)
            ]
        await wait_for_queues(self.raw, topic, receipts)
        return receipts

    @asynccontextmanager
    async def member(
        self, group: str, topic: str, seen: list[Message] | None = None, **settings: Any
    ) -> AsyncIterator[Consumer]:
        """Run a member of a group that takes all messages of a topic, or that `hangs` with each one it gets."""
        quick: dict[str, Any] = {
            "start": "earliest",
            "flow": Flow(hold=1.0, error_pause=0.1),
            "retry": Retry(suspend=0.05),
            "rebalance": Rebalance(interval=0.3),
            "offsets": Offsets(interval=0.1),
        }
        tags, hangs = settings.pop("tags", "*"), settings.pop("hangs", False)
        consumer = Consumer(self.nameserver, group=group, options=QUICK_OPTIONS, **{**quick, **settings})

        @consumer.handler(topic, tags=tags)
        async def take(message: Message) -> None:
            if seen is not None:
                seen.append(message)
            if hangs:
                await asyncio.Event().wait()

        async with consumer:
            yield consumer

    async def undo(self, changed: AnyChanged[Any] | Moved) -> None:
        """Make the calls that undo a change."""
        assert changed.undo, changed
        for call in changed.undo:
            part, _, method = call.method.partition(".")
            outcome = await getattr(getattr(self.admin, part), method)(**call.arguments)
            assert not outcome.failed, outcome


QUICK_OPTIONS = ClientOptions(route_interval=0.2)


async def until(is_true: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for a condition; that it never holds is an error."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while not await is_true():
        assert loop.time() < deadline, f"{what}: not within {PATIENCE_S} s"
        await asyncio.sleep(_POLL_SECONDS)


async def poll(ask: Callable[[], Awaitable[Answer]], is_wanted: Callable[[Answer], bool]) -> Answer:
    """Ask repeatedly until the answer is the wanted one; returns it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while not is_wanted(answer := await ask()):
        assert loop.time() < deadline, f"after {PATIENCE_S} s still {answer!r}"
        await asyncio.sleep(_POLL_SECONDS)
    return answer


@asynccontextmanager
async def open_stage(
    kind: str, flavour: str, nameserver: str, word: str, options: ClientOptions | None = None
) -> AsyncIterator[Stage]:
    """Open a stage for one case; afterwards its methods must have been those it declares."""
    async with AsyncExitStack() as stack:
        raw = await stack.enter_async_context(Admin(nameserver, options))
        admin: Admin | eruca.sync.Admin = raw
        if flavour == "plain":
            admin = eruca.sync.Admin(nameserver, options)
            await asyncio.to_thread(admin.start)
            stack.push_async_callback(asyncio.to_thread, admin.close)
        yield Stage(kind, flavour, nameserver, word, Noted(admin), raw)


def list_methods() -> set[str]:
    """The public methods of all parts of the admin."""
    admin = Admin("127.0.0.1:1")
    parts = {name: part for name, part in vars(admin).items() if name != "connection"}
    return {
        f"{name}.{method}"
        for name, part in parts.items()
        for method in dir(part)
        if not method.startswith("_") and callable(getattr(part, method))
    }


def outcomes(changed: AnyChanged[Any]) -> Sequence[str]:
    """The outcome of a change on each server."""
    return [change.outcome for change in changed.changes]
