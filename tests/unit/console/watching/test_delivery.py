"""Delivery to webhooks: signed, tried again, kept over a restart, only to targets that are allowed."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
import pytest

from eruca._console.state import State
from eruca._console.watching.alarms import Alarm, AlarmState, Event
from eruca._console.watching.alarmtables import AlarmTables
from eruca._console.watching.channels import NAMED_MAX, Channel, ChannelKind, check_target, make_mail, make_report
from eruca._console.watching.delivery import TRIES_MAX, Deliveries, DeliveryState
from eruca._console.watching.options import WatchingOptions
from eruca._console.watching.rules import Rule, RuleKind
from eruca._ground.backoff import Backoff
from eruca.errors import ConfigError, ConnectFailed, ErucaError
from tests.unit.console.watching.peers import BROKEN, OK, run_hook

NOW = datetime(2026, 11, 19, 12, tzinfo=UTC)
RULE = Rule(id=1, name="too far behind", kind=RuleKind.LAG, threshold=100)
OPEN = WatchingOptions(webhook_targets="127.0.0.1")
QUICK = Backoff(0.001, 0.002)


def alarm(target: str = "billing") -> Alarm:
    return Alarm(
        id=3,
        rule=1,
        rule_name=RULE.name,
        kind=RuleKind.LAG,
        cluster="ma in",
        target=target,
        state=AlarmState.FIRING,
        threshold=100,
        value=1234,
        peak=1234,
        detail="orders",
        since=NOW,
    )


REPORT = make_report(Event.FIRING, RULE, [alarm()], NOW, "https://console.example.com/")


@asynccontextmanager
async def delivering(state: State, options: WatchingOptions = OPEN) -> AsyncIterator[tuple[Deliveries, AlarmTables]]:
    tables = AlarmTables(state)
    deliveries = Deliveries(state, tables, options, pauses=QUICK)
    deliveries.start()
    try:
        yield deliveries, tables
    finally:
        await deliveries.stop()


async def wait_for_outcome(state: State, deliveries: Deliveries, wanted: DeliveryState) -> None:
    """Wait until nothing waits; the loop runs the deliveries meanwhile."""
    while (await state.read("SELECT count(*) FROM deliveries WHERE state = 'waiting'"))[0][0]:
        pass
    assert {each.state for each in await deliveries.list(100)} == {wanted}


async def test_a_report_is_posted_and_signed(state: State) -> None:
    async with run_hook() as hook, delivering(state) as (deliveries, tables):
        channel = await tables.add_channel("ops", ChannelKind.WEBHOOK, hook.url, "shh")
        await deliveries.add([channel.id, 999], REPORT)
        (posted,) = await hook.wait_for(1)
        await wait_for_outcome(state, deliveries, DeliveryState.DELIVERED)
    assert posted.line == "POST /hooks/secret?room=7 HTTP/1.1"
    assert posted.headers["content-type"] == "application/json"
    sent_at = posted.headers["x-eruca-timestamp"]
    wanted = hmac.new(b"shh", f"{sent_at}.".encode() + posted.body, hashlib.sha256).hexdigest()
    assert posted.headers["x-eruca-signature"] == f"sha256={wanted}"
    found = json.loads(posted.body)
    assert (found["event"], found["count"], found["rule"]["name"]) == ("firing", 1, "too far behind")
    assert found["alarms"][0]["text"] == "lag of billing is 1,234 messages (orders)"
    assert found["alarms"][0]["url"] == "https://console.example.com/c/ma%20in/alarms"


async def test_failures_are_tried_again_until_it_works(state: State) -> None:
    async with run_hook(BROKEN, b"nonsense\r\n", OK) as hook, delivering(state) as (deliveries, tables):
        channel = await tables.add_channel("ops", ChannelKind.WEBHOOK, hook.url, "")
        await deliveries.add([channel.id], REPORT)
        await wait_for_outcome(state, deliveries, DeliveryState.DELIVERED)
        (delivery,) = await deliveries.list(10)
    assert (delivery.tries, delivery.error, delivery.event) == (3, "", "firing")
    # The receiver can tell that it is the same one.
    assert len({posted.headers["x-eruca-delivery"] for posted in hook.posted}) == 1
    assert all("x-eruca-signature" not in posted.headers for posted in hook.posted)


async def test_it_ends_after_many_tries_and_hides_the_url(state: State, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with run_hook(BROKEN) as hook, delivering(state) as (deliveries, tables):
            channel = await tables.add_channel("ops", ChannelKind.WEBHOOK, hook.url, "shh")
            await deliveries.add([channel.id], REPORT)
            await wait_for_outcome(state, deliveries, DeliveryState.FAILED)
            (delivery,) = await deliveries.list(10)
    assert (delivery.tries, delivery.error) == (TRIES_MAX, "the webhook answered 503")
    assert len(hook.posted) == TRIES_MAX
    assert "ops" in caplog.text
    assert "hooks/secret" not in caplog.text
    assert "shh" not in caplog.text


async def test_what_waits_outlives_a_restart(state: State) -> None:
    tables = AlarmTables(state)
    async with run_hook() as hook:
        channel = await tables.add_channel("ops", ChannelKind.WEBHOOK, hook.url, "")
        stopped = Deliveries(state, tables, OPEN)
        await stopped.add([channel.id], REPORT)
        await stopped.stop()
        async with delivering(state):
            (posted,) = await hook.wait_for(1)
    assert json.loads(posted.body)["event"] == "firing"


async def test_a_redirect_is_not_followed(state: State) -> None:
    async with run_hook() as other:
        moved = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {other.url}\r\nContent-Length: 0\r\n\r\n".encode()
        async with run_hook(moved) as hook, delivering(state) as (deliveries, _):
            channel = Channel(id=1, name="ops", kind=ChannelKind.WEBHOOK, target=hook.url)
            with pytest.raises(ConnectFailed, match="307"):
                await deliveries.send(channel, REPORT, 1)
    assert other.posted == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f000001", "2130706433", "[::1]", "[::ffff:127.0.0.1]"])
async def test_internal_addresses_are_refused_before_anything_is_sent(state: State, host: str) -> None:
    async with run_hook() as hook, delivering(state, WatchingOptions()) as (deliveries, _):
        channel = Channel(id=1, name="ops", kind=ChannelKind.WEBHOOK, target=f"http://{host}:{hook.port}/")
        with pytest.raises(ErucaError):
            await deliveries.send(channel, REPORT, 1)
        assert hook.posted == []


async def test_a_name_that_resolves_to_an_internal_address_is_refused(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*given: object, **named: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with delivering(state, WatchingOptions()) as (deliveries, _):
        channel = Channel(id=1, name="ops", kind=ChannelKind.WEBHOOK, target="http://public.example.com/")
        with pytest.raises(ConfigError, match="may not reach"):
            await deliveries.send(channel, REPORT, 1)


async def test_mail_without_a_server_is_refused(state: State) -> None:
    async with delivering(state) as (deliveries, _):
        channel = Channel(id=1, name="ops", kind=ChannelKind.MAIL, target="ops@example.com")
        with pytest.raises(ConfigError, match="no mail server"):
            await deliveries.send(channel, REPORT, 1)


def test_a_mail_has_what_happened_and_no_more_lines_than_it_names() -> None:
    many = [alarm(f"group {number}\r\nBcc: x@example.com") for number in range(NAMED_MAX + 5)]
    mail = make_mail(make_report(Event.FIRING, RULE, many, NOW, ""), "eruca@example.com", "ops@example.com", 12)
    assert mail["Subject"].startswith("[eruca] firing: lag of group 0 Bcc: x@example.com is 1,234 messages")
    assert mail["Subject"].endswith(f"and {NAMED_MAX + 4} more")
    assert mail["Bcc"] is None
    assert mail["Message-ID"] == "<alarm-12@example.com>"
    assert mail.get_content().count("* lag of group") == NAMED_MAX


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (ChannelKind.WEBHOOK, "ftp://example.com/"),
        (ChannelKind.WEBHOOK, "file:///etc/passwd"),
        (ChannelKind.WEBHOOK, "http://user:pw@example.com/"),
        (ChannelKind.WEBHOOK, "http://example.com/\r\nX: y"),
        (ChannelKind.WEBHOOK, "http://exam ple.com/"),
        (ChannelKind.WEBHOOK, "http://"),
        (ChannelKind.WEBHOOK, "http://example.com/" + "x" * 3000),
        (ChannelKind.MAIL, ""),
        (ChannelKind.MAIL, "ops"),
        (ChannelKind.MAIL, "ops@example.com\r\nBcc: a@b.example"),
        (ChannelKind.MAIL, ",".join(f"o{n}@example.com" for n in range(30))),
    ],
)
def test_wrong_targets_are_refused(kind: ChannelKind, target: str) -> None:
    with pytest.raises(ConfigError):
        check_target(kind, target)


def test_right_targets_are_taken() -> None:
    assert check_target(ChannelKind.WEBHOOK, "https://example.com/a?b=c") == "https://example.com/a?b=c"
    assert check_target(ChannelKind.MAIL, "a@example.com; b@example.com") == "a@example.com, b@example.com"


async def test_channels_and_rules_are_checked_and_bounded(state: State) -> None:
    tables = AlarmTables(state)
    await tables.add_channel("ops", ChannelKind.MAIL, "a@example.com", "")
    with pytest.raises(ConfigError, match="there is a channel ops"):
        await tables.add_channel("ops", ChannelKind.MAIL, "a@example.com", "")
    for name in ("", " ", "a\nb", "x" * 101):
        with pytest.raises(ConfigError, match="a name has"):
            await tables.add_channel(name, ChannelKind.MAIL, "a@example.com", "")
    made = await tables.put_rule(Rule(id=0, name="r", kind=RuleKind.AGE, threshold=5))
    assert await tables.list_rules() == [made]
    await tables.put_rule(Rule(id=made.id, name="renamed", kind=RuleKind.AGE, threshold=6))
    assert [(rule.name, rule.threshold) for rule in await tables.list_rules()] == [("renamed", 6)]
    for bad in (
        msgspec.structs.replace(made, threshold=0),
        msgspec.structs.replace(made, threshold=float("nan")),
        msgspec.structs.replace(made, duration=1e9),
        msgspec.structs.replace(made, prefix="x" * 300),
    ):
        with pytest.raises(ConfigError):
            await tables.put_rule(bad)
    await tables.delete_rule(made.id)
    assert await tables.list_rules() == []


async def test_alarms_are_stored_and_loaded(state: State) -> None:
    tables = AlarmTables(state)
    assert await tables.load_open() == ([], 1)
    await tables.store([alarm()])
    assert await tables.load_open() == ([alarm()], 4)
    ended = msgspec.structs.replace(alarm(), state=AlarmState.RESOLVED)
    await tables.store([ended])
    assert await tables.load_open() == ([], 4)
    assert await tables.list_past("ma in", 10) == ([ended], False)
    assert await tables.list_past("other", 10) == ([], False)
