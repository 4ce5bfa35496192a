"""The checkpoint of a stream on the local disk: where the stream has got to.

A checkpoint has a file for each batch, `offsets/N` with the offsets at which the batch ends, and `commits/N` once it is
complete. The next batch starts where the last complete one ended.

    offsets/17              commits/17
    | v1                    | v1
    | {settings}            | {settings}
    | {offsets of source 0}
    | {offsets of source 1}

Spark keeps a checksum of each file in `.17.crc`, and reads a file without one unchecked. Nothing here needs Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from eruca._ground.limits import CHECKPOINT_FILE_BYTES_MAX
from eruca._ground.times import from_epoch_ms
from eruca._spark.offsets import Offsets, decode_offsets, encode_offsets
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError, OffsetLost

_NAMED: Final = "v2"  # this version of the file has the name of each source before its offsets
_VERSIONS: Final = ("v1", _NAMED)
# The folder of a query with aggregations, joins or the like.
STATE: Final = "state"


class QueuePlace(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a stream is in one queue."""

    # The number of the source in the query.
    source: int
    topic: str
    broker: str
    queue_id: int
    # Where the last complete batch ended, and where the one ends that is planned.
    committed: int | None
    planned: int | None


class Batch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One batch that the checkpoint still has."""

    batch: int
    committed: bool
    planned_at: datetime | None


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a stream is."""

    path: str
    query_id: str
    # The last complete batch, and the one after it if it is planned; it runs again when the query starts.
    committed: int | None
    planned: int | None
    # Whether the query has state, such as aggregations, which no edit changes.
    stateful: bool
    written_at: datetime
    batches: tuple[Batch, ...]
    queues: tuple[QueuePlace, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A queue of one source of a query."""

    source: int
    queue: MessageQueue


# -- files -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetFile:
    """What `offsets/N` contains."""

    data: bytes
    version: str
    settings: str
    # The text of each source before its offsets, and its offsets.
    sources: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, path: Path) -> OffsetFile:
        """Read a file. Raises ConfigError for one that Spark has not written."""
        data = read_bounded(path)
        try:
            version, settings, *rest = data.decode().split("\n")
        except (UnicodeDecodeError, ValueError):
            version, settings, rest = "", "", []
        if version not in _VERSIONS:
            raise ConfigError(f"{path} is not a file of offsets that is understood here")
        sources = []
        for line in rest:
            name, colon, text = line.partition(":") if version == _NAMED else ("", "", line)
            sources.append((name + colon, text))
        return cls(data, version, settings, tuple(sources))

    @property
    def places(self) -> dict[Place, int]:
        """The offsets of the sources that read topics."""
        found: dict[Place, int] = {}
        for number, (_, text) in enumerate(self.sources):
            for queue, offset in (_decode(text) or {}).items():
                found[Place(number, queue)] = offset
        return found

    @property
    def planned_at(self) -> datetime | None:
        """When the batch was planned."""
        try:
            return from_epoch_ms(int(json.loads(self.settings)["batchTimestampMs"]))
        except (ValueError, KeyError, TypeError):
            return None

    def change(self, places: Mapping[Place, int]) -> bytes:
        """Return the content of the file with other offsets; everything else stays."""
        lines = [self.version, self.settings]
        for number, (name, text) in enumerate(self.sources):
            offsets = _decode(text)
            if offsets is not None:
                kept = {queue: places[Place(number, queue)] for queue in offsets if Place(number, queue) in places}
                beside = {key: value for key, value in json.loads(text).items() if key != "topics"}
                # Spark compares offsets as text, so it must be written as the source writes it.
                lines.append(name + json.dumps(encode_offsets(kept, **beside)))
            else:
                lines.append(name + text)
        return "\n".join(lines).encode()


def _decode(text: str) -> Offsets | None:
    try:
        return decode_offsets(text)
    except OffsetLost:
        return None


def read_bounded(path: Path) -> bytes:
    """Read a file. Raises ConfigError if that fails or if it is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(CHECKPOINT_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > CHECKPOINT_FILE_BYTES_MAX:
        raise ConfigError(f"{path} is larger than {CHECKPOINT_FILE_BYTES_MAX} bytes")
    return data


def list_batches(folder: Path) -> list[int]:
    """Return the numbers of the batches that have a file, sorted."""
    try:
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read: {error.strerror or error}") from None


def find_checksum(path: Path) -> Path:
    """Return the file with the checksum of a file."""
    return path.with_name(f".{path.name}.crc")


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Progress:
    """The last batches of a checkpoint."""

    home: Path
    offsets: tuple[int, ...]
    commits: tuple[int, ...]

    @classmethod
    def read(cls, home: Path) -> Progress:
        """List the batches. Raises ConfigError if there are none."""
        offsets = tuple(list_batches(home / "offsets"))
        if not offsets:
            raise ConfigError(
                f"{home} is not the checkpoint of a stream: it has no offsets",
                hint="it is the directory given as checkpointLocation, on a local disk",
            )
        return cls(home, offsets, tuple(list_batches(home / "commits")))

    @property
    def committed(self) -> int | None:
        """The last complete batch."""
        return self.commits[-1] if self.commits else None

    @property
    def planned(self) -> int | None:
        """The first batch that is planned and not complete."""
        return next((batch for batch in self.offsets if batch > (-1 if not self.commits else self.commits[-1])), None)

    def find_file(self, batch: int) -> Path:
        """Return the file with the offsets of a batch."""
        return self.home / "offsets" / str(batch)

    def find_commit(self, batch: int) -> Path:
        """Return the file that marks a batch as complete."""
        return self.home / "commits" / str(batch)


def open_local(place: str) -> Path:
    """Return the path of a checkpoint. Raises ConfigError for one that is not on a local disk."""
    scheme, mark, rest = place.partition("://")
    if not mark:
        return Path(place.removeprefix("file:"))
    if scheme != "file":
        raise ConfigError(
            f"{place} is not on a local disk",
            hint="copy its folders offsets and commits and the file metadata here, edit the copy, and copy it back",
        )
    return Path(rest)


def read_checkpoint(home: Path) -> Checkpoint:
    """Return where a stream is. Raises ConfigError if this is not the checkpoint of one that reads topics."""
    progress = Progress.read(home)
    committed, planned = progress.committed, progress.planned
    files = {batch: OffsetFile.read(progress.find_file(batch)) for batch in progress.offsets}
    before = files[committed].places if committed in files else {}
    after = files[planned].places if planned is not None else {}
    places = sorted({*before, *after}, key=lambda place: (place.source, place.queue))
    if not places:
        raise ConfigError(f"{home}: the stream reads no topics of RocketMQ")
    return Checkpoint(
        path=str(home),
        query_id=_read_query_id(home),
        committed=committed,
        planned=planned,
        stateful=(home / STATE).is_dir(),
        written_at=find_last_write(home),
        batches=tuple(
            Batch(batch=batch, committed=batch in progress.commits, planned_at=file.planned_at)
            for batch, file in files.items()
        ),
        queues=tuple(
            QueuePlace(
                source=place.source,
                topic=place.queue.topic,
                broker=place.queue.broker_name,
                queue_id=place.queue.queue_id,
                committed=before.get(place),
                planned=after.get(place),
            )
            for place in places
        ),
    )


def _read_query_id(home: Path) -> str:
    try:
        return str(json.loads(read_bounded(home / "metadata"))["id"])
    except (ConfigError, ValueError, KeyError, TypeError):
        return ""


def find_last_write(home: Path) -> datetime:
    """Return when a file of the checkpoint was last written, those that are being written included."""
    last = 0.0
    for folder in (home / "offsets", home / "commits"):
        for path in (folder, *(folder.iterdir() if folder.is_dir() else ())):
            try:
                last = max(last, path.stat().st_mtime)
            except FileNotFoundError:
                continue  # it was renamed or purged
    return datetime.fromtimestamp(last, UTC)
