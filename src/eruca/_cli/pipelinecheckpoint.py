"""`eruca pipeline checkpoint`: where a stream is, and where its next batch starts."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from eruca._cli.administer import add_yes_option, confirm
from eruca._cli.grouping import CommandGroup
from eruca._cli.output import add_output_option, format_time, print_document
from eruca._cli.pipelineoptions import add_cluster_option, make_access, parse_span
from eruca._cli.saying import say
from eruca._cli.tables import make_table
from eruca._ground.suggestions import suggest_name
from eruca._spark.checkpoints.editing import (
    Change,
    EditPlan,
    apply_edit,
    choose_places,
    find_place,
    plan_edit,
    undo_edit,
)
from eruca._spark.checkpoints.reading import (
    Checkpoint,
    Place,
    find_last_write,
    open_local,
    read_checkpoint,
)
from eruca._spark.offsets import EARLIEST, LATEST, OFFSET_WORDS, Offsets, name_queue
from eruca._spark.timestamps import Timestamp, read_timestamp
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from eruca._spark.cluster import Access, Cluster

_SET = re.compile(r"(?P<topic>[^/=]+)/(?P<broker>.+)/(?P<queue>\d+)=(?P<offset>\d+)")
_SET_EXAMPLE = "expected TOPIC/BROKER/QUEUE=OFFSET, for example orders/broker-a/0=120"
_COMMAND = "eruca pipeline checkpoint edit"

# Earliest or latest, or a time.
Where = int | Timestamp


class Edited(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an edit did, or would do."""

    path: str
    batch: int
    gave_up_batch: bool
    dry_run: bool
    changes: tuple[Change, ...]
    # The command that undoes it; empty for a dry run and without a change.
    undo: str


@click.group(cls=CommandGroup)
def checkpoint() -> None:
    """The checkpoint of a stream: show how far it is, and change where its next batch starts.

    A checkpoint is the directory given as checkpointLocation. It must be on a local disk; copy it from and to other
    file systems. Neither command needs Spark.

    \b
    Examples:
      eruca pipeline checkpoint show /data/checkpoints/orders
      eruca pipeline checkpoint edit /data/checkpoints/orders \\
          --set orders/broker-a/0=120 --dry-run
      eruca pipeline checkpoint edit /data/checkpoints/orders \\
          --to -2h -t orders -n host:9876
    """


@checkpoint.command()
@click.argument("place", metavar="DIR")
@add_output_option
def show(place: str, output: str) -> None:
    """Show the offsets of the stream with the checkpoint DIR, for each topic, broker and queue.

    `committed` is where the last complete batch ended and the next one starts. `planned` is where the batch ends that
    was started and is not complete; it runs again when the query starts.

    \b
    Examples:
      eruca pipeline checkpoint show /data/checkpoints/orders
      eruca pipeline checkpoint show /data/checkpoints/orders -o json | jq .queues
    """
    found = read_checkpoint(open_local(place))
    print_document(found, output, lambda: _draw(found))


def _draw(found: Checkpoint) -> Iterator[RenderableType]:
    committed = "none" if found.committed is None else str(found.committed)
    state = f"query {found.query_id or '-'}, last complete batch {committed}"
    state += "" if found.planned is None else f", batch {found.planned} is planned"
    yield f"{state}, written {format_time(found.written_at)}"
    # Most queries have one source.
    has_several = len({each.source for each in found.queues}) > 1
    columns = [*([">source"] if has_several else []), "topic", "broker", ">queue", ">committed"]
    columns += [] if found.planned is None else [">planned"]
    rows = []
    for each in found.queues:
        row = [str(each.source)] if has_several else []
        row += [each.topic, each.broker, str(each.queue_id), _show(each.committed)]
        rows.append(row + ([] if found.planned is None else [_show(each.planned)]))
    yield make_table(columns, rows)


def _show(offset: int | None) -> str:
    return "-" if offset is None else str(offset)


# -- edit --------------------------------------------------------------------------------------------------------------


