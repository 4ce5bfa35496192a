"""Load through the `pyrocketmq` package, the Java client in a JVM inside the Python process. Run as its own process."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
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
    # Not in our requirements, so they are not imported at the top.
    jpype = import_module("jpype")
    import_module("jpype.imports")
    flags = ("-Xms512m", "-Xmx512m", f"-Duser.home={Path.home()}", "-Drocketmq.client.logLevel=WARN")
    jpype.startJVM(*flags, classpath=[f"{load.jars}/*"])
    if load.scenario == "consume":
        _consume(load)
    else:
        _send(load)


def _send(load: Load) -> None:
    producing = import_module("pyrocketmq.client.producer")
    message_type = import_module("pyrocketmq.common.message").Message
    producer = producing.Producer(load.group)
    producer.setNamesrvAddr(load.name_server)
    producer.start()
    body = load.body

    class Callback(producing.SendCallback):  # type: ignore[misc,name-defined]
        def __init__(self, finish: Done) -> None:
            self._finish = finish

        def _onSuccess(self, _: Any) -> None:
            self._finish(None)

        def _onException(self, error: Any) -> None:
            self._finish(RuntimeError(str(error)))

    def send() -> None:
        producer.send(message_type(topic=load.topic, body=body))

    def submit(finish: Done) -> None:
        producer.send(message_type(topic=load.topic, body=body), send_callback=Callback(finish))

    ways = {
        "single": lambda: send_one_by_one(send),
        "threads": lambda: send_from_threads(send, load.in_flight),
        "concurrent": lambda: send_with_callbacks(submit, load.in_flight),
    }
    run_parts(load, ways[load.scenario]())
    producer.shutdown()


def _consume(load: Load) -> None:
    listening = import_module("pyrocketmq.client.consumer.listener")
    success = listening.ConsumeConcurrentlyStatus.CONSUME_SUCCESS
    from_where = import_module("pyrocketmq.common.common").ConsumeFromWhere
    consumer = import_module("pyrocketmq.client.consumer.consumer").PushConsumer(load.group)
    consumer.setNamesrvAddr(load.name_server)
    consumer.setConsumeFromWhere(from_where.CONSUME_FROM_FIRST_OFFSET)

    def start(note: Callable[[], None]) -> None:
        class Listener(listening.MessageListenerConcurrently):  # type: ignore[misc,name-defined]
            def _consumeMessage(self, messages: list[Any], _: Any) -> Any:
                for message in messages:
                    message.body  # noqa: B018 - reading it is the work of the handler
                    note()
                return success

        consumer.registerMessageListener(Listener())
        consumer.subscribe(load.topic, "*")
        consumer.start()

    consume_until_done(load, start)
    consumer.shutdown()


if __name__ == "__main__":
    main()
