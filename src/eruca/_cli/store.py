"""`eruca store`: look into a store directory, check it, rebuild what is derived in it."""

from __future__ import annotations

import functools
import resource
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from eruca._cli.grouping import CommandGroup
from eruca._cli.output import (
    add_output_option,
    format_bytes,
    format_time,
    parse_time_ms,
    print_document,
    print_rows,
    show_progress,
)
from eruca._cli.saying import say
from eruca._cli.tables import make_table
from eruca._ground.config import StoreOptions, info_of
from eruca._ground.javaconf import read_conf
from eruca._ground.printable import show_safely
from eruca._store.lineage.replicationstate import Diverged
from eruca._storetools.diverged import dump_diverged, list_diverged
from eruca._storetools.dump import RecordFilter, RecordRow, dump_records
from eruca._storetools.readonly import Finding, Level
from eruca._storetools.rebuild import RebuildReport, rebuild_store
from eruca._storetools.summary import StoreSummary, describe_store, measure_log
from eruca._storetools.verify import VerifyReport, verify_store
from eruca.errors import ConfigError

# How many times each command reads the log, for its progress bar.
_VERIFY_WALKS = 2
_REBUILD_WALKS = 3


@click.group(cls=CommandGroup)
def store() -> None:
    """Look into a store directory, check it, rebuild what is derived from its log.

    DIR is the directory that storePathRootDir sets, with commitlog/, consumequeue/ and index/ in it, written by Eruca
    or by Apache RocketMQ 4.x. All commands except rebuild change nothing and need no lock, so they also work while a
    broker has the store open; rebuild needs the store closed.

    \b
    Examples:
      eruca store stat DIR                           topics, queues, sizes
      eruca store dump DIR --topic orders --limit 5  the first messages of a topic
      eruca store verify DIR -o json                 check everything
      eruca store rebuild DIR                        rebuild queues and index
      eruca store diverged DIR                       what only this member had
    """


def add_store_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add DIR and the options about the files of a store to a command."""

    @click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
    @click.option(
        "-c",
        "--config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="The broker's .conf file, for the file sizes of the store.",
    )
    @click.option(
        "--option",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        help="One such option, e.g. maxIndexNum=2000. Default: derived from the files.",
    )
    @click.option("--commitlog", type=click.Path(path_type=Path), help="The commit log, if it is not DIR/commitlog.")
    @functools.wraps(function)
    def with_properties(config: Path | None, settings: tuple[str, ...], **others: Any) -> None:
        raise_open_files_limit()
        function(properties=read_properties(config, settings), **others)

    return with_properties


def read_properties(config: Path | None, settings: Iterable[str]) -> dict[str, str]:
    """Return the settings of a .conf file, overridden by those of the command line."""
    properties = {} if config is None else read_conf(config)
    known = sorted(info.java for info in info_of(StoreOptions).values())
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--option {setting}: expected KEY=VALUE")
        if key not in known:
            alike = [name for name in known if name.lower() == key.lower()]
            raise ConfigError(
                f"--option {key}: the store has no such option",
                hint=f"did you mean {alike[0]}?" if alike else f"it has {', '.join(known)}",
            )
        properties[key] = value
    return properties


def raise_open_files_limit() -> None:
    """Raise the limit of open files as far as allowed: a store has one per segment of each queue."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            return  # the limit stays as it is


# --- stat -----------------------------------------------------------------------------------------------------------


@store.command()
@add_store_options
@add_output_option
@click.option("--queues", "with_queues", is_flag=True, help="One line per queue, not only per topic.")
def stat(directory: Path, properties: dict[str, str], commitlog: Path | None, output: str, with_queues: bool) -> None:
    """Show what is in a store: topics, queues, offsets, sizes, index, tables.

    Reads only the end of the log, so it is quick even for a large store. Messages are counted by the entries of the
    consume queues; `verify` counts records.

    \b
    Examples:
      eruca store stat DIR
      eruca store stat DIR --queues
      eruca store stat DIR -o json | jq '.topics[] | select(.messages > 1000)'
    """
    summary = describe_store(directory, properties, commitlog=commitlog)
    print_document(summary, output, lambda: _draw_summary(summary, with_queues))


