"""Settings of consumers: what cannot be is refused when it is given, by an error that names the argument."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from eruca import (
    ClassFilter,
    ClientOptions,
    Consumer,
    Flow,
    Offsets,
    Outgoing,
    Producer,
    PullConsumer,
    Rebalance,
    Retry,
    RetryLater,
    ScheduledPull,
    Sql,
    TransactionalProducer,
    sync,
)
from eruca._client.message import Message
from eruca._wire.bodies import MessageQueue
from eruca._wire.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC, encode_properties
from eruca._wire.record import Record
from eruca.errors import ConfigError, ErucaError, SerializationError, WrongType
from eruca.serializers import json_deserializer

SERVER = "127.0.0.1:9876"


def handle_nothing() -> None:
    """What takes no argument."""


def print_one(queues: object) -> None:
    """What takes one argument."""


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Retry(max_deliveries=0), "Retry.max_deliveries=0: must be at least 1"),
        (lambda: Retry(max_deliveries=True), "Retry.max_deliveries=True: expected an int, not bool"),
        (lambda: Retry(handler_timeout=-1), "Retry.handler_timeout=-1"),
        (lambda: Retry(suspend=31), "Retry.suspend=31: must be between 0.01 and 30 seconds"),
        (lambda: Flow(batch=0), "Flow.batch=0"),
        (lambda: Flow(batch=5000), "Flow.batch=5000: must be between 1 and 1024"),
        (lambda: Flow(span_max=0), "Flow.span_max=0"),
        (lambda: Flow(hold=-1), "Flow.hold=-1"),
        (lambda: Flow(timeout=0), "Flow.timeout=0"),
        (lambda: Flow(ordered_concurrency=0), "Flow.ordered_concurrency=0"),
        (lambda: Rebalance(interval=0), "Rebalance.interval=0"),
        (lambda: Flow(hold=5, timeout=2), "Flow.timeout=2: must be longer than Flow.hold=5"),
        (lambda: Flow(hold=5, timeout=5.0), "Flow.timeout=5.0: must be longer than Flow.hold=5"),
        (lambda: Rebalance(strategy="averge"), "Rebalance.strategy='averge': no such strategy (did you mean average?)"),
        (lambda: Rebalance(strategy="nope"), "Rebalance.strategy='nope': no such strategy (available: average, circle"),
        (
            lambda: Rebalance(on_change=print_one),  # type: ignore[arg-type]
            "Rebalance.on_change=print_one cannot be called with (assigned, revoked)",
        ),
        (lambda: Producer(SERVER, trace="bad topic"), "trace='bad topic': the topic name 'bad topic' has"),
        (lambda: Consumer(SERVER, group="g", trace=""), "trace='': the topic name is empty"),
        (lambda: Producer("127.0.0.1:99999"), "nameservers=127.0.0.1:99999: '127.0.0.1:99999' is not host:port"),
        (lambda: ClientOptions(nameservers="127.0.0.1:0"), "ports are 1 to 65535"),
        (lambda: Outgoing(b"x", tags=["a"]), "tags must be a str, not list"),  # type: ignore[arg-type]
        (lambda: Outgoing(b"x", keys=7), "keys must be a str or several of them, not int"),  # type: ignore[arg-type]
        (lambda: Outgoing(b"x", properties=[("a", "b")]), "properties must be a dict"),  # type: ignore[arg-type]
        (lambda: Outgoing(b"x", flag="1"), "flag must be an int, not str"),  # type: ignore[arg-type]
        (lambda: Outgoing(b"x", wait=1), "wait must be True or False, not 1"),  # type: ignore[arg-type]
        (lambda: Outgoing(b"x", delay="x"), "delay='x': expected a duration"),  # type: ignore[arg-type]
        (lambda: RetryLater(delay="x"), "RetryLater.delay='x': expected a duration, not str"),  # type: ignore[arg-type]
        (lambda: RetryLater(delay=True), "RetryLater.delay=True: expected a duration, not bool"),
        (lambda: RetryLater(delay_level=1.5), "RetryLater.delay_level=1.5: expected int"),  # type: ignore[arg-type]
        (lambda: RetryLater(delay=1, delay_level=2), "RetryLater: delay and delay_level are mutually exclusive"),
        (lambda: Producer(SERVER, serializer=lambda: b""), "cannot be called with (body)"),  # type: ignore[arg-type, misc]
        (lambda: Consumer(SERVER, group="g", deserializer=lambda: 1), "cannot be called with (body)"),  # type: ignore[arg-type, misc]
        (
            lambda: TransactionalProducer(SERVER, check=handle_nothing),  # type: ignore[arg-type]
            "check=handle_nothing cannot be called with (message)",
        ),
        (lambda: sync.TransactionalProducer(SERVER, check=handle_nothing), "check=handle_nothing cannot be called"),  # type: ignore[arg-type]
        (lambda: PullConsumer(SERVER, group="g", watch={"a": handle_nothing}), "watch['a']=handle_nothing cannot be"),  # type: ignore[dict-item]
        (lambda: Rebalance(on_change="no"), "Rebalance.on_change='no': expected a function"),  # type: ignore[arg-type]
        (lambda: Offsets(interval="1s"), "Offsets.interval='1s': expected a duration"),  # type: ignore[arg-type]
        (lambda: Offsets(directory="here"), "Offsets.directory='here': expected Path, not str"),  # type: ignore[arg-type]
        (lambda: Rebalance(exclusive=1), "Rebalance.exclusive=1: expected bool"),  # type: ignore[arg-type]
        (lambda: Rebalance(strategy=5), "Rebalance.strategy=5: expected a name"),  # type: ignore[arg-type]
        (lambda: Retry(backoff=5), "Retry.backoff=5: expected a list"),  # type: ignore[arg-type]
        (lambda: Retry(backoff=["1"]), "Retry.backoff='1': expected a duration"),  # type: ignore[list-item]
        (lambda: Sql(5), "Sql.text=5: expected str"),  # type: ignore[arg-type]
        (lambda: ClassFilter("Large", "wasm"), "ClassFilter.module='wasm': expected bytes"),  # type: ignore[arg-type]
        (lambda: Consumer(SERVER, group="g", drain=-1), "drain=-1"),
        (lambda: Consumer(SERVER, group="g", start="first"), "start='first'"),  # type: ignore[arg-type]
        (lambda: PullConsumer(SERVER, group="g", poll_batch=0), "poll_batch=0"),
        (lambda: ScheduledPull(SERVER, group="g", threads=0), "threads=0"),
        (lambda: ScheduledPull(SERVER, group="g", delay=-1), "delay=-1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        make()


def test_durations_are_timedeltas_or_seconds() -> None:
    made: list[Any] = [
        Flow(hold=timedelta(seconds=2), interval=0),
        Retry(handler_timeout=timedelta(minutes=5)),
        Rebalance(interval=timedelta(seconds=1), lock_interval=3),
        Offsets(interval=timedelta(milliseconds=5), directory=Path("here")),
    ]
    assert made[0].hold == timedelta(seconds=2)
    Consumer(SERVER, group="g", drain=timedelta(seconds=3), retry=made[1], rebalance=made[2], offsets=made[3])


def test_a_consumer_says_who_it_is() -> None:
    consumer = Consumer(SERVER, group="billing", subscribe=["orders", "bills"])
    where = f"nameservers={SERVER!r} not started>"
    assert repr(consumer) == f"<Consumer group='billing' topics=['orders', 'bills'] {where}"
    matching = PullConsumer(SERVER, group="billing", subscribe=re.compile("orders-.*"))
    assert repr(matching) == f"<PullConsumer group='billing' topics=['orders-.*'] {where}"
    assert repr(ScheduledPull(SERVER, group="g")) == f"<ScheduledPull group='g' topics=[] {where}"
    assert repr(Producer(SERVER, group="g")) == f"<Producer group='g' {where}"
    assert (
        repr(sync.Consumer(SERVER, group="g", subscribe="orders")) == f"<Consumer group='g' topics=['orders'] {where}"
    )


@pytest.mark.parametrize("kind", [Consumer, PullConsumer, ScheduledPull, sync.Consumer])
def test_a_start_needs_a_time_zone(kind: Any) -> None:
    with pytest.raises(ConfigError, match=r"start=datetime.*has no time zone"):
        kind(SERVER, group="g", start=datetime(2026, 1, 1))


@pytest.mark.parametrize("clients", [(Producer, TransactionalProducer), (sync.Producer, sync.TransactionalProducer)])
def test_a_transactional_producer_takes_what_a_producer_takes(clients: tuple[Any, Any]) -> None:
    plain, transactional = (dict(signature(kind).parameters) for kind in clients)
    del transactional["check"], transactional["checks_max"]
    assert transactional == plain


@pytest.mark.parametrize("kind", [Consumer, PullConsumer, ScheduledPull, Producer, sync.Consumer, sync.Producer])
def test_the_group_is_shown_as_it_was_given(kind: Any) -> None:
    client = kind(SERVER, group="billing", options=ClientOptions(namespace="shop"))
    assert client.group == "billing"
    assert "group='billing'" in repr(client)


def make_message(body: bytes, properties: dict[str, str], decode: Any = None) -> Message:
    record = Record("%DLQ%billing", body=body, properties=encode_properties(properties), reconsume_times=3)
    return Message(record, MessageQueue("b", 0, "%DLQ%billing"), decode=decode)


def test_a_dead_letter_says_where_it_is_from() -> None:
    message = make_message(b"x", {RETRY_TOPIC: "orders", ORIGIN_MESSAGE_ID: "7F01"})
    assert (message.topic, message.origin_topic, message.origin_id) == ("%DLQ%billing", "orders", "7F01")
    assert message.delivery == 4


def test_a_value_is_decoded_once_and_when_it_is_read() -> None:
    calls: list[bytes] = []

    def decode(body: bytes) -> object:
        calls.append(body)
        return json_deserializer()(body)

    message = make_message(b'{"a": 1}', {}, decode)
    assert calls == []
    assert (message.value, message.value) == ({"a": 1}, {"a": 1})
    assert calls == [b'{"a": 1}']
    assert make_message(b"plain", {}).value == b"plain"


@pytest.mark.parametrize("decode", [json_deserializer(), lambda body: {}[body]])
def test_a_body_that_cannot_be_decoded_names_its_message(decode: Any) -> None:
    message = make_message(b"{", {}, decode)
    for _ in range(2):
        with pytest.raises(SerializationError, match=r"the body of <Message .* cannot be decoded"):
            message.value  # noqa: B018


def handle(message: Message) -> None:
    """A handler."""


@pytest.mark.parametrize("kind", [Consumer, PullConsumer, ScheduledPull, sync.Consumer, sync.PullConsumer])
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"nameservers": "127.0.0.1"}, "nameservers=127.0.0.1: '127.0.0.1' is not host:port"),
        ({"options": {"namespace": "x"}}, "expected ClientOptions, not dict"),
        ({"group": ""}, "the group name is empty"),
        ({"start": 5}, "start=5: expected 'latest'"),
        ({"broadcast": "no"}, "broadcast='no': expected bool"),
        ({"flow": 32}, "flow=32: expected Flow, not int"),
        ({"retry": 3}, "retry=3: expected Retry, not int"),
        ({"rebalance": "average"}, "rebalance='average': expected Rebalance, not str"),
        ({"offsets": 5.0}, "offsets=5.0: expected Offsets, not float"),
        ({"deserializer": "json"}, "deserializer='json': expected a function"),
        ({"subscribe": 5}, "subscribe=5: expected Mapping or Iterable, not int"),
        ({"subscribe": ["orders", 5]}, "subscribe=5: expected str or Pattern, not int"),
        ({"subscribe": {"orders": ["vip"]}}, "tags=['vip']: expected str or Sql or ClassFilter, not list"),
        ({"subscribe": "or ders"}, "the topic name 'or ders'"),
        ({"hooks": 7}, "hooks=7: expected Iterable"),
        ({"trace": 7}, "trace=7: expected bool or str"),
        ({"auto_commit": 1}, "auto_commit=1: expected bool"),
        ({"watch": 5}, "watch=5: expected Mapping"),
        ({"watch": {"orders": 5}}, "watch['orders']=5: expected a function"),
        ({"drain": "30s"}, "drain='30s': expected a duration"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_wrong_argument_of_a_consumer_is_named(kind: Any, how: dict[str, Any], words: str) -> None:
    if set(how) <= {*signature(kind).parameters}:
        with pytest.raises(ErucaError, match=re.escape(words)):
            kind(**{"nameservers": SERVER, "group": "g", **how})
    else:
        assert set(how) <= {"subscribe", "retry", "deserializer", "hooks", "trace", "auto_commit", "watch", "drain"}


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"topic": handle}, 'expected a topic (@consumer.handler("topic"))'),
        ({"topic": 5}, "topic=5: expected str or Pattern"),
        ({"topic": "or ders"}, "the topic name 'or ders'"),
        ({"tags": ["a", "b"]}, "tags=['a', 'b']: expected str or Sql or ClassFilter, not list"),
        ({"concurrency": 0}, "concurrency=0: must be at least 1"),
        ({"concurrency": "many"}, "concurrency='many': expected a number or 'auto'"),
        ({"concurrency": 2.5}, "concurrency=2.5: expected an int"),
        ({"batch": 0}, "batch=0: must be between 1 and 1024"),
        ({"batch": 1025}, "batch=1025: must be between 1 and 1024"),
        ({"batch": "all"}, "batch='all': expected an int"),
        ({"ordered": "yes"}, "ordered='yes': expected bool"),
        ({"auto_commit": 0}, "auto_commit=0: expected bool"),
        ({"auto_commit": False}, "auto_commit=False is for ordered handlers"),
    ],
)
def test_a_wrong_argument_of_a_handler_is_named(kind: Any, how: dict[str, Any], words: str) -> None:
    consumer = kind(SERVER, group="g")
    with pytest.raises(ErucaError, match=re.escape(words)):
        consumer.handler(**{"topic": "orders", **how})(handle)


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
def test_a_handler_without_its_topic_is_refused_at_once(kind: Any) -> None:
    """`@consumer.handler` without parentheses: nothing would ever call the decorator that it returns."""
    with pytest.raises(ConfigError, match="expected a topic"):
        kind(SERVER, group="g").handler(handle)


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
@pytest.mark.parametrize(
    ("function", "how", "words"),
    [
        (handle_nothing, {}, "the handler of orders cannot be called with (message): too many positional"),
        (handle_nothing, {"batch": 8}, "the handler of orders cannot be called with (messages)"),
        (lambda message, other: None, {}, "the handler of orders cannot be called with (message): missing"),
        (lambda *, message: None, {}, "the handler of orders cannot be called with (message)"),
        (5, {}, "the handler of orders is not a function: 5"),
    ],
)
def test_a_handler_that_cannot_take_a_message_is_refused(kind: Any, function: Any, how: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        kind(SERVER, group="g").handler("orders", **how)(function)


@pytest.mark.parametrize("kind", [ScheduledPull, sync.ScheduledPull])
def test_a_callback_that_cannot_take_a_queue_and_a_context_is_refused(kind: Any) -> None:
    scheduled = kind(SERVER, group="g")
    for function in (handle_nothing, print_one):
        with pytest.raises(ConfigError, match=r"the callback of orders cannot be called with \(queue, context\)"):
            scheduled.callback("orders")(function)
    scheduled.callback("orders")(lambda queue, context, more=1: None)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Flow(hold="5"),  # type: ignore[arg-type]
        lambda: Outgoing(b"x", keys=7),  # type: ignore[arg-type]
        lambda: ClientOptions(namespace=5),  # type: ignore[arg-type]
        lambda: RetryLater(delay="x"),  # type: ignore[arg-type]
        lambda: Consumer(SERVER, group="g").handler(5),  # type: ignore[call-overload]
    ],
)
def test_a_wrong_type_is_a_config_error_and_a_type_error(wrong: Callable[[], object]) -> None:
    for kind in (ErucaError, ConfigError, TypeError, WrongType):
        with pytest.raises(kind):
            wrong()


def test_handlers_whose_parameters_are_not_known_are_taken() -> None:
    consumer = Consumer(SERVER, group="g")
    for number, function in enumerate([print, lambda *given: None, lambda message, more=1: None, str.upper]):
        consumer.handler(f"t{number}")(function)  # type: ignore[call-overload]
    assert "topics=['t0', 't1', 't2', 't3']" in repr(consumer)


@pytest.mark.parametrize("kind", [ScheduledPull, sync.ScheduledPull])
def test_a_callback_without_its_topic_is_refused_at_once(kind: Any) -> None:
    with pytest.raises(ConfigError, match="expected a topic"):
        kind(SERVER, group="g").callback(handle)


def test_what_is_not_a_queue_is_refused_by_name() -> None:
    consumer = Consumer(SERVER, group="g")
    with pytest.raises(ConfigError, match=r"queues\[0\]='o': expected MessageQueue, not str"):
        consumer.pause("orders")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="expected Iterable, not MessageQueue"):
        consumer.resume(MessageQueue("b", 0, "orders"))  # type: ignore[arg-type]
