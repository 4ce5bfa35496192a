"""The JSON tables under `config/`: topics, groups, offsets. Never half-written; Java can read ours, and we read Java's.

A save writes `<name>.tmp`, keeps the previous content as `<name>.bak` and renames; a load that finds the table
missing, empty or unreadable uses the `.bak` and logs it. Only when both are unreadable is it an error, because an
empty table would silently lose every offset.
"""

from __future__ import annotations

import logging
import zlib
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from eruca._store.filesystem import FileSystem, replace_file
from eruca._store.jsonfile import FileDamaged, FileEmpty, JsonFile
from eruca._wire import fastjson
from eruca._wire.bodies import (
    ConsumerOffsets,
    DelayOffsets,
    GroupConfigTable,
    JsonBody,
    TopicConfigTable,
    decode_json,
    encode_json,
)
from eruca.errors import StoreError, TableCorrupt, WireError

log = logging.getLogger(__name__)

# How many entries of a large table are encoded at once: a few tenths of a millisecond.
_ENTRIES_AT_ONCE: Final = 500

Table = TypeVar("Table", bound=JsonBody)


class TableFile(Generic[Table]):
    """One table on the disk."""

    def __init__(self, disk: FileSystem, path: Path, table_type: type[Table]) -> None:
        self._disk = disk
        self._decode = partial(decode_table, table_type)
        self._type = table_type
        self.file = JsonFile(disk, path, self._decode, encode_table)
        self.backup = JsonFile(disk, path.with_name(path.name + ".bak"), self._decode, encode_table)
        # The size and checksum of what was saved last: reading it again to check that it is a table takes long.
        self._known = (-1, 0)

    def load(self) -> Table:
        """Read the table; a missing one is empty, a damaged one is read from its backup."""
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
        """Replace the table atomically, keeping the previous content as its backup.

        Raises TableFull for a table larger than `load` would read.
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
                self._decode(previous)  # it was not written by us
            replace_file(self._disk, self.backup.path, previous)
        except WireError:
            return  # a damaged table must not replace a good backup
        except StoreError as error:
            log.warning("no backup of %s: %s", self.file.path.name, error)


def _fingerprint(data: bytes) -> tuple[int, int]:
    return len(data), zlib.crc32(data)


class _Part(JsonBody, kw_only=True):
    entries: dict[str, Any]


# What surrounds the entries of a part.
_PART_HEAD, _PART_TAIL = b'{\n "entries": {', b"\n }\n}"


def encode_table(table: JsonBody) -> bytes:
    """The table as JSON, indented as Java's are; integer keys are quoted, which Java reads as well as bare ones.

    Large tables are written in parts: Python runs one thread at a time, and encoding a table of 10,000 topics in one go
    would block the loop for 10 ms.
    """
    large = [
        (field, entries)
        for field in msgspec.structs.fields(table)
        if isinstance(entries := getattr(table, field.name), dict) and len(entries) > _ENTRIES_AT_ONCE
    ]
    data = _encode_indented(msgspec.structs.replace(table, **{field.name: {} for field, _ in large}))
    for field, entries in large:
        left, parts = iter(entries.items()), []
        while part := dict(islice(left, _ENTRIES_AT_ONCE)):
            parts.append(_encode_indented(_Part(entries=part))[len(_PART_HEAD) : -len(_PART_TAIL)])
        before, after = data.split(f'"{field.encode_name}": {{}}'.encode(), 1)
        data = b"".join((before, f'"{field.encode_name}": {{'.encode(), b",".join(parts), b"\n }", after))
    return data


def _encode_indented(body: JsonBody) -> bytes:
    return msgspec.json.format(encode_json(body), indent=1)


def decode_table(table_type: type[Table], data: bytes) -> Table:
    """Read a table of 4.9, or of 3.x with its older spellings."""
    if b"timestatmp" in data or table_type is GroupConfigTable:
        data = fastjson.write(_modernise(table_type, fastjson.parse(data)))
    return decode_json(table_type, data)


def _modernise(table_type: type[JsonBody], plain: Any) -> Any:
    """Convert the spellings of 3.x to those of 4.9: `timestatmp`, and groups without their wrapper."""
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
