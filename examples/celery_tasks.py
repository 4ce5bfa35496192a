"""Celery with Eruca as its broker: a queue is a topic, the workers are the members of a group.

This starts a real worker (`celery -A celery_tasks worker`), sends it some tasks, and shows its output. When a worker
dies in the middle of a task that is acknowledged late, the next one gets the task again.

    pip install "eruca[celery]"
    python examples/celery_tasks.py
    python examples/celery_tasks.py --nameserver 127.0.0.1:9876
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from celery import Celery, Task
from stage import open_stage, tell

import eruca.integrations.kombu  # noqa: F401  # registers eruca://

# Both sides import this module and find the cluster through NAMESRV_ADDR.
app = Celery("celery_tasks", broker=f"eruca://{os.environ.get('NAMESRV_ADDR', '127.0.0.1:9876')}")
app.conf.task_default_queue = os.environ.get("TASKS_QUEUE", "mails")
app.conf.task_acks_late = True
app.conf.worker_hijack_root_logger = False
app.conf.worker_redirect_stdouts = False
app.conf.broker_connection_retry_on_startup = True


@app.task(name="send_mail")  # type: ignore[untyped-decorator]
def send_mail(to: str, text: str) -> None:
    """A task that a worker runs."""
    tell(f"  worker: mail to {to}: {text}")


@app.task(name="add", bind=True, max_retries=3)  # type: ignore[untyped-decorator]
def add(self: Task, numbers: list[int]) -> None:
    """A task that fails the first time and asks Celery for a retry."""
    if not self.request.retries:
        tell("  worker: the adding machine is warming up")
        raise self.retry(countdown=0)
    tell(f"  worker: {' + '.join(map(str, numbers))} = {sum(numbers)}, on the second try")


def give_tasks() -> int:
    """Send tasks; returns how many lines the worker will print about them."""
    send_mail.delay("ada", "your order is on its way")
    send_mail.delay("bob", text="so is yours")
    add.delay([1, 2, 3])
    return 4


def run_worker() -> subprocess.Popen[str]:
    """Start a worker; its output comes through the pipe."""
    command = [sys.executable, "-m", "celery", "--quiet", "-A", "celery_tasks", "worker"]
    command += ["--pool", "solo", "--loglevel", "ERROR"]
    return subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True)


def main() -> None:
    """Send tasks, and watch the worker until it has done them."""
    count = give_tasks()
    tell("* 3 tasks were sent.")
    worker = run_worker()
    assert worker.stdout is not None
    try:
        for line in worker.stdout:
            if line.startswith("  worker:"):
                tell(line.rstrip())
                count -= 1
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
        os.environ["TASKS_QUEUE"] = app.conf.task_default_queue = stage.name("mails")
        app.conf.broker_url = f"eruca://{stage.nameserver}"
        main()
