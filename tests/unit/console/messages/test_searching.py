"""One step of a search: its bounds, and where the next one continues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eruca._admin.admin import Admin
from eruca._admin.storedmessages import StoredMessage
from eruca._console.identity.masking import Mask
from eruca._console.messages.decoding import Decoder
from eruca._console.messages.filtering import parse_filter
from eruca._console.messages.searching import Bounds, Searching, Wanted, read_places, write_places
from eruca._console.messages.viewing import MessageView
from eruca.errors import ConfigError
from tests.unit.admin.test_drafts import make_message

BEGIN = datetime(2026, 11, 15, tzinfo=UTC)
WANTED = Wanted(topic="orders")


def make_admin(count: int, bodies: Sequence[bytes] = ()) -> Admin:
    """An admin whose topic has messages in two queues, and which continues where it is told to."""

    async def read(topic: str, *, resume: Any, **_: object) -> AsyncIterator[StoredMessage]:
        for number in range(count):
            queue, offset = number % 2, number // 2
            if offset > resume.get(f"broker-a:{queue}", -1):
                yield make_message(
                    queue=queue,
                    offset=offset,
                    body=bodies[number] if bodies else b"%d" % number,
                    stored_at=BEGIN + timedelta(seconds=number),
                    size=100,
                )

    return cast(Admin, SimpleNamespace(messages=SimpleNamespace(read=read)))


async def view(message: StoredMessage) -> MessageView:
    return MessageView(message, Mask(), Decoder())


@pytest.mark.parametrize(
    ("bounds", "stopped", "scanned"),
    [
        (Bounds(), "end", 10),
        (Bounds(found=10), "end", 10),
        (Bounds(found=3), "found", 3),
        (Bounds(messages=4), "messages", 4),
        (Bounds(bytes=500), "bytes", 5),
        (Bounds(seconds=0), "seconds", 1),
    ],
)
async def test_a_step_says_why_it_ended(bounds: Bounds, stopped: str, scanned: int) -> None:
    found = await Searching().run(make_admin(10), WANTED, view, bounds=bounds)
    assert (found.stopped, found.scanned, len(found.items)) == (stopped, scanned, scanned)
    assert found.reached == BEGIN + timedelta(seconds=scanned - 1)
    assert bool(found.resume) is (stopped != "end")


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
async def test_steps_together_read_every_message_once(most: int) -> None:
    admin, searching, seen, resume = make_admin(25), Searching(), list[str](), dict[str, int]()
    for _ in range(30):
        found = await searching.run(admin, WANTED, view, parse_filter("offset <> 3"), resume, Bounds(messages=most))
        seen += [str(each["body"]) for each in found.items]
        if found.stopped == "end":
            break
        resume = read_places(write_places(found.resume))
    assert seen == [str(number) for number in range(25) if number // 2 != 3]


async def test_messages_that_a_filter_cannot_look_into_are_reported() -> None:
    pairs = b'{"a": [%s], "b": [%s]}' % (b",".join([b"0"] * 1000), b",".join([b"1"] * 1000))
    bodies = [pairs, b'{"a": 2, "b": 1}', pairs]
    searching, bounds = Searching(), Bounds(seconds=1000)
    found = await searching.run(make_admin(3, bodies), WANTED, view, parse_filter("body.a > body.b"), bounds=bounds)
    assert [(each.facts.queue, each.facts.offset) for each in found.items] == [(1, 0)]
    assert found.scanned == 3 and found.problems[0].error.endswith("too deep: 2")


def test_places_are_written_and_read() -> None:
    places = {"broker-a:0": 41, "broker-a:12": 0, "a:b:3": 7}
    assert write_places(places) == "a:b:3=7;broker-a:0=41,12=0"
    assert read_places(write_places(places)) == places and read_places("") == {}


@pytest.mark.parametrize(
    "text", ["x", "a:0", "a:0=", "a:=1", ":0=1", "a:0=1,", "a:0=-1", "a:0=1e9", "a:٣=1", "a:0=" + "9" * 19]
)
def test_places_that_are_not_valid_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="place to continue from"):
        read_places(text)


def test_too_many_places_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than 4096"):
        read_places("a:" + ",".join(f"{number}=0" for number in range(4097)))
