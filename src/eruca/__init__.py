"""Eruca: a RocketMQ-compatible message system in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

#: The version of Eruca.
__version__ = "0.1.0"

if TYPE_CHECKING:
    from eruca._admin.admin import Admin as Admin
    from eruca._client.group.lag import Lag as Lag
    from eruca._client.group.observing import ConsumeHook as ConsumeHook
    from eruca._client.group.settings import Flow as Flow
    from eruca._client.group.settings import Offsets as Offsets
    from eruca._client.group.settings import OnChange as OnChange
    from eruca._client.group.settings import Rebalance as Rebalance
    from eruca._client.group.settings import Retry as Retry
    from eruca._client.group.settings import Start as Start
    from eruca._client.group.subscriptions import ClassFilter as ClassFilter
    from eruca._client.group.subscriptions import Filter as Filter
    from eruca._client.group.subscriptions import Sql as Sql
    from eruca._client.group.subscriptions import Subscribe as Subscribe
    from eruca._client.group.subscriptions import TopicChoice as TopicChoice
    from eruca._client.message import Message as Message
    from eruca._client.message import Outcome as Outcome
    from eruca._client.options import ClientOptions as ClientOptions
    from eruca._client.produce.checks import Decided as Decided
    from eruca._client.produce.checks import Decision as Decision
    from eruca._client.produce.choosing import Selector as Selector
    from eruca._client.produce.delivery import SendHook as SendHook
    from eruca._client.produce.outgoing import Outgoing as Outgoing
    from eruca._client.produce.outgoing import Receipt as Receipt
    from eruca._client.produce.outgoing import SendStatus as SendStatus
    from eruca._client.produce.producer import Producer as Producer
    from eruca._client.produce.sending import Parcel as Parcel
    from eruca._client.produce.transactions import Half as Half
    from eruca._client.produce.transactions import TransactionalProducer as TransactionalProducer
    from eruca._client.produce.transactions import TransactionReceipt as TransactionReceipt
    from eruca._client.pull.consumer import PullConsumer as PullConsumer
    from eruca._client.pull.membership import OnQueues as OnQueues
    from eruca._client.pull.queuereading import PullResult as PullResult
    from eruca._client.pull.scheduledpull import PullCallback as PullCallback
    from eruca._client.pull.scheduledpull import PullContext as PullContext
    from eruca._client.pull.scheduledpull import ScheduledPull as ScheduledPull
    from eruca._client.push.consumer import Consumer as Consumer
    from eruca._client.push.handlers import Concurrency as Concurrency
    from eruca._client.session.calls import PullStatus as PullStatus
    from eruca._ground.durations import Duration as Duration
    from eruca._net.tls import Tls as Tls
    from eruca._net.tls import TlsChoice as TlsChoice
    from eruca._wire.bodies import MessageQueue as MessageQueue
    from eruca.errors import RetryLater as RetryLater

# Where each public name lives. They are imported when they are first used, so that `import eruca` stays light.
_PUBLIC = {
    "Admin": "eruca._admin.admin",
    "ClassFilter": "eruca._client.group.subscriptions",
    "ClientOptions": "eruca._client.options",
    "Concurrency": "eruca._client.push.handlers",
    "ConsumeHook": "eruca._client.group.observing",
    "Consumer": "eruca._client.push.consumer",
    "Decided": "eruca._client.produce.checks",
    "Decision": "eruca._client.produce.checks",
    "Duration": "eruca._ground.durations",
    "Filter": "eruca._client.group.subscriptions",
    "Flow": "eruca._client.group.settings",
    "Half": "eruca._client.produce.transactions",
    "Lag": "eruca._client.group.lag",
    "Message": "eruca._client.message",
    "MessageQueue": "eruca._wire.bodies",
    "Offsets": "eruca._client.group.settings",
    "OnChange": "eruca._client.group.settings",
    "OnQueues": "eruca._client.pull.membership",
    "Outcome": "eruca._client.message",
    "Outgoing": "eruca._client.produce.outgoing",
    "Parcel": "eruca._client.produce.sending",
    "Producer": "eruca._client.produce.producer",
    "PullCallback": "eruca._client.pull.scheduledpull",
    "PullConsumer": "eruca._client.pull.consumer",
    "PullContext": "eruca._client.pull.scheduledpull",
    "PullResult": "eruca._client.pull.queuereading",
    "PullStatus": "eruca._client.session.calls",
    "Rebalance": "eruca._client.group.settings",
    "Receipt": "eruca._client.produce.outgoing",
    "Retry": "eruca._client.group.settings",
    "RetryLater": "eruca.errors",
    "ScheduledPull": "eruca._client.pull.scheduledpull",
    "Selector": "eruca._client.produce.choosing",
    "SendHook": "eruca._client.produce.delivery",
    "SendStatus": "eruca._client.produce.outgoing",
    "Sql": "eruca._client.group.subscriptions",
    "Start": "eruca._client.group.settings",
    "Subscribe": "eruca._client.group.subscriptions",
    "Tls": "eruca._net.tls",
    "TlsChoice": "eruca._net.tls",
    "TopicChoice": "eruca._client.group.subscriptions",
    "TransactionReceipt": "eruca._client.produce.transactions",
    "TransactionalProducer": "eruca._client.produce.transactions",
}
__all__ = [*sorted(_PUBLIC), "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'eruca' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
