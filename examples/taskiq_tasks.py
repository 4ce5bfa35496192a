"""taskiq with Eruca as its broker: tasks are messages, workers are the members of a group.

This starts a real worker process (`taskiq worker taskiq_tasks:broker`), sends it some tasks, and shows its output.
When a worker dies in the middle of a task, the next one gets the task again.

    pip install "eruca[taskiq]"
    python examples/taskiq_tasks.py
    python examples/taskiq_tasks.py --nameserver 127.0.0.1:9876
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from stage import open_stage, tell

from eruca.integrations.taskiq import ErucaBroker

# Both sides import this module and find the cluster through NAMESRV_ADDR.
broker = ErucaBroker(topic=os.environ.get("TASKS_TOPIC", "mails"))


@broker.task("send_mail")
async def send_mail(to: str, text: str) -> None:
    """A task that a worker runs."""
    tell(f"  worker: mail to {to}: {text}")


@broker.task("add")
def add(numbers: list[int]) -> None:
    """A plain function runs in a thread of the worker."""
    tell(f"  worker: {' + '.join(map(str, numbers))} = {sum(numbers)}")


async def give_tasks() -> int:
    """Send tasks; returns how many."""
    await broker.startup()
    await send_mail.kiq("ada", "your order is on its way")
    await send_mail.kiq("bob", text="so is yours")
    await add.kiq([1, 2, 3])
    await broker.shutdown()
    return 3


def run_worker() -> subprocess.Popen[str]:
    """Start a worker; its output comes through the pipe."""
    command = [sys.executable, "-m", "taskiq", "worker", "--workers", "1", "--log-level", "WARNING"]
    return subprocess.Popen(
        [*command, "taskiq_tasks:broker"], cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True
    )


def main() -> None:
    """Send tasks, and watch the worker until it has done them."""
    count = asyncio.run(give_tasks())
    tell(f"* {count} tasks were sent.")
    worker = run_worker()
    assert worker.stdout is not None
    try:
        for line in worker.stdout:
            tell(line.rstrip())
            count -= line.startswith("  worker:")
            if not count:
                break
    finally:
        worker.terminate()
        worker.wait(30)
        worker.stdout.close()
    assert not count, "the worker ended before all tasks were done"
    tell("* All tasks are done, and the worker was told to stop.")


if __name__ == "__main__":
    with open_stage(__doc__) as stage:
        os.environ["NAMESRV_ADDR"] = stage.nameserver
        os.environ["TASKS_TOPIC"] = broker.topic = stage.name("mails")
        main()