def _parse_where(context: click.Context, parameter: click.Parameter, text: str | None) -> Where | None:
    if text is None:
        return None
    if text.lower() in OFFSET_WORDS:
        return OFFSET_WORDS[text.lower()]
    try:
        return read_timestamp(text)
    except ValueError as error:
        guess = suggest_name(text.lower(), OFFSET_WORDS)
        raise click.BadParameter(f"{error}; or earliest or latest" + (guess and f"; {guess}")) from None


def _parse_sets(
    context: click.Context, parameter: click.Parameter, texts: Sequence[str]
) -> list[tuple[MessageQueue, int]]:
    found = []
    for text in texts:
        match = _SET.fullmatch(text)
        if match is None:
            raise click.BadParameter(f"{text!r}: {_SET_EXAMPLE}")
        queue = MessageQueue(match["broker"], int(match["queue"]), match["topic"])
        found.append((queue, int(match["offset"])))
    return found


@checkpoint.command()
@click.argument("place", metavar="DIR")
@click.option(
    "--set",
    "sets",
    multiple=True,
    callback=_parse_sets,
    metavar="TOPIC/BROKER/QUEUE=OFFSET",
    help="Continue in this queue with this offset; can be repeated.",
)
@click.option(
    "--to",
    "where",
    callback=_parse_where,
    metavar="earliest|latest|TIME",
    help="Continue there in all queues of the topics given with -t. A time is 2026-11-15T08:00:00Z, -2h or epoch ms.",
)
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="A topic for --to; can be repeated.")
@click.option("--source", type=int, help="The number of the source, if the query reads a topic more than once.")
@click.option("--give-up-batch", is_flag=True, help="Skip the batch that is planned and not complete.")
@click.option("--undo", metavar="NAME", help="Undo an edit, which must have been the last change of the checkpoint.")
@click.option(
    "--idle",
    default="60s",
    show_default=True,
    callback=lambda _context, _parameter, text: parse_span(text),
    metavar="SPAN",
    help="Refuse if the checkpoint was written less than this time ago.",
)
@click.option("--dry-run", is_flag=True, help="Show the new offsets, and change nothing.")
@add_yes_option
@add_cluster_option
@add_output_option
def edit(
    place: str,
    sets: list[tuple[MessageQueue, int]],
    where: Where | None,
    topics: tuple[str, ...],
    source: int | None,
    give_up_batch: bool,
    undo: str | None,
    idle: timedelta,
    dry_run: bool,
    yes: bool,
    nameservers: str | None,
    output: str,
) -> None:
    """Change where the next batch of the stream with the checkpoint DIR starts.

    Stop the query first. Spark does not lock a checkpoint: the command refuses if the checkpoint was written within
    --idle, or changes meanwhile, but a query that has nothing to read writes nothing and is not seen.

    --to asks the brokers (-n). With -n, offsets of --set must be within their queue. A backup of the file that is
    replaced stays in the checkpoint, and the command that undoes the edit is printed. State of the query, such as
    aggregations, is not changed: messages that are read again count again.

    A batch that is planned and not complete runs again as it was planned. If it cannot succeed, for example because of
    a message that no code can handle, --give-up-batch skips it: queues that are not set go back to where it started, so
    what the sink had already written of it is written again.

    \b
    Examples:
      eruca pipeline checkpoint edit /data/cp \\
          --set orders/broker-a/0=120 --set orders/broker-a/1=87
      eruca pipeline checkpoint edit /data/cp \\
          --to -2h -t orders -n host:9876 --dry-run
      eruca pipeline checkpoint edit /data/cp \\
          --to latest -t clicks -n host:9876 --give-up-batch
      eruca pipeline checkpoint edit /data/cp --undo 17-20261115T080000123456Z
    """
    home = open_local(place)
    if undo is not None:
        if sets or where is not None:
            raise click.UsageError("--undo excludes --set and --to")
        _refuse_written(home, idle)
        confirm(f"Undo edit {undo} of {home}?", yes)
        say(f"batch {undo_edit(home, undo)} of {home} is as it was before the edit")
        return
    if not sets and where is None:
        raise click.UsageError("give --set or --to")
    if (where is None) != (not topics):
        raise click.UsageError("--to and -t belong together: --to earliest -t orders")
    found = read_checkpoint(home)
    access = make_access(nameservers, otherwise=where is not None)
    wanted = _find_offsets(choose_places(found, source), sets, where, topics, access)
    plan = plan_edit(home, wanted, give_up_batch=give_up_batch)
    if access is None and plan.changes:
        say("the offsets were not compared with the queues; -n asks the brokers")
    if plan.changes and found.stateful:
        say("warning: the query has state, which stays as it is")
    name = ""
    if plan.changes and not dry_run:
        _refuse_written(home, idle)
        confirm(f"Change the offsets of {len(plan.changes)} queues in {home}?", yes)
        name = apply_edit(plan)
    _print_edit(plan, name, dry_run, output)


