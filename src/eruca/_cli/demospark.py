"""The second half of `eruca demo --spark`: the topic streamed into hourly revenue, with a table and a chart."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from eruca._cli.demoorders import (
    BILLING,
    BROKEN,
    REVENUE,
    TOPIC,
    Takings,
    check_consumed,
    consume_orders,
    make_orders,
    send_orders,
    sum_up,
)
from eruca._cli.output import make_console
from eruca._cli.tables import make_table
from eruca._schemas.bodies import require
from eruca.errors import ConfigError, ErucaError

_JAVA_MAJOR_MIN = 17
_JAVA_SECONDS_MAX = 30
_STREAM_SECONDS_MAX = 300
_POLL_S = 0.2
_BATCHES = 4
_BAR_CELLS = 36
_SCHEMA = "order string not null, product string, cents long not null, at timestamp not null"
_CODE = f"""
    orders = (spark.readStream.format("rocketmq")
        .option("nameServer", ...).option("subscribe", "{TOPIC}").option("startingOffsets", "earliest")
        .option("commitOffsetsToGroup", "{REVENUE}").schema("body binary").load())
    good, bad = split_bad(decode_json(orders, "{_SCHEMA}"))
    hourly = good.groupBy(window("value.at", "1 hour")).agg(count("*"), sum("value.cents"))
"""
_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    # The demo is short, so code from Java's optimizing compiler would not pay off. Loaded classes must not trigger a
    # garbage collection, however many there are.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m",
    "spark.sql.shuffle.partitions": "2",
    # The state of one run needs no old versions.
    "spark.sql.streaming.minBatchesToRetain": "2",
}

# Shows a command and what it prints: an explanation, its arguments, the address.
Show = Callable[[str, list[str], str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of the demo."""

    orders: int
    hours: int
    seed: int
    chart: Path


def check_requirements() -> None:
    """Raise ConfigError with a hint if something that Spark needs is missing."""
    for package in ("pyspark", "pyarrow", "numpy", "matplotlib"):
        require(package, "eruca demo --spark", "spark,charts")
    hint = f"install Java {_JAVA_MAJOR_MIN} (Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME"
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise ConfigError("Spark needs Java, which is not installed", hint=hint)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS_MAX, check=False)
    version = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if version is None or int(version[1]) < _JAVA_MAJOR_MIN:
        found = f"version {version[1]}" if version else "something else"
        raise ConfigError(f"Spark needs Java {_JAVA_MAJOR_MIN}, and {java} is {found}", hint=hint)


