"""Eruca: a RocketMQ-compatible message system in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from eruca.client.consume.consumer import Consumer as Consumer
    from eruca.client.consume.pulling import PullLimits as PullLimits
    from eruca.client.consume.subscriptions import ClassFilter as ClassFilter
    from eruca.client.consume.subscriptions import Sql as Sql
    from eruca.client.message import Message as Message
    from eruca.client.message import Outcome as Outcome
    from eruca.client.options import ClientOptions as ClientOptions
    from eruca.client.produce.outgoing import Outgoing as Outgoing
    from eruca.client.produce.outgoing import Receipt as Receipt
    from eruca.client.produce.outgoing import SendStatus as SendStatus
    from eruca.client.produce.producer import Producer as Producer
    from eruca.client.produce.transactions import Decision as Decision
    from eruca.client.produce.transactions import Half as Half
    from eruca.client.produce.transactions import TransactionalProducer as TransactionalProducer
    from eruca.client.produce.transactions import TransactionReceipt as TransactionReceipt
    from eruca.client.pull.pullconsumer import PullConsumer as PullConsumer
    from eruca.client.pull.queuereading import PullResult as PullResult
    from eruca.client.pull.scheduledpull import PullContext as PullContext
    from eruca.client.pull.scheduledpull import ScheduledPull as ScheduledPull
    from eruca.errors import RetryLater as RetryLater
    from eruca.wire.bodies import MessageQueue as MessageQueue

# Where each public name lives. They are imported when they are first used, so that `import eruca` stays light.
_PUBLIC = {
    "ClassFilter": "eruca.client.consume.subscriptions",
    "ClientOptions": "eruca.client.options",
    "Consumer": "eruca.client.consume.consumer",
    "Decision": "eruca.client.produce.transactions",
    "Half": "eruca.client.produce.transactions",
    "Message": "eruca.client.message",
    "MessageQueue": "eruca.wire.bodies",
    "Outcome": "eruca.client.message",
    "Outgoing": "eruca.client.produce.outgoing",
    "Producer": "eruca.client.produce.producer",
    "PullConsumer": "eruca.client.pull.pullconsumer",
    "PullContext": "eruca.client.pull.scheduledpull",
    "PullLimits": "eruca.client.consume.pulling",
    "PullResult": "eruca.client.pull.queuereading",
    "Receipt": "eruca.client.produce.outgoing",
    "RetryLater": "eruca.errors",
    "ScheduledPull": "eruca.client.pull.scheduledpull",
    "SendStatus": "eruca.client.produce.outgoing",
    "Sql": "eruca.client.consume.subscriptions",
    "TransactionReceipt": "eruca.client.produce.transactions",
    "TransactionalProducer": "eruca.client.produce.transactions",
}
__all__ = [*sorted(_PUBLIC), "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'eruca' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
