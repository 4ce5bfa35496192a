"""The clients without `async`: the same names, arguments and errors.

>>> from eruca.sync import Consumer, Producer
>>> with Producer("127.0.0.1:9876", group="shop") as producer:
...     producer.send("orders", b"...")
"""

from __future__ import annotations

from eruca.client.consume.pulling import PullLimits
from eruca.client.consume.subscriptions import ClassFilter, Sql
from eruca.client.message import Outcome
from eruca.client.options import ClientOptions
from eruca.client.produce.outgoing import Outgoing, Receipt, SendStatus
from eruca.client.produce.transactions import Decision, Half, TransactionReceipt
from eruca.client.sync.base import Message
from eruca.client.sync.consumer import Consumer
from eruca.client.sync.producer import Producer
from eruca.client.sync.pullconsumer import PullConsumer, PullResult
from eruca.client.sync.scheduledpull import PullContext, ScheduledPull
from eruca.client.sync.transactions import TransactionalProducer
from eruca.errors import RetryLater
from eruca.wire.bodies import MessageQueue

__all__ = [
    "ClassFilter",
    "ClientOptions",
    "Consumer",
    "Decision",
    "Half",
    "Message",
    "MessageQueue",
    "Outcome",
    "Outgoing",
    "Producer",
    "PullConsumer",
    "PullContext",
    "PullLimits",
    "PullResult",
    "Receipt",
    "RetryLater",
    "ScheduledPull",
    "SendStatus",
    "Sql",
    "TransactionReceipt",
    "TransactionalProducer",
]
