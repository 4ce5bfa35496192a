"""The jobs of `eruca pipeline` that send, compare and repair: replay, dlq, audit, rebuild, fsck."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from eruca._cli.connecting import parse_nameservers
from eruca._cli.grouping import SectionedCommand
from eruca._cli.pipelineoptions import (
    add_broker_settings,
    add_input_options,
    add_session_options,
    is_delta,
    load,
    make_access,
    make_address,
    make_input,
    open_session,
    parse_span,
    show_summary,
    show_table,
)
from eruca._cli.store import read_properties
from eruca._wire.names import TRACE_TOPIC


@click.command(cls=SectionedCommand)
@add_input_options
@click.option(
    "--to-topic", default="", metavar="TOPIC", help="Destination [default: the topic each message came from]."
)
@click.option("--to-name-server", metavar="HOST:PORT", help="Send to another cluster.")
@click.option("-k", "--key", "keys", multiple=True, help="Only messages with this key; can be repeated.")
@click.option("--keys-file", type=click.File(encoding="utf-8"), help="A file with one key per line.")
@click.option("--id", "ids", multiple=True, help="Only the message with this id; can be repeated.")
@click.option("--tag", "tags", multiple=True, help="Only messages with this tag; can be repeated.")
@click.option("--dlq", "dead_letters_of", default="", metavar="GROUP", help="Replay the dead letters of this group.")
@click.option(
    "--rate", type=float, default=0, metavar="N", help="At most this many messages per second; 0 is unlimited."
)
@click.option(
    "--parallel",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of sending tasks. Above 1, messages are ordered by queue, not by time.",
)
@click.option("--name", default="", help="Part of the replay's id; a new name sends the same messages again.")
@click.option("--dry-run", is_flag=True, help="Count the messages without sending them.")
@add_session_options
def replay(
    to_topic: str,
    to_name_server: str | None,
    keys: tuple[str, ...],
    keys_file: Any,
    ids: tuple[str, ...],
    tags: tuple[str, ...],
    dead_letters_of: str,
    rate: float,
    parallel: int,
    name: str,
    dry_run: bool,
    master: str | None,
    conf: tuple[str, ...],
    output: str,
    summary_file: str | None,
    archive: str,
    nameservers: str | None,
    **options: Any,
) -> None:
    """Send messages again: those of a time range, with certain keys, or the dead letters of a group.

    A replay has an id, derived from the options that select the messages and the destination; the summary shows it.
    Eruca brokers drop messages of a replay that they have already stored. To continue an interrupted replay, run it
    again with the same options, including --until: without it, the second run ends later than the first. Java brokers
    cannot do this: a second run sends everything again, and the summary warns about it.

    `eruca dlq resend` sends the dead letters of one group again without Spark.

    \b
    Examples:
      eruca pipeline replay -n host:9876 -t orders --since -2h --until -1h \\
          --to-topic orders-again --rate 500
      eruca pipeline replay --archive /data/archive -t orders --key o-17 \\
          --to-name-server host:9876
      eruca pipeline replay --dlq billing -n host:9876 --dry-run
    """
    module = load("eruca._spark.pipelines.replay")
    if keys_file is not None:
        keys += tuple(line.strip() for line in keys_file if line.strip())
    wanted = make_input(archive=archive, nameservers=nameservers, **options)
    target = make_access(to_name_server and parse_nameservers(to_name_server), otherwise=False) or wanted.access
    if target is None:
        target = make_access(None)
    what = module.ReplayOptions(
        topic=to_topic,
        keys=keys,
        ids=ids,
        tags=tags,
        dead_letters_of=dead_letters_of,
        rate=rate,
        parallel=parallel,
        name=name,
        dry_run=dry_run,
    )
    with open_session("replay", master, conf, delta=is_delta(archive)) as session:
        summary = module.run_replay(session, wanted, what, target)
    show_summary(summary, output, summary_file)


@click.command(cls=SectionedCommand)
@click.option("-g", "--group", default="", help="Only the dead letters of this group.")
@click.option("--out", default="", metavar="DIR", help="Write all dead letters to this directory, as Parquet.")
@add_input_options
@add_session_options
def dlq(
    group: str,
    out: str,
    master: str | None,
    conf: tuple[str, ...],
    output: str,
    summary_file: str | None,
    archive: str,
    **options: Any,
) -> None:
    """Count the dead letters of all groups by topic and day, and write them as Parquet.

    Use it when there are too many to page through, or when they are in an archive or in store files. `eruca dlq` lists,
    shows, resends and exports the dead letters of a running cluster without Spark. `eruca pipeline replay --dlq GROUP`
    sends large numbers of them again.

    \b
    Examples:
      eruca pipeline dlq -n host:9876
      eruca pipeline dlq -n host:9876 -g billing --out letters
    """
    module = load("eruca._spark.pipelines.dlq")
    wanted = make_input(archive=archive, **options)
    with open_session("dlq", master, conf, delta=is_delta(archive)) as session:
        summary, rows = module.run_dlq(session, wanted, group, make_address(out) if out else "")
    if output == "table" and rows:
        columns = {name: f">{name}" if name == "letters" else name for name in rows[0]}
        show_table(rows, columns)
    summary.facts["groups"] = rows if output == "json" else len({row["group"] for row in rows})
    show_summary(summary, output, summary_file)


@click.command(cls=SectionedCommand)
@add_input_options
@click.option("--out", default="", metavar="DIR", help="Write all findings to this directory, as CSV.")
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="Topic of the traces.")
@click.option(
    "--late",
    default="60s",
    show_default=True,
    metavar="SPAN",
    help="A message consumed later than this after it was sent is late.",
)
@click.option(
    "--settle",
    default="60s",
    show_default=True,
    metavar="SPAN",
    help="Ignore messages younger than this: they may still be on their way.",
)
@add_session_options
def audit(
    out: str,
    trace_topic: str,
    late: str,
    settle: str,
    master: str | None,
    conf: tuple[str, ...],
    output: str,
    summary_file: str | None,
    archive: str,
    **options: Any,
) -> None:
    """Compare what was sent, stored and consumed, and list undecided transactions.

    Producers and consumers must have had message trace enabled. The exit status is 1 if messages are lost, stored or
    consumed twice, not consumed, or late. With --store, all transactions of a store are checked; with -n, those that
    are open now.

    \b
    Examples:
      eruca pipeline audit -n host:9876 -t orders --since -1d --out findings
      eruca pipeline audit --store /data/store --late 5m
    """
    module = load("eruca._spark.pipelines.audit")
    wanted = make_input(archive=archive, **options)
    spans = {"late": parse_span(late), "settle": parse_span(settle)}
    with open_session("audit", master, conf, delta=is_delta(archive)) as session:
        summary = module.run_audit(session, wanted, out, trace_topic=trace_topic, **spans)
    show_summary(summary, output, summary_file)
    if any(summary.facts[finding] for finding in module.FINDINGS):
        sys.exit(1)


@click.command(cls=SectionedCommand)
@click.argument("directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--out", metavar="DIR", help="Write the new files to this directory; the stores are not changed.")
@add_broker_settings
@click.option("--drop-old", is_flag=True, help="Delete the old consume queues and index instead of keeping a copy.")
@add_session_options
def rebuild(
    directories: tuple[str, ...],
    out: str | None,
    config: Path | None,
    settings: tuple[str, ...],
    drop_old: bool,
    master: str | None,
    conf: tuple[str, ...],
    output: str,
    summary_file: str | None,
) -> None:
    """Rebuild the consume queues and index of stores from their commit logs, in parallel.

    Use it for stores that are too large for one process, or for many stores at once; for a single store
    `eruca store rebuild` does the same without Spark. The result is byte for byte what the broker would have written.
    The broker must be stopped, unless --out is given. The old files are kept next to the new ones.

    \b
    Examples:
      eruca pipeline rebuild /data/store
      eruca pipeline rebuild /data/store-a /data/store-b --out /data/rebuilt
    """
    module = load("eruca._spark.pipelines.rebuild")
    with open_session("rebuild", master, conf) as session:
        summary = module.run_rebuild(
            session,
            [os.path.abspath(directory) for directory in directories],
            # Workers may have another working directory.
            out=None if out is None else os.path.abspath(out),
            properties=read_properties(config, settings),
            drop_old=drop_old,
        )
    show_summary(summary, output, summary_file)


@click.command(cls=SectionedCommand)
@click.argument("directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--out", metavar="DIR", help="Write all findings to this directory, as Parquet.")
@add_broker_settings
@add_session_options
def fsck(
    directories: tuple[str, ...],
    out: str | None,
    config: Path | None,
    settings: tuple[str, ...],
    master: str | None,
    conf: tuple[str, ...],
    output: str,
    summary_file: str | None,
) -> None:
    """Check stores: every CRC, every entry of consume queues and index, and gaps between them.

    Use it for stores that are too large for one process, or for many stores at once; for a single store
    `eruca store verify` does the same without Spark. Nothing is changed, and brokers may be running. The exit status
    is 1 if an error is found.

    \b
    Examples:
      eruca pipeline fsck /data/store
      eruca pipeline fsck /data/store-* --master spark://host:7077 -o json
    """
    module = load("eruca._spark.pipelines.fsck")
    with open_session("fsck", master, conf) as session:
        summary = module.run_fsck(
            session,
            [os.path.abspath(directory) for directory in directories],
            out=make_address(out) if out else None,
            properties=read_properties(config, settings),
        )
    show_summary(summary, output, summary_file)
    if summary.bad_records:
        sys.exit(1)