def _draw_summary(summary: StoreSummary, with_queues: bool) -> Iterator[RenderableType]:
    log, checkpoint = summary.log, summary.checkpoint
    facts = [
        ("directory", summary.root),
        ("commit log", f"{log.start} to {log.end} ({format_bytes(log.end - log.start)})"),
        ("segments", f"{log.segments} of {format_bytes(log.segment_bytes)}"),
        ("first record", format_time(log.first_store_time)),
        ("last record", format_time(log.last_store_time)),
        ("messages", f"{summary.messages} in {len(summary.queues)} queues of {len(summary.topics)} topics"),
        ("last stop", "not clean, or a broker has it open now" if summary.aborted else "clean"),
    ]
    if checkpoint is not None:
        times = (checkpoint.log_time, checkpoint.queue_time, checkpoint.index_time)
        facts.append(("checkpoint", ", ".join(map(format_time, times)) + " (log, queues, index)"))
    if log.torn:
        facts.append(("torn tail", f"at {log.end}: {log.torn}"))
    yield make_table(["store", ""], facts)
    if with_queues:
        yield make_table(
            ["topic", ">queue", ">min offset", ">max offset", ">messages", ">segments"],
            [
                (q.topic, str(q.queue), str(q.min_offset), str(q.max_offset), str(q.messages), str(q.segments))
                for q in summary.queues
            ],
        )
    elif summary.topics:
        yield make_table(
            ["topic", ">queues", ">messages"], [(t.topic, str(t.queues), str(t.messages)) for t in summary.topics]
        )
    if summary.index:
        yield make_table(
            ["index file", ">entries", ">full", "from", "to"],
            [
                (
                    file.name,
                    str(file.entries),
                    f"{100 * file.entries / max(1, file.entries_max):.0f}%",
                    format_time(file.begin_time),
                    format_time(file.end_time),
                )
                for file in summary.index
            ],
        )
    if summary.tables:
        yield make_table(
            ["table", ">entries", ">bytes", ">version", "changed", "problem"],
            [
                (
                    table.name,
                    str(table.entries),
                    str(table.bytes),
                    "-" if table.version_counter is None else str(table.version_counter),
                    format_time(table.version_time),
                    table.problem,
                )
                for table in summary.tables
            ],
        )
    if summary.damage:
        yield make_table(
            [">damaged at", ">bytes", "reason"], [(str(d.position), str(d.length), d.reason) for d in summary.damage]
        )
    yield from _draw_findings(summary.findings, summary.root)