def _refuse_written(home: Path, idle: timedelta) -> None:
    written = find_last_write(home)
    age = datetime.now(UTC) - written
    if age < idle:
        seconds = max(0.0, age.total_seconds())
        raise ConfigError(
            f"{home} was written {seconds:.0f} s ago, at {format_time(written)}: is the query running?",
            hint="stop it; if it is stopped, --idle 0s skips this check",
        )


def _find_offsets(
    places: list[Place],
    sets: list[tuple[MessageQueue, int]],
    where: Where | None,
    topics: Sequence[str],
    access: Access | None,
) -> dict[Place, int]:
    wanted = {find_place(places, queue.topic, queue.broker_name, queue.queue_id): offset for queue, offset in sets}
    known = {place.queue.topic for place in places}
    for topic in topics:
        if topic not in known:
            guess = suggest_name(topic, known, f"it reads {', '.join(sorted(known))}")
            raise ConfigError(f"the stream does not read topic {topic}", hint=guess)
    # What is set explicitly takes precedence.
    moved = {place for place in places if place.queue.topic in topics and place not in wanted}
    if access is None:
        return wanted
    from eruca._spark.cluster import Cluster

    with Cluster(access) as cluster:
        if where is not None:
            offsets = _ask(cluster, sorted({place.queue for place in moved}), where)
            wanted |= {place: offsets[place.queue] for place in moved}
        _check_within(cluster, {place.queue: offset for place, offset in wanted.items() if place not in moved})
    return wanted


def _ask(cluster: Cluster, queues: list[MessageQueue], where: Where) -> Offsets:
    if isinstance(where, Timestamp):
        return cluster.find_since(queues, where.resolve(int(time.time() * 1000)))
    assert where in (EARLIEST, LATEST)
    return cluster.find_begins(queues) if where == EARLIEST else cluster.find_ends(queues)


def _check_within(cluster: Cluster, offsets: Offsets) -> None:
    begins, ends = cluster.find_begins(list(offsets)), cluster.find_ends(list(offsets))
    for queue, offset in offsets.items():
        nearest = min(max(offset, begins[queue]), ends[queue])
        if nearest != offset:
            raise ConfigError(
                f"--set: {name_queue(queue)}, has offsets {begins[queue]} to {ends[queue]}, not {offset}",
                hint=f"the nearest is {queue.topic}/{queue.broker_name}/{queue.queue_id}={nearest}",
            )


def _print_edit(plan: EditPlan, name: str, dry_run: bool, output: str) -> None:
    undo = f"{_COMMAND} {shlex.quote(str(plan.home))} --undo {name}" if name else ""
    edited = Edited(
        path=str(plan.home),
        batch=plan.batch,
        gave_up_batch=plan.gives_up,
        dry_run=dry_run,
        changes=plan.changes,
        undo=undo,
    )

    def draw() -> Iterator[RenderableType]:
        rows = [
            [each.topic, each.broker, str(each.queue_id), str(each.before), str(each.after)] for each in plan.changes
        ]
        yield make_table(["topic", "broker", ">queue", ">before", ">after"], rows)

    print_document(edited, output, draw)
    if not plan.changes:
        say("nothing to do: all offsets are as they should be")
    elif undo:
        given_up = ", which is given up" if plan.gives_up else ""
        say(f"changed batch {plan.batch}{given_up}. Undo: {undo}")
