"""Changes of the offsets in a checkpoint, with a copy of what they replace."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from eruca._ground.smallfiles import make_directories, replace_file, sync_directory, write_file
from eruca._ground.suggestions import suggest_name
from eruca._spark.checkpoints.reading import (
    STATE,
    Checkpoint,
    OffsetFile,
    Place,
    Progress,
    find_checksum,
    list_batches,
    read_bounded,
)
from eruca._spark.offsets import name_queue
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError

# Where the files are kept that an edit replaced.
_EDITS: Final = "eruca-edits"


class Change(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A queue whose offset is changed."""

    source: int
    topic: str
    broker: str
    queue_id: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class EditPlan:
    """What an edit writes."""

    home: Path
    # The file of this batch is replaced.
    batch: int
    # Whether it is a planned batch that is given up.
    gives_up: bool
    changes: tuple[Change, ...]
    old: bytes
    new: bytes
    # The content of the file that marks the batch as complete, if it is given up.
    commit: bytes
    # How the checkpoint was when the edit was planned.
    seen: Progress


def choose_places(checkpoint: Checkpoint, source: int | None) -> list[Place]:
    """Return the queues of a checkpoint, or of one source in it. Raises ConfigError."""
    places = [
        Place(each.source, MessageQueue(each.broker, each.queue_id, each.topic))
        for each in checkpoint.queues
        if each.committed is not None
    ]
    if source is None:
        twice = {queue for queue, count in Counter(place.queue for place in places).items() if count > 1}
        if twice:
            sources = sorted({place.source for place in places if place.queue in twice})
            raise ConfigError(
                f"sources {' and '.join(map(str, sources))} of the query both read {min(twice).topic}",
                hint="say which one is meant: --source " + str(sources[0]),
            )
        return places
    chosen = [place for place in places if place.source == source]
    if not chosen:
        known = sorted({place.source for place in places})
        raise ConfigError(f"there is no source {source}", hint=f"there are {', '.join(map(str, known))}")
    return chosen


def find_place(places: Iterable[Place], topic: str, broker: str, queue_id: int) -> Place:
    """Find a queue. Raises ConfigError with the nearest name."""
    known = list(places)
    wanted = MessageQueue(broker, queue_id, topic)
    for place in known:
        if place.queue == wanted:
            return place
    names = [f"{place.queue.topic}/{place.queue.broker_name}/{place.queue.queue_id}" for place in known]
    raise ConfigError(
        f"the checkpoint has no offset of {name_queue(wanted)}",
        hint=suggest_name(f"{topic}/{broker}/{queue_id}", names, f"it has {', '.join(names[:20])}"),
    )


def plan_edit(home: Path, wanted: Mapping[Place, int], *, give_up_batch: bool = False) -> EditPlan:
    """Plan a change of the offsets at which the next batch starts. Raises ConfigError if it would not be safe.

    A planned batch runs again when the query starts, whatever the offsets before it. With `give_up_batch` it is marked
    as complete without having read anything: its number is used up, so that no sink takes the next batch for it. Other
    queues go back to where it started: nothing is lost, and what a sink has already written of it is written twice.
    """
    progress = Progress.read(home)
    committed, planned = progress.committed, progress.planned
    if committed is None or committed not in progress.offsets:
        raise ConfigError(
            f"{home}: no batch is complete yet", hint="delete the checkpoint, and start the query with startingOffsets"
        )
    if planned is not None:
        _check_planned(home, progress, give_up_batch)
    batch = committed if planned is None else planned
    start = OffsetFile.read(progress.find_file(committed))
    file = start if planned is None else OffsetFile.read(progress.find_file(batch))
    places = start.places
    changes = tuple(
        Change(
            source=place.source,
            topic=place.queue.topic,
            broker=place.queue.broker_name,
            queue_id=place.queue.queue_id,
            before=places[place],
            after=after,
        )
        for place, after in wanted.items()
        if places[place] != after
    )
    return EditPlan(
        home=home,
        batch=batch,
        gives_up=planned is not None,
        changes=changes,
        old=file.data,
        new=replace(start, settings=file.settings).change({**places, **wanted}),
        commit=b"" if planned is None else read_bounded(progress.find_commit(committed)),
        seen=progress,
    )


def _check_planned(home: Path, progress: Progress, give_up_batch: bool) -> None:
    planned, last = progress.planned, progress.offsets[-1]
    if planned != last:
        raise ConfigError(
            f"{home}: batches {planned} to {last} are planned and not complete",
            hint="start the query until they are; this is not supported with asynchronous progress tracking",
        )
    if not give_up_batch:
        raise ConfigError(
            f"{home}: batch {planned} is planned and not complete; it runs again when the query starts",
            hint="start the query until it is complete, or give it up with --give-up-batch",
        )
    if (home / STATE).is_dir():
        raise ConfigError(
            f"{home}: batch {planned} cannot be given up, because the query has state, which would lack that batch",
            hint="start the query until the batch is complete",
        )


def apply_edit(plan: EditPlan) -> str:
    """Carry out a plan; returns the name under which it can be undone. Raises ConfigError if the checkpoint changed."""
    file = plan.seen.find_file(plan.batch)
    if Progress.read(plan.home) != plan.seen or read_bounded(file) != plan.old:
        raise ConfigError(f"{plan.home} has changed since the edit was planned", hint="stop the query first")
    backup = plan.home / _EDITS / f"{plan.batch}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}Z"
    make_directories(backup.parent)
    backup.mkdir()
    note = {"batch": plan.batch, "givesUp": plan.gives_up, "written": _digest(plan.new)}
    write_file(backup / "offsets", plan.old)
    write_file(backup / "edit.json", json.dumps(note).encode())
    sync_directory(backup)
    # In this order: a batch that is complete at its old offsets would have lost its messages.
    _write(file, plan.new)
    if plan.gives_up:
        _write(plan.seen.find_commit(plan.batch), plan.commit)
    last = list_batches(plan.home / "offsets")[-1]
    if last > plan.batch:
        raise ConfigError(
            f"batch {last} was planned while the checkpoint was edited, so the query is running and ignores the edit",
            hint="stop the query and edit again",
        )
    return backup.name


def undo_edit(home: Path, name: str) -> int:
    """Restore what an edit replaced; returns the batch. Raises ConfigError if the stream has continued since."""
    folder = home / _EDITS
    known = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if name not in known:
        hint = suggest_name(name, known, f"there are {', '.join(known)}" if known else "")
        raise ConfigError(f"{home} has no edit {name}", hint=hint)
    note: dict[str, Any] = json.loads(read_bounded(folder / name / "edit.json"))
    progress, batch = Progress.read(home), int(note["batch"])
    file = progress.find_file(batch)
    if progress.offsets[-1] != batch or _digest(read_bounded(file)) != note["written"]:
        raise ConfigError(
            f"{home} has changed since edit {name}: its last batch is {progress.offsets[-1]}",
            hint="set the offsets you want with --set or --to",
        )
    if note["givesUp"]:
        commit = progress.find_commit(batch)
        find_checksum(commit).unlink(missing_ok=True)
        commit.unlink()
        sync_directory(commit.parent)
    _write(file, read_bounded(folder / name / "offsets"))
    (folder / name).rename(folder / f"{name}-undone")
    return batch


def _write(path: Path, data: bytes) -> None:
    # A checksum of the old content would be taken for damage; without one, the file is not checked.
    find_checksum(path).unlink(missing_ok=True)
    replace_file(path, data)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
