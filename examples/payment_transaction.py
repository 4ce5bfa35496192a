"""Payment and points as one transaction: no points without a payment, no payment without points.

A payment is booked in a database, and a message tells the points service about it. The message is sent first as a half,
which consumers do not see; then the payment is booked; then the half is committed. If the process dies in between, the
broker asks another producer of the group for the outcome, and that producer looks it up in the database.

    python examples/payment_transaction.py
    python examples/payment_transaction.py --nameserver 127.0.0.1:9876     brokers ask after a minute by default
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import queue
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from stage import IMPATIENT, Stage, open_stage, tell

from eruca import Consumer, Decision, Message, TransactionalProducer

# Longer than a booking takes, so that the broker does not ask about one that is still in progress.
CHECK_AFTER = timedelta(seconds=30)
EVERYBODY = {"anna": 30, "ben": 70, "carla": 50, "dora": 90}


class Ledger:
    """The database of the payment service; the id of the transaction is kept with each payment."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # The customers that the broker asked about.
        self.asked: queue.Queue[str] = queue.Queue()
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS payments (id TEXT PRIMARY KEY, who TEXT, amount INTEGER)")

    def book(self, payment: str, who: str, amount: int) -> None:
        """Book a payment, or refuse it."""
        if amount > 60:
            raise ValueError(f"the card of {who} does not cover {amount}")
        with closing(sqlite3.connect(self._path)) as database, database:
            database.execute("INSERT INTO payments VALUES (?, ?, ?)", (payment, who, amount))

    def check(self, message: Message) -> Decision:
        """Decide about a half message: the payment is in the ledger, or it is not and never will be."""
        with closing(sqlite3.connect(self._path)) as database:
            found = database.execute("SELECT who FROM payments WHERE id = ?", (message.transaction_id,)).fetchone()
        decision = Decision.COMMIT if found else Decision.ROLLBACK
        tell(f"  The broker asks about the payment of {message.keys[0]}: {decision.value}.")
        self.asked.put(message.keys[0])
        return decision


def make_cashier(stage: Stage, check: Callable[[Message], Decision]) -> TransactionalProducer:
    """Return a producer that can tell the outcome of any payment."""
    return TransactionalProducer(stage.nameserver, group=stage.name("cashiers"), check=check)


def know_nothing(message: Message) -> Decision:
    """Answer for a process that is still booking: the broker asks again later."""
    return Decision.UNKNOWN


async def pay(cashier: TransactionalProducer, ledger: Ledger, topic: str, who: str) -> None:
    """Book a payment and send the message about it."""
    amount = EVERYBODY[who]
    try:
        async with cashier.transaction(topic, str(amount).encode(), keys=[who], check_after=CHECK_AFTER) as half:
            await asyncio.to_thread(ledger.book, half.transaction_id, who, amount)
        tell(f"* {who} paid {amount}.")
    except ValueError as error:
        tell(f"* {who} did not pay: {error}.")


async def pay_and_die(stage: Stage, path: Path, topic: str, who: str, when: str) -> None:
    """Start a payment in a process that dies before it can report the outcome to the broker."""
    ledger = Ledger(path)
    body = str(EVERYBODY[who]).encode()
    async with make_cashier(stage, know_nothing) as cashier, cashier.transaction(topic, body, keys=[who]) as half:
        if when == "after booking":
            ledger.book(half.transaction_id, who, EVERYBODY[who])
        os._exit(1)


def run_and_die(stage: Stage, path: Path, topic: str, who: str, when: str) -> None:
    """`pay_and_die` as the main function of a process."""
    asyncio.run(pay_and_die(stage, path, topic, who, when))


async def main(stage: Stage, path: Path) -> None:
    """Four payments: one that works, one refused, and two whose process dies before or after the booking."""
    topic, points = stage.name("payments"), dict.fromkeys(EVERYBODY, 0)
    ledger = Ledger(path)
    for who, when in (("carla", "after booking"), ("dora", "before booking")):
        process = multiprocessing.get_context("spawn").Process(target=run_and_die, args=(stage, path, topic, who, when))
        process.start()
        await asyncio.to_thread(process.join)
        tell(f"* The process that took the payment of {who} died {when}, and the broker has only the half.")

    arrived: asyncio.Queue[str] = asyncio.Queue()
    known: set[str] = set()
    clerk = Consumer(stage.nameserver, group=stage.name("points"), start="earliest", options=IMPATIENT)

    @clerk.handler(topic)
    async def give_points(message: Message) -> None:
        (who,) = message.keys
        # A message may come twice, for example when its acknowledgement is lost; points are given once.
        if message.transaction_id not in known:
            known.add(message.transaction_id)
            points[who] += int(message.body) // 10
            await arrived.put(who)

    async with make_cashier(stage, ledger.check) as cashier, clerk:
        await pay(cashier, ledger, topic, "anna")
        await pay(cashier, ledger, topic, "ben")
        for _ in range(2):
            who = await asyncio.wait_for(arrived.get(), 180)
            tell(f"  {who} gets {points[who]} points.")
        open_questions = {"carla", "dora"}
        while open_questions:
            open_questions.discard(await asyncio.to_thread(ledger.asked.get, timeout=180))
    assert points == {"anna": 3, "ben": 0, "carla": 5, "dora": 0}, points
    tell("* Only those who paid have points: " + ", ".join(f"{who} {n}" for who, n in points.items()) + ".")


if __name__ == "__main__":
    with open_stage(__doc__) as stage, tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(stage, Path(directory) / "ledger.sqlite"))
