"""Load through our own clients, `eruca` or, with --plain, `eruca.sync`. Run as a separate process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import uvloop

from bench.parts.load import (
    Arrivals,
    Load,
    Meter,
    Outcome,
    Turns,
    consume_until_done,
    read_load,
    run_parts,
    send_from_threads,
    send_one_by_one,
)
from eruca import Consumer, Message, Producer

# As many as a Java consumer has threads.
_CONCURRENCY = 20


def main() -> None:
    """Run as the command line specifies."""
    load = read_load()
    if load.plain:
        if load.scenario == "consume":
            _consume_plainly(load)
        else:
            _send_plainly(load)
    else:
        uvloop.run(_consume(load) if load.scenario == "consume" else _send(load))


async def _send(load: Load) -> None:
    body = load.body
    async with Producer(load.name_server, group=load.group) as producer:

        async def send_in_turn(turns: Turns, outcome: Outcome) -> None:
            for _ in turns:
                await producer.send(load.topic, body)
                outcome.add(None)

        async def run_part(turns: Turns, outcome: Outcome) -> None:
            workers = 1 if load.scenario == "single" else load.in_flight
            async with asyncio.TaskGroup() as tasks:
                for _ in range(workers):
                    tasks.create_task(send_in_turn(turns, outcome))

        meter = Meter(load)
        meter.start(load.seconds_max)
        await run_part(Turns(load.warmup, meter.deadline), Outcome())
        outcome = Outcome()
        meter.start(load.seconds_max)
        await run_part(Turns(load.count, meter.deadline), outcome)
        meter.stop()
        meter.print_result(*outcome.read())


async def _consume(load: Load) -> None:
    done = asyncio.Event()
    arrivals = Arrivals(load, done.set)
    consumer = Consumer(load.name_server, group=load.group, start="earliest")

    @consumer.handler(load.topic, concurrency=_CONCURRENCY)
    async def handle(message: Message) -> None:
        message.body  # noqa: B018 - reading it is the work of the handler
        arrivals.note()

    await consumer.start()
    with suppress(TimeoutError):
        await asyncio.wait_for(done.wait(), load.seconds_max)
    arrivals.print_result(complete=done.is_set())
    await consumer.close()


def _send_plainly(load: Load) -> None:
    import eruca.sync

    body = load.body
    with eruca.sync.Producer(load.name_server, group=load.group) as producer:

        def send() -> None:
            producer.send(load.topic, body)

        single = load.scenario == "single"
        run_parts(load, send_one_by_one(send) if single else send_from_threads(send, load.in_flight))


def _consume_plainly(load: Load) -> None:
    import eruca.sync

    consumer = eruca.sync.Consumer(load.name_server, group=load.group, start="earliest")

    def start(note: Callable[[], None]) -> None:
        @consumer.handler(load.topic, concurrency=_CONCURRENCY)
        def handle(message: eruca.sync.Message) -> None:
            message.body  # noqa: B018 - reading it is the work of the handler
            note()

        consumer.start()

    consume_until_done(load, start)
    consumer.close()


if __name__ == "__main__":
    main()
