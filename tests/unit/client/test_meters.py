"""What the clients of a process count."""

from __future__ import annotations

from typing import Any

from eruca._client.meters import REGISTRY, ConsumeMeter, SendMeter


def read(name: str, **labels: str) -> Any:
    """One metric of the snapshot."""
    inside = ",".join([f'{label}="{value}"' for label, value in labels.items()])
    return REGISTRY.snapshot()[f"eruca_client_{name}{{{inside}}}"]


def test_sends_are_counted_by_group() -> None:
    meter = SendMeter("meter-shop")
    meter.add_sent(0.002)
    meter.add_tries(1)
    meter.add_sent(0.004)
    meter.add_tries(3)
    meter.add_failed()
    meter.add_tries(2)
    assert read("sent_total", group="meter-shop") == 2
    assert read("send_retries_total", group="meter-shop") == 3
    assert read("send_failures_total", group="meter-shop") == 1
    assert read("send_seconds", group="meter-shop")["count"] == 2


def test_two_producers_of_a_group_share_their_counts() -> None:
    SendMeter("meter-two").add_sent(0.001)
    SendMeter("meter-two").add_sent(0.001)
    assert read("sent_total", group="meter-two") == 2


def test_handlers_are_counted_by_group_and_topic() -> None:
    meter = ConsumeMeter("meter-bills", "orders")
    meter.add_call(0.01)
    meter.add_done(5)
    meter.add_call(0.02)
    meter.add_failed(2)
    assert read("consumed_total", group="meter-bills", topic="orders") == 5
    assert read("consume_failures_total", group="meter-bills", topic="orders") == 2
    assert read("handle_seconds", group="meter-bills", topic="orders")["count"] == 2
