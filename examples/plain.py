"""Without `async`: the same clients as plain functions, from `eruca.sync`.

For scripts, notebooks, and everything that has no event loop. Handlers run in threads, so they may block.

    python examples/plain.py
    python examples/plain.py --nameserver 127.0.0.1:9876
"""

from __future__ import annotations

import threading

from stage import Stage, open_stage, tell

from eruca.sync import Consumer, Message, Producer


def main(stage: Stage) -> None:
    """Send some readings; one group handles them in threads, another reads them one by one."""
    topic = stage.name("readings")
    with Producer(stage.nameserver, group=stage.name("sensors")) as producer:
        for number, value in enumerate((20.5, 21.0, 35.9), 1):
            producer.send(topic, str(value).encode(), keys=[f"r-{number}"], tags="hot" if value > 30 else "fine")
        futures = [producer.send_soon(topic, f"{value}".encode(), tags="fine") for value in (19.5, 19.0)]
        tell(f"* Five readings were sent, two of them in the background: {[f.result().offset for f in futures]}.")

    alarm = threading.Event()
    watch = Consumer(stage.nameserver, group=stage.name("watch"), start="earliest")

    @watch.handler(topic, tags="hot")
    def ring(message: Message) -> None:
        tell(f"  {message.keys[0]} is {message.body.decode()} degrees: ring the bell!")
        alarm.set()

    with watch:
        alarm.wait(60)

    total, count = 0.0, 0
    with Consumer(stage.nameserver, group=stage.name("average"), subscribe=topic, start="earliest") as consumer:
        for message in consumer:
            total += float(message.body)
            count += 1
            message.ack()
            if count == 5:
                break
    tell(f"* The average of {count} readings is {total / count:.2f} degrees.")


if __name__ == "__main__":
    with open_stage(__doc__) as stage:
        main(stage)
