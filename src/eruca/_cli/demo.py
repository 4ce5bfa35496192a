"""`eruca demo`: a guided tour with a temporary broker."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from eruca._cli.grouping import SectionedCommand
from eruca.errors import ErucaError

_START_SECONDS_MAX = 60
_STEPS = (
    ("Send a message; the topic is created automatically.", ["send", "hello", "my first message"]),
    ("Send three more, with a tag.", ["send", "hello", "message {n}", "--count=3", "--tags=demo"]),
    ("Read them.", ["tail", "hello"]),
    ("Only those with the tag, as JSON, from the beginning.",
     ["tail", "hello", "--from=earliest", "--tags=demo", "--count=1", "--output=json"]),
    ("What does an option mean?", ["config", "explain", "flushDiskType"]),
)  # fmt: skip


@click.command(cls=SectionedCommand)
@click.option("--spark", is_flag=True, help="The longer tour: orders, a consumer group, and hourly revenue with Spark.")
@click.option(
    "--orders",
    type=click.IntRange(1, 1_000_000),
    default=20_000,
    show_default=True,
    help="With --spark: number of orders.",
)
@click.option(
    "--hours",
    type=click.IntRange(1, 240),
    default=24,
    show_default=True,
    help="With --spark: hours that the orders span.",
)
@click.option("--seed", type=int, default=7, show_default=True, help="With --spark: seed of the random orders.")
@click.option(
    "--chart",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("eruca-demo.png"),
    show_default=True,
    help="With --spark: path of the chart.",
)
def demo(spark: bool, orders: int, hours: int, seed: int, chart: Path) -> None:
    """Take a half-minute tour: start a broker in a temporary directory, send, read, stop.

    Every step is a command that you can run yourself. With --spark, orders are sent, consumed by a group, and streamed
    by Spark into hourly revenue, with a table and a chart at the end. This needs Java 17 and
    `pip install "eruca[spark,charts]"`.

    \b
    Examples:
      eruca demo
      eruca demo --spark --orders 100000
    """
    if spark:
        from eruca._cli.demospark import Plan, check_requirements, tour

        check_requirements()
        with _open_stage() as (directory, address):
            tour(Plan(orders, hours, seed, chart), address, directory, _show)
    else:
        with _open_stage() as (_, address):
            for explanation, arguments in _STEPS:
                _show(explanation, arguments, address)
    click.echo("\n$ # Ctrl-C: stopped cleanly, everything is on disk\nYour turn: eruca up")


@contextmanager
def _open_stage() -> Iterator[tuple[Path, str]]:
    """Run a broker in a temporary directory; yields the directory and the address of its name server."""
    with tempfile.TemporaryDirectory(prefix="eruca-demo-") as directory:
        click.echo("$ eruca up        # here in a temporary directory and on free ports")
        server = _start(Path(directory))
        try:
            yield Path(directory), _wait_until_up(server)
        finally:
            server.terminate()
            server.wait(_START_SECONDS_MAX)
            assert server.stdout is not None
            server.stdout.close()
    if server.returncode:
        raise ErucaError(f"the broker of the demo ended with status {server.returncode}")


def _start(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "eruca", "up", "--output=json", f"--data={directory / 'data'}"]
    ports = ["--nameserver-port=0", "--listen-port=0", "--metrics-port=-1", "--console-listen-port=-1"]
    return subprocess.Popen([*command, *ports], stdout=subprocess.PIPE, text=True)


def _wait_until_up(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    line = server.stdout.readline()
    if not line:
        raise ErucaError("the broker of the demo did not start", hint="see the lines above")
    return str(json.loads(line)["nameserver"])


def _show(explanation: str, arguments: list[str], address: str) -> None:
    click.echo(f"\n# {explanation}\n$ eruca {shlex.join(arguments)}")
    named = [] if arguments[0] == "config" else [f"--namesrv-addr={address}"]
    subprocess.run([sys.executable, "-m", "eruca", *arguments, *named], check=True)
