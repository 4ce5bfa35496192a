"""Eruca: a RocketMQ-compatible message system in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from eruca.client.consumer import Consumer as Consumer
    from eruca.client.message import Message as Message
    from eruca.client.message import Outcome as Outcome
    from eruca.client.options import ClientOptions as ClientOptions
    from eruca.client.outgoing import Outgoing as Outgoing
    from eruca.client.outgoing import Receipt as Receipt
    from eruca.client.outgoing import SendStatus as SendStatus
    from eruca.client.producer import Producer as Producer
    from eruca.client.pullconsumer import PullConsumer as PullConsumer
    from eruca.client.pulling import PullLimits as PullLimits
    from eruca.client.queuereading import PullResult as PullResult
    from eruca.client.scheduledpull import PullContext as PullContext
    from eruca.client.scheduledpull import ScheduledPull as ScheduledPull
    from eruca.client.subscriptions import Sql as Sql
    from eruca.client.transactions import Decision as Decision
    from eruca.client.transactions import Half as Half
    from eruca.client.transactions import TransactionalProducer as TransactionalProducer
    from eruca.client.transactions import TransactionReceipt as TransactionReceipt
    from eruca.errors import RetryLater as RetryLater
    from eruca.wire.bodies import MessageQueue as MessageQueue

# Where each public name lives. They are imported when they are first used, so that `import eruca` stays light.
_PUBLIC = {
    "ClientOptions": "eruca.client.options",
    "Consumer": "eruca.client.consumer",
    "Decision": "eruca.client.transactions",
    "Half": "eruca.client.transactions",
    "Message": "eruca.client.message",
    "MessageQueue": "eruca.wire.bodies",
    "Outcome": "eruca.client.message",
    "Outgoing": "eruca.client.outgoing",
    "Producer": "eruca.client.producer",
    "PullConsumer": "eruca.client.pullconsumer",
    "PullContext": "eruca.client.scheduledpull",
    "PullLimits": "eruca.client.pulling",
    "PullResult": "eruca.client.queuereading",
    "Receipt": "eruca.client.outgoing",
    "RetryLater": "eruca.errors",
    "ScheduledPull": "eruca.client.scheduledpull",
    "SendStatus": "eruca.client.outgoing",
    "Sql": "eruca.client.subscriptions",
    "TransactionReceipt": "eruca.client.transactions",
    "TransactionalProducer": "eruca.client.transactions",
}
__all__ = [*sorted(_PUBLIC), "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'eruca' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
