"""The state of one queue: what another member has done counts only for the log that it was done in."""

from __future__ import annotations

import pytest

from eruca._client.group.inbox import Inbox
from eruca._client.group.subscriptions import make_subscription
from eruca._wire.bodies import MessageQueue
from eruca._wire.record import Record

SOURCE = ("127.0.0.1:10911", 0)


def make_inbox() -> Inbox:
    inbox = Inbox(MessageQueue("b", 0, "T"), make_subscription("T", "*", 0), 3)
    inbox.expect_done(((4, 6),), SOURCE)
    return inbox


def put(inbox: Inbox, *offsets: int) -> list[int]:
    return [record.queue_offset for record in inbox.process.put([Record("T", queue_offset=at) for at in offsets])]


def test_what_is_done_is_not_delivered_by_the_same_broker() -> None:
    inbox = make_inbox()
    assert (inbox.commit_offset, inbox.process.list_done()) == (3, [(4, 6)])
    inbox.check_done(SOURCE)
    assert put(inbox, 3, 4, 5, 6) == [3, 6]


@pytest.mark.parametrize("source", [("127.0.0.1:10921", 0), ("127.0.0.1:10911", 1)])
def test_another_broker_or_a_new_connection_may_have_other_messages(source: tuple[str, int]) -> None:
    inbox = make_inbox()
    inbox.check_done(source)
    assert put(inbox, 3, 4, 5, 6) == [3, 4, 5, 6]
    assert inbox.process.list_done() == []


@pytest.mark.parametrize("offset", [2, 9])
def test_nothing_is_done_after_a_move(offset: int) -> None:
    inbox = make_inbox()
    inbox.next_offset = 5
    inbox.move(offset)
    assert not inbox.process.expects_done
