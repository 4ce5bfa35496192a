"""Load through the `rocketmq` package, a wrapper around the C++ client. Run as a separate process."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from bench.parts.load import (
    Done,
    Load,
    consume_until_done,
    read_load,
    run_parts,
    send_from_threads,
    send_one_by_one,
    send_with_callbacks,
)


def main() -> None:
    """Run as the command line specifies."""
    load = read_load()
    # Not in our requirements, so it is not imported at the top.
    client = import_module("rocketmq.client")
    if load.scenario == "consume":
        _consume(load, client)
    else:
        _send(load, client)


def _send(load: Load, client: Any) -> None:
    producer = client.Producer(load.group)
    producer.set_namesrv_addr(load.name_server)
    producer.start()
    body = load.body

    def make_message() -> Any:
        message = client.Message(load.topic)
        message.set_body(body)
        return message

    def send() -> None:
        producer.send_sync(make_message())

    def submit(finish: Done) -> None:
        producer.send_async(make_message(), lambda _: finish(None), finish)

    ways = {
        "single": lambda: send_one_by_one(send),
        "threads": lambda: send_from_threads(send, load.in_flight),
        "concurrent": lambda: send_with_callbacks(submit, load.in_flight),
    }
    run_parts(load, ways[load.scenario]())
    producer.shutdown()


def _consume(load: Load, client: Any) -> None:
    consumer = client.PushConsumer(load.group)
    consumer.set_namesrv_addr(load.name_server)
    if load.threads:
        consumer.set_thread_count(load.threads)

    def start(note: Callable[[], None]) -> None:
        def handle(message: Any) -> None:
            message.body  # noqa: B018 - reading it is the work of the handler
            note()

        consumer.subscribe(load.topic, handle)
        consumer.start()

    consume_until_done(load, start)
    consumer.shutdown()


if __name__ == "__main__":
    main()
