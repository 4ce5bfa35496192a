"""What is wrong with an argument is said when it is given, by its name; and how a producer shows itself."""

from __future__ import annotations

import gc
from datetime import timedelta
from typing import Any

import pytest

import eruca.sync
from eruca._client.options import ClientOptions
from eruca._client.produce.producer import Producer
from eruca._client.produce.transactions import TransactionalProducer
from eruca._nameserver.app import NameServer
from eruca.errors import ConfigError, ErucaError, InvalidName, WrongType
from eruca.serializers import json_serializer, text_serializer
from tests.integration.client.conftest import MakeProducer
from tests.unit.client.scripted import ScriptedCluster

NAMES = "127.0.0.1:9876"


@pytest.mark.parametrize("kind", [Producer, eruca.sync.Producer])
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"nameservers": "127.0.0.1"}, "nameservers=127.0.0.1: '127.0.0.1' is not host:port"),
        ({"nameservers": "a:1;b"}, "nameservers=a:1;b: 'b' is not host:port"),
        (
            {"nameservers": "http://x:1"},
            "nameservers='http://x:1': 'http://x:1' is a URL, not host:port.*address_server",
        ),
        ({"nameservers": ["a:1", 7]}, "nameservers="),
        ({"nameservers": 9876}, "nameservers=9876: expected a str"),
        ({"options": {"namespace": "x"}}, "options=.*expected ClientOptions, not dict"),
        ({"group": 7}, "group=7: expected str, not int"),
        ({"timeout": -1}, "timeout=-1"),
        ({"timeout": "3s"}, "timeout='3s': expected a duration"),
        ({"try_timeout": timedelta(seconds=-1)}, "try_timeout="),
        ({"retries": -1}, "retries=-1: must be at least 0"),
        ({"retries": 2.5}, "retries=2.5: expected an int, not float"),
        ({"retry_when_not_synced": "no"}, "retry_when_not_synced='no': expected bool"),
        ({"avoid_slow_brokers": 1}, "avoid_slow_brokers=1: expected bool"),
        ({"compress_from": "4k"}, "compress_from='4k': expected an int"),
        ({"compression": "zip"}, "compression='zip': expected one of zlib, lz4, zstd"),
        ({"compression_level": "best"}, "compression_level='best': expected an int"),
        ({"message_bytes_max": 0}, "message_bytes_max=0: must be at least 1"),
        ({"linger": -0.1}, "linger=-0.1"),
        ({"linger": "5ms"}, "linger='5ms': expected a duration"),
        ({"in_flight_max": 0}, "in_flight_max=0: must be at least 1"),
        ({"bytes_in_flight_max": True}, "bytes_in_flight_max=True: expected an int, not bool"),
        ({"serializer": "json"}, "serializer='json': expected a function"),
        ({"hooks": 7}, "hooks=7: expected Iterable, not int"),
        ({"trace": 7}, "trace=7: expected bool or str"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_wrong_argument_of_a_producer_is_named(kind: Any, how: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){told}"):
        kind(**{"nameservers": NAMES, **how})


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"call_timeout": 0}, "call_timeout=0"),
        ({"route_interval": -1}, "route_interval=-1"),
        ({"heartbeat_interval": "30s"}, "heartbeat_interval='30s': expected a duration"),
        ({"calls_max": 0}, "calls_max=0"),
        ({"namespace": None}, "namespace=None: expected str"),
        ({"address_server": "10.0.0.1"}, "address_server='10.0.0.1': expected a URL"),
        ({"tls": "ca.pem"}, "tls='ca.pem': expected bool or Tls or SSLContext"),
    ],
)
def test_a_wrong_option_is_named(how: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ClientOptions(**how)


def test_options_are_equal_however_their_durations_are_given() -> None:
    one = ClientOptions(ip="127.0.0.1", call_timeout=2, heartbeat_interval=timedelta(minutes=1))
    assert one == ClientOptions(ip="127.0.0.1", call_timeout=timedelta(seconds=2), heartbeat_interval=60.0)
    assert (one.call_timeout, one.heartbeat_interval) == (2.0, 60.0)


async def test_a_wrong_address_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1")
    producer = Producer(group="shop")
    with pytest.raises(ConfigError, match=r"NAMESRV_ADDR=10\.0\.0\.1"):
        await producer.start()
    assert repr(producer) == "<Producer group='shop' nameservers='' not started>"


@pytest.mark.parametrize(
    ("how", "told"),
    [({"check": None}, "check=None: expected a function"), ({"checks_max": 0}, "checks_max=0")],
)
def test_a_wrong_argument_of_transactions_is_named(how: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TransactionalProducer(NAMES, **{"check": lambda _: None, **how})


@pytest.mark.parametrize(
    ("how", "error", "told"),
    [
        ({"topic": 7}, WrongType, "topic must be a str, not int"),
        ({"topic": ["orders"]}, WrongType, "topic must be a str, not list"),
        ({"topic": "a b"}, InvalidName, "topic"),
        ({"body": "text"}, WrongType, "body must be bytes, not str"),
        ({"body": None}, WrongType, "body must be bytes, not NoneType"),
        ({"shard": 7}, WrongType, "shard must be a str, not int"),
        ({"queue": 2}, WrongType, "queue must be a MessageQueue, not int"),
        ({"selector": "first"}, WrongType, "selector must be a function, not str"),
        ({"tags": ["a"]}, WrongType, "tags must be a str, not list"),
        ({"keys": 7}, WrongType, "keys must be a str or several"),
        ({"properties": [("a", "b")]}, WrongType, "properties must be a dict, not list"),
        ({"flag": "1"}, WrongType, "flag must be an int"),
        ({"wait": "no"}, WrongType, "wait must be True or False"),
        ({"timeout": -1}, ConfigError, "timeout=-1"),
        ({"timeout": "1s"}, ConfigError, "timeout='1s'"),
        ({"delay": "10s"}, ConfigError, "delay='10s'"),
        ({"delay_level": "3"}, WrongType, "delay_level must be an int"),
        ({"timer": "tomorrow"}, ConfigError, "timer='tomorrow'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
async def test_a_wrong_argument_of_a_send_is_named(
    scripted: ScriptedCluster, make_producer: MakeProducer, how: dict[str, Any], error: type[Exception], told: str
) -> None:
    producer = await make_producer(scripted.address)
    for send in (producer.send, producer.send_soon):
        with pytest.raises(error, match=told):
            await send(**{"topic": "orders", "body": b"x", **how})
    assert scripted.nameserver.asked == [] and producer._engine.window.count == 0


async def test_a_batch_that_is_none_is_named(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    producer = await make_producer(scripted.address)
    with pytest.raises(ConfigError, match="messages=7: expected Iterable, not int"):
        await producer.send_batch("orders", 7)


async def test_a_producer_shows_its_group_and_state(nameserver: NameServer) -> None:
    producer = Producer([nameserver.address, "127.0.0.1:1"], group="shop")
    shown = f"<Producer group='shop' nameservers='{nameserver.address};127.0.0.1:1'"
    assert repr(producer) == f"{shown} not started>"
    async with producer:
        assert repr(producer) == f"{shown} started>"
    assert repr(producer) == f"{shown} closed>"
    assert repr(eruca.sync.Producer("a:1", group="g")) == "<Producer group='g' nameservers='a:1' not started>"
    assert repr(TransactionalProducer("a:1", group="g", check=lambda _: None)).startswith("<TransactionalProducer ")


def test_a_producer_shows_only_what_users_call() -> None:
    public = {name for name in dir(Producer("a:1")) if not name.startswith("_")}
    sending = {"send", "send_soon", "send_oneway", "send_batch", "cancel_delayed", "list_queues", "request", "reply"}
    assert public == {"options", "group", "start", "close"} | sending
    transactional = {name for name in dir(TransactionalProducer("a:1", check=lambda _: None)) if name[0] != "_"}
    assert transactional == public | {"send_transaction", "transaction"}
    assert {name for name in dir(eruca.sync.Producer("a:1")) if name[0] != "_"} == public


async def test_a_forgotten_producer_is_named(nameserver: NameServer) -> None:
    async with Producer(nameserver.address, group="other"):  # the session continues
        producer = Producer(nameserver.address, group="forgotten")
        await producer.start()
        engine = producer._engine
        with pytest.warns(ResourceWarning, match="<Producer group='forgotten' nameservers=.* started> was not closed"):
            del producer
            gc.collect()
        await engine.close()


def test_a_forgotten_plain_producer_is_named() -> None:
    producer = eruca.sync.Producer("127.0.0.1:1", group="forgotten")
    producer.start()
    twin, thread = producer._twin, producer._thread
    assert thread is not None
    with pytest.warns(
        ResourceWarning, match="<Producer group='forgotten' nameservers='127.0.0.1:1' started> was not closed"
    ):
        del producer
        gc.collect()
    thread.run(twin.close())
    thread.remove(twin)


async def test_a_serializer_makes_the_bodies(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, serializer=json_serializer())
    await producer.send("orders", {"id": 7})
    await (await producer.send_soon("orders", [1]))
    await producer.send_oneway("orders", "text")
    await producer.send_batch("orders", [{"id": 8}, eruca.Outgoing({"id": 9}, tags="t")])
    assert broker.bodies[:2] == [b'{"id":7}', b"[1]"] and b'"text"' in broker.bodies
    assert any(b'{"id":8}' in body and b'{"id":9}' in body for body in broker.bodies)
    with pytest.raises(ErucaError, match="object cannot be written as JSON"):
        await producer.send("orders", object())
    texts = await make_producer(scripted.address, group="texts", serializer=text_serializer())
    await texts.send("orders", "Grüße")
    assert broker.bodies[-1] == "Grüße".encode()
    wrong = await make_producer(scripted.address, group="wrong", serializer=str)
    with pytest.raises(WrongType, match="body must be bytes, not str"):
        await wrong.send("orders", 7)
