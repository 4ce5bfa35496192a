"""What handlers do is counted by topic, and hooks decide whether each message is watched."""

from __future__ import annotations

import pytest

from eruca._client.group.observing import ConsumeObserver
from eruca._client.message import Message, Outcome
from eruca._client.meters import REGISTRY
from eruca._wire.bodies import ConsumeStatus


class Hook:
    def before_consume(self, messages: list[Message]) -> object:
        return None

    def after_consume(self, messages: list[Message], outcome: Outcome, seconds: float, begun: object) -> None:
        pass


def test_a_topic_is_counted_from_its_first_call_on() -> None:
    observer = ConsumeObserver("observing-group")
    tally = observer.find_tally("orders")
    assert observer.find_tally("orders") is tally
    assert observer.read("orders") == observer.read("bills") == ConsumeStatus()
    name = 'eruca_client_consumed_total{group="observing-group",topic="orders"}'
    assert name not in REGISTRY.snapshot()
    tally.add(3, True, 0.1)
    tally.add(1, False, 0.3)
    status = observer.read("orders")
    assert status.consume_failed_msgs == 1
    assert status.consume_ok_tps == pytest.approx(3 * status.consume_failed_tps) != 0
    assert round(status.consume_rt) == 100
    assert REGISTRY.snapshot()[name] == 3


def test_messages_are_watched_while_there_are_hooks() -> None:
    observer = ConsumeObserver("G")
    hook = Hook()
    seen = [observer.is_watched]
    observer.add_hook(hook)
    observer.start()
    seen.append(observer.is_watched)
    observer.remove_hook(hook)
    seen.append(observer.is_watched)
    assert seen == [False, True, False]
    assert ConsumeObserver("G", [hook]).is_watched
