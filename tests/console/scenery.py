"""A cluster and a console with something on every page, for screenshots and for the checks of accessibility.

Topics, messages, groups that keep up and groups that do not, dead letters; users, masks, a rule that fires.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import re
import secrets
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import httpx

from eruca import ClientOptions, Consumer, Message, Offsets, Producer, Rebalance, Receipt
from eruca._wire.signature import Credentials
from eruca.admin import Admin
from eruca.errors import ConfigError
from tests.accounts import describe, enable_accounts
from tests.admin.stage import poll
from tests.console.browsing import ADMIN, PASSWORD, ConsoleProcess, log_in, read_token
from tests.integration.admin.staging import bury, prepare
from tests.interop.brokers import SETTINGS
from tests.patience import PATIENCE_S

TOPICS: Final = {
    "shop-orders": 8,
    "shop-payments": 8,
    "shop-shipments": 4,
    "shop-refunds": 4,
    "billing-invoices": 4,
    "billing-reminders": 2,
    "audit-logins": 1,
    "inventory": 4,
}
#: Groups by what becomes of them.
KEEPS_UP, SLOW, ABSENT, FAILING = "billing", "analytics", "reporting", "payments-worker"
LATE: Final = "fraud-check"
KEY: Final = "order-1007"
USER: Final = "on-call"
ACCOUNT: Final = "shop-app"
DOUBT: Final = "7F00000100002A9F0000000000000001"
_QUICK: Final = ClientOptions(route_interval=0.5)
_ORDERS: Final = 240
_DELAY_LEVELS: Final = (9, 16, 18)


@dataclass(frozen=True)
class Scenery:
    """What addresses of pages need to know of a filled cluster and its console."""

    # The parts of the address of the page of the message with the key `KEY`.
    message_path: tuple[str, ...]
    # The client id of the member of the group `SLOW`.
    client: str
    # The id of an alarm rule.
    rule: str


def allow_here(home: Path) -> dict[str, object]:
    """Return the settings of a broker that has access control, but not for clients on this machine."""
    broker = Credentials("the-broker", secrets.token_urlsafe(32))
    options = enable_accounts(home, describe(broker, broker=True), globalWhiteRemoteAddresses=["127.0.0.1"])
    keys = {"brokerAccessKey": broker.access_key, "brokerSecretKey": broker.secret_key}
    return {**SETTINGS, **keys, "aclEnable": "true", "aclFile": options.file}


@contextmanager
def keep_scenery(nameserver: str, console: ConsoleProcess, cluster: str, *, busy: bool = False) -> Iterator[Scenery]:
    """Fill a cluster and its console; the groups run in a thread, and if it is `busy`, so do producers."""
    built: list[tuple[tuple[str, ...], str]] = []
    failed: list[BaseException] = []
    is_ready, loop, ending = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def keep() -> None:
        try:
            async with AsyncExitStack() as stack:
                built.append(await stack.enter_async_context(_fill(nameserver)))
                if busy:
                    await stack.enter_async_context(_keep_busy(nameserver))
                is_ready.set()
                await ending.wait()
        except BaseException as error:
            failed.append(error)
            is_ready.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(keep()))
    thread.start()
    try:
        assert is_ready.wait(PATIENCE_S), "the scenery is not there in time"
        assert not failed, failed
        message_path, client = built[0]
        yield Scenery(message_path, client, _furnish(console.address, cluster))
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(PATIENCE_S)
        loop.close()


def _furnish(address: str, cluster: str) -> str:
    """Make changes in a console whose administrator has chosen a password; returns the id of a rule."""
    with httpx.Client(base_url=address, timeout=PATIENCE_S) as client:
        log_in(client, ADMIN, PASSWORD)
        rule = {"name": "too much waits", "kind": "lag", "threshold": 100, "duration": 0, "enabled": True}
        hook = {"name": "on call", "kind": "webhook", "target": "https://hooks.example.com/eruca", "secret": "s" * 32}
        head = {"X-CSRF-Token": client.get("/api/session").json()["csrf"]}
        for path, body in (
            ("new/topic", {"topic": "shop-coupons", "queues": 4, "permission": "RW"}),
            ("topics/shop-refunds/change", {"write_queues": 6, "read_queues": 6, "permission": "RW"}),
            ("brokers/broker-a/config", {"key": "fileReservedTime", "value": "96"}),
            ("alarms/new/rule", rule),
            ("alarms/new/channel", hook),
        ):
            answer = client.post(f"/api/c/{cluster}/{path}", json=body, headers=head)
            assert answer.status_code < 400, f"{path}: {answer.text}"
        _send_form(client, "/users/new", {"name": USER, "role": "viewer", "grants": "topic shop- operator"})
        _send_form(client, "/masks/new", {"prefix": "shop-", "fields": "customer.email card.number", "role": "admin"})
        rules = client.get(f"/api/c/{cluster}/alarms/rules").json()["items"]
        return str(rules[0]["id"])


def _send_form(client: httpx.Client, path: str, fields: Mapping[str, str]) -> None:
    """Fill in a form, and confirm what it would do."""
    fields = {"csrf": read_token(client.get(path).text), **fields}
    preview = client.post(path, data=fields)
    plan = re.search(r'name="plan" value="([^"]+)"', preview.text)
    assert plan is not None, preview.text
    done = client.post(path, data={**fields, "plan": plan[1]})
    assert done.status_code == 200, done.text


@asynccontextmanager
async def _fill(nameserver: str) -> AsyncIterator[tuple[tuple[str, ...], str]]:
    """Fill a cluster, and keep its groups running in the block."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(nameserver, _QUICK))
        for topic, queues in TOPICS.items():
            await admin.topics.create(topic, queues=queues)
        await poll(admin.topics.list, lambda found: {row.name for row in found.items} >= TOPICS.keys())
        async with _member(nameserver, ABSENT, "shop-orders"):
            await stack.enter_async_context(_member(nameserver, KEEPS_UP, "shop-orders"))
            await stack.enter_async_context(_member(nameserver, FAILING, "shop-payments"))
            producer = await stack.enter_async_context(Producer(nameserver, group="shop", options=_QUICK, trace=True))
            await _send(producer, range(20))
            wanted = {KEEPS_UP, ABSENT, FAILING}
            await poll(admin.groups.list, lambda found: {row.name for row in found.items} >= wanted)
        receipts = await _send(producer, range(20, _ORDERS))
        await _remind(producer)
        await stack.enter_async_context(_member(nameserver, SLOW, "shop-orders", stops=True))
        await bury(admin, FAILING, "shop-payments", 7)
        await prepare(admin, "shop-payments", DOUBT)
        await poll(lambda: admin.messages.find_by_key("shop-orders", KEY), lambda found: bool(found.items))
        await _create_account(admin)
        members = await poll(lambda: admin.groups.members(SLOW), lambda found: bool(found.items))
        first = receipts[KEY]
        place = (first.queue.topic, first.queue.broker_name, str(first.queue.queue_id), str(first.offset))
        yield ("messages", *place), members.items[0].client_id


