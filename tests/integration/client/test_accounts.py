"""Clients of a cluster with accounts: name server and broker both ask for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from eruca import ClientOptions, Consumer, Decision, Message, Outcome, Producer, PullConsumer, TransactionalProducer
from eruca._access.options import AccessOptions
from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca._wire.signature import Credentials
from eruca.errors import ErucaError
from tests.accounts import describe, enable_accounts
from tests.integration.broker.peer import find_port
from tests.patience import PATIENCE_S
from tests.security.guarded import SMALL
from tests.unit.net.rawpeer import turn_until

SHOP = Credentials("shop-account", "secret-of-the-shop")
BILLING = Credentials("billing-account", "secret-of-billing")


@pytest.fixture
def access(tmp_path: Path) -> AccessOptions:
    return enable_accounts(
        tmp_path / "conf",
        describe(SHOP, topicPerms=["orders=PUB"]),
        describe(BILLING, topicPerms=["orders=SUB"], groupPerms=["billing=SUB"]),
        brokerRemoteAddresses=["127.0.0.1"],
    )


@pytest.fixture
async def nameserver(tmp_path: Path, access: AccessOptions) -> AsyncIterator[str]:
    """A name server and a broker, both with accounts."""
    options = NameServerOptions(
        listen_port=0, kv_config_path=str(tmp_path / "kv.json"), config_store_path=str(tmp_path / "namesrv.conf")
    )
    server = NameServer(options, access=access)
    await server.start()
    chosen = BrokerOptions(port=find_port(), nameservers=server.address)
    # Messages that are given back return after a second.
    store_options = replace(SMALL, delay_levels="1s 1s 1s 1s")
    broker = Broker(chosen, store_options, tmp_path / "store", access=access)
    await broker.start()
    yield server.address
    await broker.stop()
    await server.stop()


def sign_in(nameserver: str, who: Credentials | None) -> ClientOptions:
    key, secret = ("", "") if who is None else (who.access_key, who.secret_key)
    return ClientOptions(nameservers=nameserver, access_key=key, secret_key=secret)


async def test_who_may_publish_sends_and_who_may_subscribe_consumes(nameserver: str) -> None:
    seen: asyncio.Queue[tuple[bytes, int]] = asyncio.Queue()

    async def handle(message: Message) -> Outcome:
        seen.put_nowait((message.body, message.delivery))
        # The first is given back once: the retry topic follows the right of the group.
        return Outcome.LATER if message.body == b"one" and message.delivery == 1 else Outcome.DONE

    async with Producer(group="shop", options=sign_in(nameserver, SHOP)) as producer:
        await producer.send("orders", b"one")
        await producer.send_batch("orders", [b"two", b"three"])
        consumer = Consumer(group="billing", start="earliest", options=sign_in(nameserver, BILLING))
        consumer.handler("orders")(handle)
        async with consumer, asyncio.timeout(PATIENCE_S):
            found = [await seen.get() for _ in range(4)]
    assert sorted(found) == [(b"one", 1), (b"one", 2), (b"three", 1), (b"two", 1)]


async def test_a_transaction_needs_the_right_to_publish_and_no_other(nameserver: str) -> None:
    async def check(message: Message) -> Decision:
        raise AssertionError("it was decided at once")

    async with TransactionalProducer(group="shop", check=check, options=sign_in(nameserver, SHOP)) as producer:
        await producer.send_transaction("orders", b"decided", local=lambda receipt: Decision.COMMIT)
    options = sign_in(nameserver, BILLING)
    consumer = PullConsumer(group="billing", subscribe="orders", start="earliest", options=options)
    async with consumer, asyncio.timeout(PATIENCE_S):
        assert [message.body for message in await consumer.poll(PATIENCE_S)] == [b"decided"]


@pytest.mark.parametrize(
    ("who", "problem"),
    [
        (None, "No accessKey is configured"),
        (Credentials(SHOP.access_key, "a-guessed-secret"), "Check signature failed for accessKey=shop-account"),
        (Credentials("who-is-this", "whatever"), "Check signature failed for accessKey=who-is-this"),
        (BILLING, "No default permission for topic:orders"),
    ],
)
async def test_who_may_not_publish_is_told_so_at_once(
    nameserver: str, who: Credentials | None, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Producer(group="shop", options=sign_in(nameserver, SHOP)) as producer:
        await producer.send("orders", b"the topic exists now")
    with pytest.raises(ErucaError, match=problem) as caught:
        async with Producer(group="shop", options=sign_in(nameserver, who)) as producer:
            await producer.send("orders", b"no")
    assert "guessed" not in str(caught.value)
    # No other try would have another result.
    assert not caught.value.retryable
    assert "was not found" not in caplog.text


@pytest.mark.parametrize(
    ("who", "group", "problem"), [(SHOP, "billing", "topic:orders"), (BILLING, "another", "group:another")]
)
async def test_who_may_not_consume_reads_it_in_the_log(
    nameserver: str, who: Credentials, group: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer goes on trying: the account may get the permission."""
    async with Producer(group="shop", options=sign_in(nameserver, SHOP)) as producer:
        await producer.send("orders", b"the topic exists now")
    consumer = PullConsumer(group=group, subscribe="orders", options=sign_in(nameserver, who))
    starting = asyncio.create_task(consumer.start())
    await turn_until(lambda: f"No default permission for {problem}" in caplog.text)
    assert consumer.assignment == []
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await consumer.close()
