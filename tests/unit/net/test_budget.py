"""Memory budgets: the connection that uses most is closed, with a line in the log, and the others continue."""

from __future__ import annotations

import asyncio
import logging

import pytest

from eruca._net.budget import PROCESS, Account, Budget
from eruca._net.handlers import refuse_unknown
from eruca._net.heap import find_trim
from eruca._net.link import Answer, Link
from eruca._observe.metrics import SERVER
from eruca._wire.codes import ResponseCode
from eruca._wire.frame import Command, encode_command, make_request
from tests.unit.net.rawpeer import RecordingTransport, open_peer, run_server, turn_until, wait_for_links
from tests.unit.net.test_link import make_link

ECHO, LARGE = 34, 35
MIB = 1024 * 1024


def echo(link: Link, command: Command) -> Answer:
    return encode_command(command.answer(ResponseCode.SUCCESS))


def answer_much(link: Link, command: Command) -> Answer:
    return encode_command(command.answer(ResponseCode.SUCCESS, body=bytes(MIB)))


HANDLERS = {ECHO: echo, LARGE: answer_much}


async def test_answers_that_are_not_read_are_bounded_over_all_connections(caplog: pytest.LogCaptureFixture) -> None:
    """Many connections, each within its own limit, hold too much together: the largest is closed."""
    budget = Budget(12 * MIB)
    async with run_server(HANDLERS, refuse_unknown, budget=budget, scan_seconds=3600) as server:
        async with open_peer(server.port) as good:
            greedy = []
            for _ in range(12):
                peer = await stack_peer(server.port)
                peer.transport.pause_reading()  # type: ignore[attr-defined]
                peer.write(encode_command(make_request(LARGE)) * 64)
                greedy.append(peer)
            await turn_until(lambda: budget.closed > 0)
            for number in range(50):
                assert (await good.ask(make_request(ECHO, opaque=number))).opaque == number
                assert budget.count() <= 16 * MIB
            for peer in greedy:
                peer.transport.abort()
        await wait_for_links(server, 0)
        assert budget.count() == 0
    said = [record for record in caplog.records if "limit for all connections" in record.getMessage()]
    # One line for one host; the rest is counted.
    assert [record.levelno for record in said] == [logging.WARNING]


async def stack_peer(port: int) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    return writer


async def test_a_scan_counts_in_slices_and_not_for_each_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eruca._net.turns.SLICE_SECONDS", 0)
    budget = Budget(12 * MIB)
    links = [make_link()[0] for _ in range(50)]
    for link in links:
        budget.join(link)
    budget.add(MIB)  # it was held, and is not any more
    scanning = asyncio.create_task(budget.scan())
    turns = 0
    while not scanning.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 20:
            budget.add(1000)
            await budget.scan()  # another server; it is being counted already
    assert turns > 50
    assert budget._held == 1000
    budget.add(5)
    await budget.scan()
    assert budget._held == 1005  # far from the limit, not so often
    budget.add(7 * MIB)
    await budget.scan()
    assert budget._held == 0


def make_holder(budget: Budget, host: str, account: str | None, size: int) -> tuple[Link, RecordingTransport]:
    """A connection with responses that it does not read."""
    link, transport, _ = make_link()
    link.peer_host, link.account, transport.unsent = (host, 1), account, size
    budget.join(link)
    return link, transport


async def test_a_crowd_does_not_push_out_one_that_holds_more_for_a_moment() -> None:
    """What counts is what somebody holds in all: without an account, by address; with one, by account."""
    budget = Budget(1000)
    good, at_good = make_holder(budget, "10.0.0.1", "good", 300)
    strangers = [make_holder(budget, f"2001:db8::{number}", None, 10) for number in range(100)]
    budget.bound()
    assert [at_good.aborted, *[transport.aborted for _, transport in strangers]].count(True) == 55
    assert good.is_open
    for link, transport in strangers:
        transport.unsent = 0
        budget.leave(link)
    crowd = [make_holder(budget, f"10.0.1.{number}", "weak", 10) for number in range(100)]
    budget.bound()
    assert [at_good.aborted, *[transport.aborted for _, transport in crowd]].count(True) == 55
    assert good.is_open
    for _, transport in crowd:
        transport.unsent = 0
    # Who needs no account because of its address is known by it.
    white = [make_holder(budget, f"10.0.2.{number}", "*", 100) for number in range(10)]
    budget.bound()
    assert [transport.aborted for _, transport in white].count(True) == 3
    assert [good.is_open] == [False]


async def test_a_crowd_that_keeps_little_each_goes_before_one_that_keeps_more() -> None:
    account = Account("trinkets", 1000, "maxTrinkets")
    good, at_good, _ = make_link()
    good.account = "good"
    account.add(good, 400)
    crowd = []
    for number in range(100):
        link, transport, _ = make_link()
        link.account, link.peer_host = "weak", (f"10.0.0.{number}", 1)
        crowd.append(transport)
        account.add(link, 10)
    assert not at_good.aborted
    assert sum(transport.aborted for transport in crowd) > 30
    assert account.total <= 1000


async def test_memory_comes_back_when_a_crowd_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of connections which held nothing."""
    monkeypatch.setattr("eruca._net.budget._COUNT_SECONDS", 0.0)
    budget = Budget(1000 * MIB)
    links = [make_holder(budget, "10.0.0.1", None, 0)[0] for _ in range(3000)]
    await budget.scan()
    assert budget._heap.count == 0
    for link in links[100:]:
        budget.leave(link)
    await budget.scan()
    assert budget._heap.count == (find_trim() is not None)


async def test_what_is_kept_is_weighed_and_the_largest_goes() -> None:
    account = Account("trinkets", 100, "maxTrinkets")
    (small, _, _), (large, at_large, owner), (late, at_late, _) = make_link(), make_link(), make_link()
    account.add(small, 30)
    account.add(large, 40)
    account.add(large, 20)
    assert (account.total, at_large.aborted) == (90, False)
    account.add(late, 20)
    assert (account.total, at_large.aborted, at_late.aborted) == (50, True, False)
    assert "its trinkets take 60 bytes" in owner.said[0]
    account.leave(large)  # it is reported as closed later, which changes nothing
    account.add(small, -30)
    account.leave(late)
    assert account.total == 0


async def test_budgets_are_metrics() -> None:
    shown = SERVER.snapshot()
    assert shown["eruca_server_held_bytes_max"] == PROCESS.bytes_max
    assert shown["eruca_server_held_bytes"] == PROCESS.count()