async def _create_account(admin: Admin) -> None:
    """Create an account, if the brokers have access control."""
    with suppress(ConfigError):
        await admin.accounts.create(
            ACCOUNT, secrets.token_urlsafe(32), topics={"shop-orders": "PUB|SUB"}, groups={KEEPS_UP: "SUB"}
        )


async def _send(producer: Producer, numbers: range) -> Mapping[str, Receipt]:
    receipts = {}
    for number in numbers:
        order = {"order": 987 + number, "customer": f"c-{number % 37}", "amount": round(7.5 + number * 1.37, 2)}
        body, key, region = json.dumps(order).encode(), f"order-{987 + number}", ("eu", "us", "cn")[number % 3]
        receipts[key] = await producer.send(
            "shop-orders", body, tags="paid" if number % 4 else "new", keys=key, properties={"region": region}
        )
        if number % 9 == 0:
            await producer.send("inventory", body, keys=key)
    return receipts


async def _remind(producer: Producer) -> None:
    for level in _DELAY_LEVELS:
        await producer.send("billing-reminders", b"{}", keys=f"reminder-{level}", delay_level=level)
    await producer.send("billing-reminders", b"{}", keys="reminder-tomorrow", timer=timedelta(days=1))


@asynccontextmanager
async def _keep_busy(nameserver: str) -> AsyncIterator[None]:
    """Send orders in the block, now more and now fewer; a group of its own takes half of them, and falls behind."""

    async def send_on(producer: Producer) -> None:
        for number in itertools.count(_ORDERS):
            await _send(producer, range(number, number + 1))
            # The pause between two orders is what this is about: there is nothing to wait for.
            await asyncio.sleep(0.06 + 0.03 * math.sin(number / 60))

    async with (
        Producer(nameserver, group="shop", options=_QUICK) as producer,
        _member(nameserver, LATE, "shop-orders", pause_s=2.5),
    ):
        sending = asyncio.create_task(send_on(producer))
        try:
            yield
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


@asynccontextmanager
async def _member(
    nameserver: str, group: str, topic: str, *, stops: bool = False, pause_s: float = 0
) -> AsyncIterator[None]:
    """Run a member of a group. One that `stops` keeps the first messages it gets for ever."""
    consumer = Consumer(
        nameserver,
        group=group,
        options=_QUICK,
        start="earliest",
        trace=True,
        rebalance=Rebalance(interval=0.5),
        offsets=Offsets(interval=0.2),
    )
    never = asyncio.Event()

    @consumer.handler(topic)
    async def take(message: Message) -> None:
        if stops or pause_s:
            with suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), pause_s or None)

    async with consumer:
        yield
        never.set()
