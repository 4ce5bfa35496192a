"""What the commands of `eruca pipeline` share: input options, the Spark session, and output."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eruca._cli.connecting import DEFAULT_NAMESERVER, add_tls_options, choose_tls, parse_nameservers
from eruca._cli.output import make_console
from eruca._cli.saying import say
from eruca._cli.tables import make_table
from eruca._ground.times import from_epoch_ms
from eruca._spark.requirements import load_module
from eruca.errors import ConfigError, ErucaError

if TYPE_CHECKING:
    from eruca._spark.cluster import Access
    from eruca._spark.pipelines.inputs import MessageInput
    from eruca._spark.pipelines.summary import JobSummary

log = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., Any])


def load(module: str) -> Any:
    """Import a module that needs Spark. Raises ConfigError, which names what to install, if a package is missing."""
    return load_module(module, "this command")


def add_broker_settings(function: Function) -> Function:
    """Add the broker settings that determine the file sizes of a store."""
    for add in (
        click.option(
            "--option", "settings", multiple=True, metavar="KEY=VALUE", help="A broker setting; overrides the file."
        ),
        click.option(
            "-c",
            "--config",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            help="The broker's .conf file, for its file sizes.",
        ),
    ):
        function = add(function)
    return function


def add_session_options(function: Function) -> Function:
    """Add the options for the Spark session and the output."""
    for decorate in (
        click.option(
            "--summary",
            "summary_file",
            type=click.Path(dir_okay=False),
            help="Also write the summary to this file, as JSON.",
        ),
        click.option(
            "-o",
            "--output",
            type=click.Choice(["table", "json"]),
            default="table",
            show_default=True,
            help="Output format.",
        ),
        click.option("--conf", "conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; can be repeated."),
        click.option(
            "--master",
            default=None,
            metavar="URL",
            help="Spark master: spark://host:7077, yarn, k8s://..., sc://host [default: local[*]].",
        ),
    ):
        function = decorate(function)
    return function


def add_input_options(function: Function) -> Function:
    """Add the options that select the messages to read."""
    for decorate in (
        click.option("--until", metavar="TIME", help="Only messages stored before this time; same format as --since."),
        click.option(
            "--since",
            metavar="TIME",
            help="Only messages stored at this time or later: -2h, 2026-11-15T08:00:00Z, epoch ms.",
        ),
        click.option("--pattern", default="", metavar="REGEX", help="Topics whose whole name matches."),
        click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="A topic; can be repeated."),
        add_store_option,
        click.option(
            "--archive",
            default="",
            metavar="DIR",
            help="Read an archive; with -n, continue with the live topics where it ends.",
        ),
        add_cluster_option,
    ):
        function = decorate(function)
    return function


def add_cluster_option(function: Function) -> Function:
    """Add `-n`, whose default depends on the other options, and the options of TLS."""
    return click.option(
        "-n",
        "--namesrv-addr",
        "--name-server",
        "nameservers",
        metavar="HOST:PORT",
        callback=lambda _context, _parameter, text: None if text is None else parse_nameservers(text),
        help="Name servers of the live topics, separated by `;`.",
    )(add_tls_options(function))


def add_store_option(function: Function) -> Function:
    """Add `--store`."""
    return click.option(
        "--store",
        "stores",
        multiple=True,
        metavar="[BROKER=]DIR",
        help="A store directory of an Eruca or Java broker; can be repeated.",
    )(function)


def make_access(nameservers: str | None, *, otherwise: bool = True) -> Access | None:
    """Return how to reach the named cluster, or with `otherwise` that of the environment or of this machine."""
    from eruca._spark.cluster import Access

    if nameservers is None and otherwise:
        given = os.environ.get("ERUCA_NAMESRV_ADDR") or os.environ.get("NAMESRV_ADDR")
        nameservers = parse_nameservers(given or DEFAULT_NAMESERVER)
    return None if nameservers is None else Access(nameservers, tls=choose_tls())


def make_input(
    nameservers: str | None,
    archive: str,
    stores: Sequence[str],
    topics: Sequence[str],
    pattern: str,
    since: str | None,
    until: str | None,
) -> MessageInput:
    """Return the input of a job from its options."""
    return load("eruca._spark.pipelines.inputs").MessageInput(  # type: ignore[no-any-return]
        archive=archive,
        access=make_access(nameservers, otherwise=not archive and not stores),
        stores=parse_stores(stores),
        topics=tuple(topics),
        pattern=pattern,
        since=parse_timestamp(since),
        until=parse_timestamp(until),
    )


def parse_stores(given: Sequence[str]) -> dict[str, str]:
    """Return store paths by broker name; the name defaults to the path."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        place = path if equals else text
        found[(name if equals else os.path.abspath(text)).replace(",", "_")] = os.path.abspath(place)
    if len(found) < len(given):
        raise ConfigError(
            "two stores have the same broker", hint="name them: --store broker-a=DIR --store broker-b=DIR"
        )
    return found


