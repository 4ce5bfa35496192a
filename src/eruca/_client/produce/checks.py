"""Transaction checks: answers a broker that asks whether a half message is committed or rolled back."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, TypeAlias, TypeVar

from eruca._client.message import Message
from eruca._client.produce.engine import Engine
from eruca._client.session.session import Session
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode
from eruca._wire.frame import make_request
from eruca._wire.headers import CheckTransactionHeader, EndTransactionHeader
from eruca._wire.names import MASTER_ID, SELF_TEST_TOPIC
from eruca._wire.properties import MSG_REGION
from eruca._wire.record import Record
from eruca._wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from eruca.errors import ErucaError, WrongType

log = logging.getLogger(__name__)

_Argument = TypeVar("_Argument")
# At most this many checks wait for their turn, as in Java. The broker repeats a check beyond that.
_CHECKS_WAITING_MAX = 2000


class Decision(Enum):
    """The outcome of a half message."""

    # Consumers receive it.
    COMMIT = "commit"
    # Nobody receives it.
    ROLLBACK = "rollback"
    # Not known yet: the broker asks again later.
    UNKNOWN = "unknown"


FLAGS = {
    Decision.COMMIT: TRANSACTION_COMMIT,
    Decision.ROLLBACK: TRANSACTION_ROLLBACK,
    Decision.UNKNOWN: TRANSACTION_NONE,
}

#: What a function that decides about a transaction returns, async or not; None is UNKNOWN.
Decided: TypeAlias = Awaitable[Decision | None] | Decision | None


class CheckAnswers:
    """Calls the user's function for half messages, and sends its decisions to the brokers."""

    def __init__(self, engine: Engine, check: Callable[[Message], Decided], checks_max: int) -> None:
        self._engine = engine
        self._check = check
        self._turns = asyncio.Semaphore(checks_max)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._session: Session | None = None

    def start(self, session: Session) -> None:
        """Announce the group to every broker: any may hold its half messages, even if this producer never sends."""
        # Watching a topic that every broker has is enough: the brokers of a new route get a heartbeat. (Java's clients
        # watch TBW102, which a broker has only if it creates topics automatically.)
        self._session = session
        session.routes.watch(SELF_TEST_TOPIC)
        session.spawn(self._find_brokers(session))

    async def _find_brokers(self, session: Session) -> None:
        try:
            await session.routes.get(SELF_TEST_TOPIC)
        except ErucaError as error:
            log.info("the brokers of group %s were not found, trying again later: %s", self._engine.group, error)

    def stop(self) -> None:
        """Stop answering; the broker asks another producer of the group."""
        session, self._session = self._session, None
        if session is None:
            return
        session.routes.unwatch(SELF_TEST_TOPIC)
        if not session.loop.is_closed():
            for task in self._tasks:
                task.cancel()

    def answer(self, session: Session, address: str, header: CheckTransactionHeader, record: Record) -> None:
        """Check the outcome of a half message, and report it to the broker at `address`."""
        if len(self._tasks) >= _CHECKS_WAITING_MAX:
            log.warning("too many transaction checks at once; %s has to ask again", address)
            return
        task = session.spawn(self._answer(session, address, header, record))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, session: Session, address: str, header: CheckTransactionHeader, record: Record) -> None:
        queue = MessageQueue(_find_broker(session, address), record.queue_id, record.topic)
        message = Message(record, queue, session.options.namespace)
        remark = None
        async with self._turns:
            try:
                decision = check_decision(await call_either(self._check, message), "the check")
            except Exception as error:
                log.exception("the check of transaction %s failed, the broker will ask again", message.transaction_id)
                decision, remark = Decision.UNKNOWN, repr(error)
        answer = EndTransactionHeader(
            producer_group=self._engine.group,
            half_offset=header.half_offset,
            position=header.position,
            decision=FLAGS[decision],
            message_id=message.message_id,
            from_check=True,
            transaction_id=header.transaction_id,
        )
        try:
            await end_transaction(session, address, answer, remark)
        except ErucaError as error:
            log.warning("the result of the check of %s was not sent, the broker will ask again: %s", message, error)
            return
        trace = self._engine.trace
        if trace is not None:
            region = message.all_properties.get(MSG_REGION, "")
            trace.after_decision(answer, record.topic, record.properties, address, region)


async def end_transaction(session: Session, address: str, header: EndTransactionHeader, remark: str | None) -> None:
    """Send a broker the decision about a half message it holds."""
    command = make_request(RequestCode.END_TRANSACTION, header)
    command.remark = remark
    await session.calls.notify(address, command)


def _find_broker(session: Session, address: str) -> str:
    brokers = session.routes.list_brokers()
    return next((name for name, found in brokers.items() if found.get(MASTER_ID) == address), "")


async def call_either(function: Callable[[_Argument], Decided], argument: _Argument) -> object:
    """Call an async or a plain function; a plain one runs in a thread, because it may block."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        found: Any = function(argument)
    else:
        found = await asyncio.get_running_loop().run_in_executor(None, function, argument)
    return await found if inspect.isawaitable(found) else found


def check_decision(found: object, who: str) -> Decision:
    """Return the decision of a user's function; None means UNKNOWN. Raises WrongType for anything else."""
    if found is None:
        return Decision.UNKNOWN
    if not isinstance(found, Decision):
        raise WrongType(f"{who} returned {found!r}: it must return a Decision")
    return found
