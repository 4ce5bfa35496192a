"""The clients import and can be built without what only POSIX systems have, and without a line of the servers.

This is not a test on Windows. It takes away what Windows lacks, which is what has kept the clients from being imported.
"""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE_S

# Python's own library is loaded before anything is taken away: on Windows it would choose other modules.
_CHILD = """\
import asyncio, atexit, concurrent.futures, logging, multiprocessing, os, selectors, signal, socket, ssl, subprocess
import sys, tempfile, threading, uuid
import msgspec

for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty", "uvloop"):
    sys.modules[name] = None
for name in ("O_DIRECTORY", "fchmod", "fdatasync", "fork", "forkpty", "geteuid", "getuid", "posix_fadvise"):
    delattr(os, name)
for name in ("posix_fallocate", "pread", "pwrite", "register_at_fork", "uname"):
    delattr(os, name)
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "SIGUSR2", "pthread_kill", "pthread_sigmask"):
    delattr(signal, name)

import eruca, eruca.errors, eruca.metrics, eruca.strategies, eruca.sync

for module in (eruca, eruca.errors, eruca.metrics, eruca.strategies, eruca.sync):
    for name in module.__all__:
        getattr(module, name)


async def build():
    eruca.Producer("127.0.0.1:9876", group="g")
    eruca.Consumer("127.0.0.1:9876", group="g", subscribe="t")


asyncio.run(build())
eruca.sync.Producer("127.0.0.1:9876", group="g")
eruca.sync.Consumer("127.0.0.1:9876", group="g", subscribe="t")
servers = ("_broker", "_store", "_storetools", "_nameserver", "_filterserver")
print(sorted(name for name in sys.modules if name.startswith(tuple("eruca." + room for room in servers))))
"""


def test_clients_are_built_without_posix_and_without_servers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