def add_row_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that limit how much of the messages is shown to a command."""
    for add in (
        click.option(
            "--body-bytes",
            type=click.IntRange(min=0),
            default=120,
            show_default=True,
            help="Bytes of a body in a table.",
        ),
        click.option(
            "--limit", type=click.IntRange(min=0), default=100, show_default=True, help="At most this many; 0 for all."
        ),
    ):
        function = add(function)
    return function


# --- dump -----------------------------------------------------------------------------------------------------------


@store.command()
@add_store_options
@add_output_option
@click.option("--topic", help="Only this topic.")
@click.option("--queue", type=int, help="Only this queue number.")
@click.option("--key", help="Only messages with this key or unique id.")
@click.option("--from-position", type=int, help="Start at this position of the commit log (or the next record).")
@click.option("--to-position", type=int, help="Stop before this position.")
@click.option(
    "--from-time",
    type=parse_time_ms,
    metavar="TIME",
    help="Stored at this time or later: milliseconds or 2026-11-15T07:21:06.",
)
@click.option("--to-time", type=parse_time_ms, metavar="TIME", help="Stored at this time or earlier.")
@add_row_options
def dump(
    directory: Path,
    properties: dict[str, str],
    commitlog: Path | None,
    output: str,
    limit: int,
    body_bytes: int,
    **conditions: Any,
) -> None:
    """Show the messages of a store, in the order they were stored.

    Reads only the commit log, needs no consume queue or index, and skips damaged parts. A table shows the beginning of
    a body, in hexadecimal if it is not text. JSON and YAML have one object per message, as `eruca message` and `eruca
    tail` have it, with the whole body; `crc_ok` is false if it is damaged.

    \b
    Examples:
      eruca store dump DIR --limit 10
      eruca store dump DIR --topic orders --queue 2 --from-time 2026-11-15
      eruca store dump DIR --key order-4711 -o json
      eruca store dump DIR --limit 0 -o json | jq -r .topic | sort | uniq -c
    """
    rows = dump_records(
        directory,
        RecordFilter(**conditions),
        properties,
        limit=limit + 1 if limit else None,
        body_bytes=body_bytes,
        commitlog=commitlog,
    )
    _show_records(rows, limit, output)


def _show_records(rows: Iterable[RecordRow], limit: int, output: str) -> None:
    columns = [">position", "topic", ">queue", ">offset", "stored", "tags", "keys", "flags", ">size", "body"]
    more: list[RecordRow] = []
    shown = _take(rows, limit, more)
    if output == "table":
        print_rows(shown, output, columns, _draw_record)
    else:
        print_rows(map(_describe_record, shown), output, [], lambda _: [])
    if more:
        say(f"there are more; this shows the first {limit} (--limit 0 shows all)")


def _describe_record(row: RecordRow) -> dict[str, Any]:
    # Imported here: the other commands do not need the client.
    from eruca._admin.storedmessages import describe_record
    from eruca._cli.messagerows import describe_message

    # A store does not know the name of its broker.
    return describe_message(describe_record(row.record, "")) | {"crc_ok": row.crc_ok}


def _take(rows: Iterable[RecordRow], limit: int, more: list[RecordRow]) -> Iterator[RecordRow]:
    for number, row in enumerate(rows):
        if limit and number >= limit:
            more.append(row)
            return
        yield row


def _draw_record(row: RecordRow) -> list[str | Text]:
    body = Text(show_safely(row.body) + ("..." if row.body_is_cut else ""))
    if not row.body_is_text:
        body.stylize("dim")
    flags = [*row.sys_flag_words, *([] if row.crc_ok else ["BAD CRC"])]
    return [
        str(row.position),
        row.topic,
        str(row.queue),
        str(row.offset),
        format_time(row.store_time),
        row.tags,
        " ".join(row.keys),
        " ".join(flags),
        str(row.size),
        body,
    ]


# --- diverged -------------------------------------------------------------------------------------------------------


@store.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("file", metavar="[FILE]", required=False)
@add_row_options
@add_output_option
def diverged(directory: Path, file: str | None, output: str, limit: int, body_bytes: int) -> None:
    """List what this member set aside because its master never had it, or show the messages in one FILE.

    A master that is replaced may have messages that no slave has received. When it comes back as a slave, its log
    becomes that of the new master, and those messages are moved to DIR/eruca-diverged, where they stay until you delete
    them. Send again what is still needed; the JSON output has topic, properties and positions.

    \b
    Examples:
      eruca store diverged DIR
      eruca store diverged DIR 1-4096-8192.log
      eruca store diverged DIR 1-4096-8192.log --limit 0 -o json
    """
    if file is None:
        columns = ["file", ">epoch", ">begin", ">end", ">size", "found"]
        print_rows(list_diverged(directory), output, columns, _draw_diverged)
        return
    _show_records(dump_diverged(directory, file, body_bytes=body_bytes), limit, output)


def _draw_diverged(row: Diverged) -> list[str]:
    places = [str(row.epoch), str(row.begin), str(row.end), format_bytes(row.end - row.begin)]
    return [row.file, *places, format_time(row.found_ms)]


# --- verify ---------------------------------------------------------------------------------------------------------


@store.command()
@add_store_options
@add_output_option
@click.pass_context
def verify(
    ctx: click.Context, directory: Path, properties: dict[str, str], commitlog: Path | None, output: str
) -> None:
    """Check a whole store: every record with its CRC, every entry of queues and index, every table.

    Reports each damaged place by file and position, and a torn end of the log. The exit status is 1 if there is an
    error; a warning is something the next start repairs. Nothing is changed, and records after a damaged place stay
    readable.

    \b
    Examples:
      eruca store verify DIR
      eruca store verify DIR -o json | jq '.findings[].position'
    """
    total = _VERIFY_WALKS * measure_log(directory, properties, commitlog=commitlog)
    with show_progress("verifying", total) as progress:
        report = verify_store(directory, properties, progress=progress, commitlog=commitlog)
    print_document(report, output, lambda: _draw_verification(report))
    if not report.clean:
        ctx.exit(1)


def _draw_verification(report: VerifyReport) -> Iterator[RenderableType]:
    verdict = "clean" if report.clean else f"{report.errors} errors"
    yield make_table(
        ["verified", report.root],
        [
            ("verdict", f"{verdict}, {report.warnings} warnings"),
            ("records", f"{report.records} from {report.log_start} to {report.log_end}"),
            ("stored", f"{format_time(report.first_store_time)} to {format_time(report.last_store_time)}"),
            ("queues", f"{report.queues} with {report.queue_entries} entries"),
            ("index", f"{report.index_files} files with {report.index_entries} entries"),
        ],
    )
    yield from _draw_findings(report.findings, report.root)
    if report.findings_left_out:
        yield Text(f"and {report.findings_left_out} more of the same kinds")


def _draw_findings(findings: list[Finding], root: str) -> Iterator[RenderableType]:
    if not findings:
        return
    rows = []
    for item in findings:
        level = Text(item.level.value, style="bold red" if item.level is Level.ERROR else "yellow")
        where = "" if item.position is None else str(item.position)
        length = "" if item.length is None else str(item.length)
        rows.append((level, item.kind.value, item.path.removeprefix(f"{root}/"), where, length, item.reason, item.hint))
    yield make_table(["", "kind", "file", ">position", ">bytes", "what is wrong", "what to do"], rows)


# --- rebuild --------------------------------------------------------------------------------------------------------


@store.command()
@add_store_options
@add_output_option
@click.option(
    "--drop-old", is_flag=True, help="Delete the old consume queues and index once the new ones are in place."
)
def rebuild(directory: Path, properties: dict[str, str], commitlog: Path | None, output: str, drop_old: bool) -> None:
    """Rebuild consume queues and index from the commit log alone.

    The store must be closed; it is locked while this runs. The commit log is only read. The new files are written
    beside the old ones, verified entry by entry, and then renamed into place. The old ones stay as
    consumequeue.old-<time> and index.old-<time> until you delete them; --drop-old deletes them at once. After a crash
    the store still opens, and the command can be run again.

    File sizes are those of the old files. If there are none, or to change them, pass the broker's .conf or --option
    with mappedFileSizeConsumeQueue, maxHashSlotNum and maxIndexNum.

    \b
    Examples:
      eruca store rebuild DIR
      eruca store rebuild DIR -c broker.conf --drop-old
      eruca store rebuild DIR --option maxIndexNum=2000
    """
    total = _REBUILD_WALKS * measure_log(directory, properties, commitlog=commitlog)
    with show_progress("rebuilding", total) as progress:
        report = rebuild_store(directory, properties, drop_old=drop_old, progress=progress, commitlog=commitlog)
    print_document(report, output, lambda: _draw_rebuild(report))


def _draw_rebuild(report: RebuildReport) -> Iterator[RenderableType]:
    facts = [
        ("records", f"{report.records} from {report.log_start} to {report.log_end}"),
        ("queues", f"{report.queues} with {report.queue_entries} entries"),
        ("index", f"{report.index_files} files with {report.index_entries} entries"),
    ]
    if report.empty_queues:
        facts.append(("empty, offset kept", ", ".join(report.empty_queues)))
    if report.dropped_queues:
        facts.append(("gone", ", ".join(report.dropped_queues)))
    facts.extend(("old files", path) for path in report.kept)
    yield make_table(["rebuilt", report.root], facts)
    yield from _draw_findings(report.findings, report.root)
