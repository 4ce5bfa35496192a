"""Shared by the examples: their command line, and a broker to play with."""

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

# For consumers of a topic that does not exist yet: routes are refreshed every half second, not every half minute.
IMPATIENT = ClientOptions(route_interval=0.5)


def tell(line: str) -> None:
    """Print a line of the story in one piece, even when handlers in several threads print at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Stage:
    """The cluster an example runs on."""

    nameserver: str
    # Empty on the example's own broker; on yours it keeps the names of each run separate.
    suffix: str = ""

    def name(self, name: str) -> str:
        """Return the name of a topic or a group in this run."""
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
        help="the name server of a running cluster, Eruca or Apache RocketMQ 4.x (default: NAMESRV_ADDR); "
        "without one a broker is started inside this process, on free ports and with temporary files",
    )
    nameserver = parser.parse_args().nameserver
    # The story describes what happens; stack traces of handlers that fail on purpose would only distract.
    logging.getLogger("eruca").setLevel(logging.CRITICAL)
    if nameserver:
        tell(f"* Using the cluster at {nameserver}.")
        yield Stage(nameserver, "-" + secrets.token_hex(3))
        return
    from eruca.testing import EmbeddedBroker

    with EmbeddedBroker(hurry=True) as broker:
        tell("* A broker was started for this example. It is in a hurry: retries and transaction checks come at once.")
        yield Stage(broker.nameserver)
