"""What the examples share: their command line, and a broker to play with."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from eruca import ClientOptions

# For a consumer of a topic that does not exist yet: it looks every half second instead of every half minute.
IMPATIENT = ClientOptions(route_interval=0.5)


def tell(line: str) -> None:
    """Print a line of the story. It comes out whole, also when handlers in several threads tell at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Stage:
    """Where an example plays."""

    nameserver: str
    # Empty on a broker of our own; on yours it keeps the names of one run apart from everybody else's.
    suffix: str = ""

    def name(self, name: str) -> str:
        """The name of a topic or a group in this run."""
        return name + self.suffix


@contextmanager
def open_stage(story: str) -> Iterator[Stage]:
    """Read the command line, and start a broker unless one is named there or in NAMESRV_ADDR."""
    parser = argparse.ArgumentParser(description=story, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-n",
        "--nameserver",
        metavar="HOST:PORT",
        default=os.environ.get("NAMESRV_ADDR"),
        help="the name server of a running cluster, Eruca or Apache RocketMQ 4.x (NAMESRV_ADDR says it too); "
        "without one a broker is started inside this process, on free ports and with temporary files",
    )
    nameserver = parser.parse_args().nameserver
    # The story tells what happens; the stack traces of handlers that fail on purpose would not make it clearer.
    logging.getLogger("eruca").setLevel(logging.CRITICAL)
    if nameserver:
        tell(f"* The cluster is the one at {nameserver}.")
        yield Stage(nameserver, "-" + secrets.token_hex(3))
        return
    from eruca.testing import EmbeddedBroker

    with EmbeddedBroker(hurry=True) as broker:
        tell("* A broker was started for this story. It is in a hurry: retries and check-backs come at once.")
        yield Stage(broker.nameserver)
