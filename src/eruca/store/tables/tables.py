"""The JSON tables under `config/`: topics, groups, offsets. Never half-written, readable by Java, and Java's by us.

A save writes `<name>.tmp`, keeps the previous content as `<name>.bak` and renames; a load that finds the table
missing, empty or unreadable takes the `.bak` and says so. Only when both are unreadable is it an error, because an
empty table would silently lose every offset.
"""

from __future__ import annotations

import logging
import zlib
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from eruca.errors import StoreError, TableCorrupt, WireError
from eruca.store.filesystem import FileSystem, replace_file
from eruca.store.jsonfile import FileDamaged, FileEmpty, JsonFile
from eruca.wire import fastjson
from eruca.wire.bodies import (
    ConsumerOffsets,
    DelayOffsets,
    GroupConfigTable,
    JsonBody,
    TopicConfigTable,
    decode_json,
    encode_json,
)

log = logging.getLogger(__name__)

Table = TypeVar("Table", bound=JsonBody)


class TableFile(Generic[Table]):
    """One table on the disk."""

    def __init__(self, disk: FileSystem, path: Path, table_type: type[Table]) -> None:
        self._disk = disk
        self._decode = partial(decode_table, table_type)
        self._type = table_type
        self.file = JsonFile(disk, path, self._decode, encode_table)
        self.backup = JsonFile(disk, path.with_name(path.name + ".bak"), self._decode, encode_table)
        # The size and checksum of what was saved last: reading that again to see whether it is a table takes long.
        self._known = (-1, 0)

    def load(self) -> Table:
        """Read the table; a missing one is empty, a damaged one is taken from its backup."""
        problems: list[str] = []
        damaged = False
        for file in (self.file, self.backup):
            name = file.path.name
            try:
                table = file.read()
            except FileDamaged as error:
                problems.append(f"{name}: {error}")
                damaged |= not isinstance(error, FileEmpty)
                continue
            if table is None:
                problems.append(f"{name} is missing")
                continue
            if problems:
                log.warning("%s; %s was used instead", "; ".join(problems), name)
            return table
        if damaged:
            raise TableCorrupt(
                f"{self.file.path} and its backup are unreadable: {'; '.join(problems)}",
                hint="repair one of them by hand, or move both away to start with an empty table",
            )
        return self._type()

    def save(self, table: Table) -> None:
        """Replace the table in one step, keeping the previous content as its backup.

        Raises TableFull for one that is larger than `load` would read.
        """
        data, path = self.file.encode(table), self.file.path
        self._disk.make_directory(path.parent)
        staging = path.with_name(path.name + ".tmp")
        self._disk.write_file(staging, data)
        if self.file.exists():
            self._keep_backup()
        self._disk.rename(staging, path)
        self._known = _fingerprint(data)

    def _keep_backup(self) -> None:
        try:
            previous = self._disk.read_file(self.file.path)
            if _fingerprint(previous) != self._known:
                self._decode(previous)  # somebody else wrote it
            replace_file(self._disk, self.backup.path, previous)
        except WireError:
            return  # a damaged table must not replace a good backup
        except StoreError as error:
            log.warning("no backup of %s: %s", self.file.path.name, error)


def _fingerprint(data: bytes) -> tuple[int, int]:
    return len(data), zlib.crc32(data)


def encode_table(table: JsonBody) -> bytes:
    """The table as JSON, indented as Java's are; integer keys are quoted, which Java reads as well as bare ones."""
    return msgspec.json.format(encode_json(table), indent=1)


def decode_table(table_type: type[Table], data: bytes) -> Table:
    """Read a table of 4.9, or of 3.x with its older spellings."""
    if b"timestatmp" in data or table_type is GroupConfigTable:
        data = fastjson.write(_modernise(table_type, fastjson.parse(data)))
    return decode_json(table_type, data)


def _modernise(table_type: type[JsonBody], plain: Any) -> Any:
    """Bring the spellings of 3.x to 4.9's: `timestatmp`, and groups without their wrapper."""
    if not isinstance(plain, dict):
        return plain
    version = plain.get("dataVersion")
    if isinstance(version, dict) and "timestatmp" in version:
        version.setdefault("timestamp", version["timestatmp"])
    if table_type is GroupConfigTable and "subscriptionGroupTable" not in plain:
        groups = {name: value for name, value in plain.items() if isinstance(value, dict) and "groupName" in value}
        plain = {name: value for name, value in plain.items() if name not in groups}
        plain["subscriptionGroupTable"] = groups
    return plain


class Tables:
    """The tables of one store."""

    def __init__(self, disk: FileSystem, directory: Path) -> None:
        self.topics = TableFile(disk, directory / "topics.json", TopicConfigTable)
        self.groups = TableFile(disk, directory / "subscriptionGroup.json", GroupConfigTable)
        self.consumer_offsets = TableFile(disk, directory / "consumerOffset.json", ConsumerOffsets)
        self.delay_offsets = TableFile(disk, directory / "delayOffset.json", DelayOffsets)