def make_address(place: str) -> str:
    """Return the address of a path for all nodes of a cluster; addresses are returned unchanged."""
    return place if "://" in place else f"file://{os.path.abspath(place)}"


def parse_timestamp(text: str | None) -> datetime | None:
    """Parse a time."""
    if text is None:
        return None
    from eruca._spark.timestamps import read_timestamp

    try:
        return from_epoch_ms(read_timestamp(text).resolve(int(time.time() * 1000)))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@contextmanager
def open_session(job: str, master: str | None, conf: Sequence[str], *, delta: bool = False) -> Iterator[Any]:
    """Open a Spark session for one command."""
    settings: dict[str, str] = {}
    if delta:
        module = load("eruca._spark.pipelines.archive.delta")
        settings |= module.DELTA_CONF | {"spark.jars.packages": module.DELTA_PACKAGE}
    for text in conf:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--conf")
        settings[key] = value
        if key == "spark.jars":
            settings.pop("spark.jars.packages", None)
    # Under spark-submit, the master is set there.
    inside = "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
    session = load("eruca._spark.session").make_session(
        f"eruca {job}", master or (None if inside else "local[*]"), settings
    )
    try:
        yield session
    except ErucaError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        raise ErucaError(f"the job failed: {find_cause(error)}", hint="eruca -vv shows the whole error") from error
    finally:
        session.stop()


def find_cause(error: Exception) -> str:
    """Return the relevant line of a Spark error: that of our own error in a task or planner, or the first line."""
    text = str(getattr(error, "java_exception", None) or error)
    log.debug("%s", error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("eruca.errors.")]
    return ours[-1] if ours else lines[0] if lines else type(error).__name__


def is_delta(archive: str) -> bool:
    """Whether an archive is a Delta table."""
    return bool(archive) and load("eruca._spark.pipelines.archive.job").read_contents(archive).format == "delta"


def show_summary(summary: JobSummary, output: str, summary_file: str | None) -> None:
    """Print the summary of a job, and write it to a file if one was given."""
    if summary_file:
        summary.write(summary_file)
    if output == "json":
        click.echo(json.dumps(summary.as_dict(), indent=2, ensure_ascii=False, default=str))
        for warning in summary.warnings:
            say(f"warning: {warning}")
    else:
        make_console().print(load("eruca._spark.pipelines.summary").draw_summary(summary))


def show_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], title: str = "") -> None:
    """Print rows as a table; `columns` maps names to headings."""
    table = [[("-" if row[name] is None else str(row[name])) for name in columns] for row in rows]
    make_console().print(make_table(list(columns.values()), table, title))


def parse_span(text: str) -> timedelta:
    """Parse a time span."""
    from eruca._spark.optiontable import read_duration_ms

    try:
        return timedelta(milliseconds=read_duration_ms(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
