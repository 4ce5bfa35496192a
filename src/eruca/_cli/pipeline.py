"""`eruca pipeline`: jobs on Spark over topics, archives and store files."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from eruca._cli.grouping import CommandGroup
from eruca._cli.output import make_console
from eruca._cli.pipelinecheckpoint import checkpoint
from eruca._cli.pipelinejobs import audit, dlq, fsck, rebuild, replay
from eruca._cli.pipelineoptions import (
    add_cluster_option,
    add_input_options,
    add_session_options,
    add_store_option,
    is_delta,
    load,
    make_access,
    make_input,
    open_session,
    parse_stores,
    show_summary,
)
from eruca._cli.saying import say
from eruca._cli.tables import make_table
from eruca._wire.names import TRACE_TOPIC


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Spark jobs: archive, query, statistics, replay, audit, and repair of stores.

    A job runs on this machine, or with --master on a Spark cluster. It shows its progress and ends with a summary:
    rows, bytes, first and last time, and what was set aside and why. It needs `pip install "eruca[spark]"` and Java 17.

    For one group or one store that a single process can handle, use `eruca dlq`, `eruca offset` and `eruca store`:
    they start at once and need neither Spark nor Java. `eruca lag` shows how far groups are behind.

    \b
    Examples:
      eruca pipeline archive --archive DIR -n HOST:9876    what is new, in files
      eruca pipeline query -n HOST:9876 -t orders \\
          "select count(*) from messages"                  SQL over messages
      eruca pipeline stats -n HOST:9876 --since -24h       tables and charts
      eruca pipeline replay --dlq billing -n HOST:9876     dead letters again
      eruca pipeline audit -n HOST:9876 -t orders          sent and consumed?
      eruca pipeline checkpoint show /data/cp              where a stream is
      eruca pipeline rebuild /data/store                   queues and index
    """


@pipeline.command()
@click.option(
    "--archive",
    "place",
    required=True,
    metavar="DIR",
    help="The archive: a directory, or an address such as s3://bucket/archive.",
)
@add_cluster_option
@add_store_option
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; can be repeated.")
@click.option("--pattern", default="", metavar="REGEX", help="Only topics whose whole name matches.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "delta"]),
    default="parquet",
    show_default=True,
    help="Format of the archive.",
)
@click.option("--everything", is_flag=True, help="With --store: include the last file. The broker must be stopped.")
@click.option("--mark", is_flag=True, help="Report the archived position to brokers, for deleteOnlyArchived=true.")
@click.option("--compact/--no-compact", default=True, show_default=True, help="Merge small files afterwards.")
@add_session_options
def archive(
    place: str,
    nameservers: str | None,
    stores: tuple[str, ...],
    topics: tuple[str, ...],
    pattern: str,
    form: str,
    everything: bool,
    mark: bool,
    compact: bool,
    master: str | None,
    conf: tuple[str, ...],
    output: str,
    summary_file: str | None,
) -> None:
    """Add new messages to an archive: Parquet (or Delta) files by topic and date.

    Without -t, all topics are archived except system topics, retries and dead letters. Each run continues where the
    last one ended. A run that is killed leaves no duplicates; the next run cleans up. With --store, the closed
    commit-log files of brokers are read instead of the topics, including copies of files that have expired.

    A broker with deleteOnlyArchived=true deletes a file only after it was told that its messages are archived, even if
    its disk is full: it then rejects new messages. --mark tells it. Use --mark in the job that archives everything you
    want to keep.

    \b
    Examples:
      eruca pipeline archive --archive /data/archive -n host:9876
      eruca pipeline archive --archive /data/archive -n host:9876 -t orders --mark
      eruca pipeline archive --archive s3://bucket/archive -n host:9876 \\
          --master spark://host:7077
      eruca pipeline archive --archive /data/archive --store broker-a=/data/store
    """
    module = load("eruca._spark.pipelines.archive.job")
    with open_session("archive", master, conf, delta=form == "delta") as session:
        summary = module.run_archive(
            session,
            place,
            access=make_access(nameservers, otherwise=not stores),
            topics=topics,
            pattern=pattern,
            stores=parse_stores(stores),
            everything=everything,
            form=form,
            mark=mark,
            compact=compact,
        )
    show_summary(summary, output, summary_file)


