"""The clients without `async`: the same names, arguments and errors.

>>> from eruca.sync import Consumer, Producer
>>> with Producer("127.0.0.1:9876", group="shop") as producer:
...     producer.send("orders", b"...")
>>> with Admin("127.0.0.1:9876") as admin:
...     print(admin.groups.show("billing").lag)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eruca._client.group.lag import Lag
from eruca._client.group.observing import ConsumeHook
from eruca._client.group.settings import Flow, Offsets, OnChange, Rebalance, Retry, Start
from eruca._client.group.subscriptions import ClassFilter, Filter, Sql, Subscribe, TopicChoice
from eruca._client.message import Outcome
from eruca._client.options import ClientOptions
from eruca._client.produce.checks import Decided, Decision
from eruca._client.produce.choosing import Selector
from eruca._client.produce.delivery import SendHook
from eruca._client.produce.outgoing import Outgoing, Receipt, SendStatus
from eruca._client.produce.sending import Parcel
from eruca._client.produce.transactions import Half, TransactionReceipt
from eruca._client.pull.membership import OnQueues
from eruca._client.push.handlers import Concurrency
from eruca._client.session.calls import PullStatus
from eruca._client.sync.base import Message
from eruca._client.sync.consumer import Consumer
from eruca._client.sync.producer import Producer
from eruca._client.sync.pullconsumer import PullConsumer
from eruca._client.sync.pulling import PullResult
from eruca._client.sync.scheduledpull import ScheduledPull
from eruca._client.sync.scheduling import PullCallback, PullContext
from eruca._client.sync.transactions import TransactionalProducer
from eruca._ground.durations import Duration
from eruca._net.tls import Tls, TlsChoice
from eruca._wire.bodies import MessageQueue
from eruca.errors import RetryLater

if TYPE_CHECKING:
    from eruca._admin.sync.admin import Admin

__all__ = [
    "Admin",
    "ClassFilter",
    "ClientOptions",
    "Concurrency",
    "ConsumeHook",
    "Consumer",
    "Decided",
    "Decision",
    "Duration",
    "Filter",
    "Flow",
    "Half",
    "Lag",
    "Message",
    "MessageQueue",
    "Offsets",
    "OnChange",
    "OnQueues",
    "Outcome",
    "Outgoing",
    "Parcel",
    "Producer",
    "PullCallback",
    "PullConsumer",
    "PullContext",
    "PullResult",
    "PullStatus",
    "Rebalance",
    "Receipt",
    "Retry",
    "RetryLater",
    "ScheduledPull",
    "Selector",
    "SendHook",
    "SendStatus",
    "Sql",
    "Start",
    "Subscribe",
    "Tls",
    "TlsChoice",
    "TopicChoice",
    "TransactionReceipt",
    "TransactionalProducer",
]


def __getattr__(name: str) -> Any:
    # Imported when it is used: a program that only sends and receives need not load it.
    if name != "Admin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from eruca._admin.sync.admin import Admin

    return Admin
