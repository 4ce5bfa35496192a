"""A producer that stores halves and decides none; whoever started it kills it."""

from __future__ import annotations

import asyncio
import sys

from eruca import Message, Receipt
from eruca._client.produce.checks import Decision
from eruca._client.produce.transactions import TransactionalProducer


async def main(nameserver: str, name: str) -> None:
    """Store a half for each line of standard input, and say so."""

    async def check(message: Message) -> Decision:
        return Decision.UNKNOWN

    async def work(receipt: Receipt) -> Decision:
        return Decision.UNKNOWN

    loop = asyncio.get_running_loop()
    async with TransactionalProducer(nameserver, group=name, check=check) as producer:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            await producer.send_transaction(name, line.strip().encode(), local=work)
            print(line.strip(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