@pipeline.command()
@click.argument("statement")
@add_input_options
@click.option("--master", default=None, metavar="URL", help="Spark master [default: local[*]].")
@click.option("--conf", "conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; can be repeated.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="Output format; JSON is one object per line.",
)
@click.option(
    "--limit", default=1000, show_default=True, help="Show at most this many rows in a table; JSON and CSV show all."
)
def query(
    statement: str,
    nameservers: str | None,
    archive: str,
    stores: tuple[str, ...],
    topics: tuple[str, ...],
    pattern: str,
    since: str | None,
    until: str | None,
    master: str | None,
    conf: tuple[str, ...],
    output: str,
    limit: int,
) -> None:
    """Run a SQL STATEMENT over an archive and the live topics as one table, `messages`.

    Archived messages are read from the archive, the rest from the brokers: no message is missing and none appears
    twice. The columns are topic, broker, queueId, queueOffset, messageId, offsetId, keys, tags, body, flag,
    bornTimestamp, bornHost, storeTimestamp, storeHost, reconsumeTimes, transactionState, properties and date. Bodies
    are binary: `cast(body as string)` converts them to text.

    \b
    Examples:
      eruca pipeline query -n host:9876 -t orders \\
          "select tags, count(*) from messages group by tags"
      eruca pipeline query --archive /data/archive -n host:9876 -t orders \\
          "select date, count(*) n from messages group by date order by date"
      eruca pipeline query --archive /data/archive -o json \\
          "select * from messages where array_contains(keys, 'o-17')"
    """
    module = load("eruca._spark.pipelines.query")
    wanted = make_input(nameservers, archive, stores, topics, pattern, since, until)
    with open_session("query", master, conf, delta=is_delta(archive)) as session:
        result = module.run_query(session, wanted, statement)
        if output == "csv":
            module.write_csv(result, sys.stdout)
        elif output == "json":
            module.write_json(result, sys.stdout)
        else:
            rows = []
            for row in result.rows():
                rows.append([json.dumps(each) if isinstance(each, dict | list) else str(each) for each in row])
                if len(rows) >= limit:
                    say(f"only the first {limit} rows are shown (--limit)")
                    break
            make_console().print(make_table(result.columns, rows))
    for warning in result.summary.warnings:
        say(f"warning: {warning}")


@pipeline.command()
@add_input_options
@click.option("--out", default="report", show_default=True, metavar="DIR", help="Output directory.")
@click.option("--traces/--no-traces", "with_traces", default=True, show_default=True, help="Read consumer traces.")
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="Topic of the traces.")
@click.option(
    "--lag/--no-lag", "with_lag", default=True, show_default=True, help="Ask brokers how far groups are behind."
)
@click.option(
    "--charts/--no-charts",
    "with_charts",
    default=True,
    show_default=True,
    help='Draw PNG charts; needs `pip install "eruca[charts]"`.',
)
@add_session_options
def stats(
    out: str,
    with_traces: bool,
    trace_topic: str,
    with_lag: bool,
    with_charts: bool,
    master: str | None,
    conf: tuple[str, ...],
    output: str,
    summary_file: str | None,
    archive: str,
    **options: Any,
) -> None:
    """Count messages and bytes by hour and day, topic, tag and producer host, with rates and latencies.

    Consumer traces, where enabled, show what each group consumed and how long after it was sent. Lag is the current
    lag. The output directory contains a CSV file for each table, PNG charts, and report.html with everything in one
    file.

    \b
    Examples:
      eruca pipeline stats -n host:9876 --since -24h --out report
      eruca pipeline stats --archive /data/archive -n host:9876 \\
          -t orders --out report
      eruca pipeline stats --store /data/store --out report
    """
    module = load("eruca._spark.pipelines.stats")
    wanted = make_input(archive=archive, **options)
    with open_session("stats", master, conf, delta=is_delta(archive)) as session:
        summary = module.run_stats(
            session,
            wanted,
            out,
            with_traces=with_traces,
            with_lag=with_lag,
            with_charts=with_charts,
            trace_topic=trace_topic,
        )
    show_summary(summary, output, summary_file)


for _job in (replay, dlq, audit, rebuild, fsck, checkpoint):
    pipeline.add_command(_job)