def tour(plan: Plan, nameserver: str, directory: Path, show: Show) -> None:
    """Send, consume, stream and draw. Raises ErucaError if the figures do not agree."""
    orders = make_orders(plan.orders, plan.hours, plan.seed, datetime.now(UTC))
    by_hour = sum_up(orders)
    cents = sum(order.cents for order in orders)
    click.echo(
        f"\n# A shop sends the orders of the last {plan.hours} hours (seed {plan.seed}), and some messages that are "
        "not orders."
    )
    count = asyncio.run(send_orders(nameserver, orders))
    click.echo(f"{count:,} messages sent, {_show_money(cents)} in {len(orders):,} orders")

    click.echo(f"\n# The group {BILLING} consumes them: every order must be there, to the cent.")
    seen = asyncio.run(consume_orders(nameserver, count))
    check_consumed(orders, seen)
    click.echo(f"{len(seen.orders):,} orders consumed, {_show_money(seen.cents)}; {seen.broken.total()} others")

    click.echo(f"\n# Spark streams the topic into hourly revenue, by the time in the orders.{_CODE.rstrip()}")
    click.echo("(Spark takes some seconds to start)")
    with _start_spark(directory) as spark:
        found, bad = _stream(spark, nameserver, directory, -(-count // _BATCHES))
    if found != by_hour:
        raise ErucaError(f"Spark's revenue differs from what was sent: {_find_difference(by_hour, found)}")
    if sum(bad.values()) != len(BROKEN):
        raise ErucaError(f"{sum(bad.values())} bodies were set aside instead of {len(BROKEN)}")
    _draw(found, bad)
    draw_png(found, plan.chart)
    click.echo(f"Chart: {plan.chart.absolute()}")
    show(
        "Spark commits its offsets to a group, so its lag is shown like any other.",
        ["offset", "show", REVENUE],
        nameserver,
    )
    click.echo(
        f"\nSpark's revenue matches what was sent, hour by hour: {_show_money(cents)} in {len(orders):,} orders."
    )


# -- Spark -------------------------------------------------------------------------------------------------------------


@contextmanager
def _start_spark(directory: Path) -> Iterator[Any]:
    """Open a session whose Java prints nothing unless something goes wrong."""
    from eruca._spark.session import make_session

    said = directory / "spark.log"
    with _send_stderr_to(said):
        spark = make_session("eruca-demo", conf={**_CONF, "spark.local.dir": str(directory / "spark")})
    try:
        yield spark
    except BaseException:
        click.echo(textwrap.indent(said.read_text(errors="replace")[-4000:], "spark: "), err=True)
        raise
    finally:
        spark.stop()


@contextmanager
def _send_stderr_to(path: Path) -> Iterator[None]:
    """Redirect the errors of programs that are started meanwhile to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("wb") as target:
        os.dup2(target.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _stream(
    spark: Any, nameserver: str, directory: Path, rows_max: int
) -> tuple[dict[datetime, Takings], dict[str, int]]:
    """Return the revenue by hour as Spark computes it, and the number of bodies set aside by reason."""
    from pyspark.sql import functions

    from eruca._spark.decoding import decode_json, split_bad
    from eruca._spark.source.groupcommits import commit_progress

    options = {"nameServer": nameserver, "subscribe": TOPIC, "startingOffsets": "earliest"}
    orders = (
        spark.readStream.format("rocketmq")
        .options(**options, commitOffsetsToGroup=REVENUE, maxOffsetsPerTrigger=str(rows_max))
        .schema("body binary")
        .load()
    )
    good, _ = split_bad(decode_json(orders, _SCHEMA))
    hour = functions.window("value.at", "1 hour").start.cast("long").alias("hour")
    sums = (functions.count("*").alias("orders"), functions.sum("value.cents").alias("cents"))
    commits = commit_progress(spark)
    query = (
        good.groupBy(hour)
        .agg(*sums)
        .writeStream.format("memory")
        .queryName("revenue")
        .outputMode("complete")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        _follow(query)
        commits.wait_for_end(query)
    finally:
        query.stop()
        spark.streams.removeListener(commits)
        commits.close()
    found = {
        datetime.fromtimestamp(row.hour, UTC): Takings(row.orders, row.cents)
        for row in spark.table("revenue").orderBy("hour").collect()
    }
    stored = spark.read.format("rocketmq").options(**options).schema("body binary").load()
    _, bad = split_bad(decode_json(stored, _SCHEMA))
    return found, {row.error: row["count"] for row in bad.groupBy("error").count().orderBy("error").collect()}


def _follow(query: Any) -> None:
    """Report what each batch read until the query ends."""
    told = -1
    began = time.monotonic()
    while True:
        ended = query.awaitTermination(_POLL_S)
        for progress in query.recentProgress:
            if progress.numInputRows and progress.batchId > told:
                told = progress.batchId
                click.echo(f"batch {told}: {progress.numInputRows:,} messages")
        if ended:
            return
        if time.monotonic() - began > _STREAM_SECONDS_MAX:
            raise ErucaError(f"the stream did not end within {_STREAM_SECONDS_MAX} s")


def _find_difference(wanted: Mapping[datetime, Takings], found: Mapping[datetime, Takings]) -> str:
    hours = [hour for hour in sorted({*wanted, *found}) if wanted.get(hour) != found.get(hour)]
    return f"{len(hours)} hours differ; at {hours[0]:%Y-%m-%d %H:%M} {wanted.get(hours[0])} and {found.get(hours[0])}"


# -- pictures ----------------------------------------------------------------------------------------------------------


def _show_money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02}"


def _draw(found: Mapping[datetime, Takings], bad: Mapping[str, int]) -> None:
    """Print the table with its bars, and what was set aside."""
    most = max(takings.cents for takings in found.values())
    rows = []
    for hour, takings in found.items():
        bar = "█" * max(1, round(_BAR_CELLS * takings.cents / most))
        rows.append((f"{hour:%Y-%m-%d %H:00}", f"{takings.orders:,}", _show_money(takings.cents), bar))
    console = make_console()
    console.print(make_table(["hour (UTC)", ">orders", ">revenue", ""], rows, "hourly revenue"))
    for reason, count in bad.items():
        console.print(f"set aside: {count} ({reason})")


def draw_png(found: Mapping[datetime, Takings], path: Path) -> None:
    """Draw the chart as a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.add_subplot()
    hours: Sequence[str] = [f"{hour:%H:00}" for hour in found]
    axes.bar(range(len(hours)), [takings.cents / 100 for takings in found.values()], color="#3b7d4f")
    step = max(1, len(hours) // 24)
    axes.set_xticks(range(0, len(hours), step), hours[::step], rotation=60)
    axes.set_title("hourly revenue")
    axes.set_xlabel("hour (UTC)")
    axes.set_ylabel("revenue")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")
