"""The `.conf` files of Apache RocketMQ, in Java properties format."""

from __future__ import annotations

import difflib
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from eruca._ground.smallfiles import FILE_MODE, make_directories, sync_directory
from eruca.errors import ConfigError

_BYTES_MAX = 1024 * 1024
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NAMES = {char: name for name, char in _ESCAPES.items()}
_UNSAFE = frozenset("\\") | _NAMES.keys()
_SPECIAL = frozenset("=:#! ") | _UNSAFE
# What Java treats as white space, and as the end of a key and of a line.
_BLANKS = " \t\f"
_SEPARATORS = frozenset("=:" + _BLANKS)
_LINE_END = re.compile(r"\r\n?|\n")


def read_conf(path: Path) -> dict[str, str]:
    """The keys and values of a `.conf` file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="is the path right?") from error
    if len(data) > _BYTES_MAX:
        raise ConfigError(f"{path} has {len(data)} bytes; a configuration file has at most {_BYTES_MAX}")
    try:
        return parse_conf(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: it is not UTF-8 text", hint="is it the right file?") from error


def write_conf(path: Path, changes: Mapping[str, str]) -> None:
    """Set keys in a `.conf` file, creating it if needed: atomically, so that a crash leaves the old or the new file.

    Other lines, owner and permissions are kept. A link stays a link. Blocks.
    """
    target = path.resolve()
    try:
        before = target.stat() if target.exists() else None
        text = set_keys("" if before is None else target.read_bytes().decode(), changes)
        make_directories(target.parent)
        # A file beside it, readable by no one else until it has its final permissions.
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        staging = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            staging.chmod(FILE_MODE if before is None else stat.S_IMODE(before.st_mode))
            if before is not None and (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(staging, before.st_uid, before.st_gid)
            staging.replace(target)
        except BaseException:
            staging.unlink(missing_ok=True)
            raise
        sync_directory(target.parent)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be changed: it is not UTF-8 text", hint="is it the right file?") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint="is it writable?") from error


def set_keys(text: str, changes: Mapping[str, str]) -> str:
    """The text of a `.conf` file with some keys set; comments, order and all other lines are kept."""
    left = dict(changes)
    lines: list[str] = []
    newline = "\r\n" if "\r\n" in text else "\n"
    for raw, line in _list_lines(text):
        key = "" if line is None else _unescape(_split(line)[0])
        if key not in changes:
            lines += raw
        elif key in left:
            lines.append(_write_line(key, left.pop(key)))
    lines += [_write_line(key, value) for key, value in left.items()]
    return "".join(line + newline for line in lines)


def parse_conf(text: str) -> dict[str, str]:
    """Parse Java properties: comments, continued lines, escapes, `=` or `:` between key and value."""
    found: dict[str, str] = {}
    for _, line in _list_lines(text):
        if line is None:
            continue
        key, value = _split(line)
        if key:
            found[_unescape(key)] = _unescape(value)
    return found


def _list_lines(text: str) -> Iterable[tuple[list[str], str | None]]:
    """Logical lines of a file: the physical lines, and their joined text; None for a comment or a blank line."""
    raws: list[str] = []
    waiting = ""
    lines = _LINE_END.split(text)
    for raw in lines if lines[-1] else lines[:-1]:
        raws.append(raw)
        line = waiting + raw.lstrip(_BLANKS)
        if line and line[0] not in "#!" and (len(line) - len(line.rstrip("\\"))) % 2:
            waiting = line[:-1]
            continue
        yield raws, line if line and line[0] not in "#!" else None
        raws, waiting = [], ""
    if raws:
        yield raws, waiting or None


def _escape(text: str) -> str:
    """A key or a value in the form `parse_conf` reads back."""
    return "".join(["\\" + _NAMES.get(char, char) if char in _SPECIAL else char for char in text])


def _write_line(key: str, value: str) -> str:
    # In a value most characters need no escape, and people read it.
    return f"{_escape(key)}={''.join(_escape(char) if char in _UNSAFE else char for char in value)}"


def _split(line: str) -> tuple[str, str]:
    """Key and value of a line, separated by the first `=`, `:` or white space that is not escaped with a backslash."""
    at = 0
    while at < len(line) and line[at] not in _SEPARATORS:
        at += 2 if line[at] == "\\" else 1
    value = line[at:].lstrip(_BLANKS)
    return line[:at], value[1:].lstrip(_BLANKS) if value[:1] in ("=", ":") else value


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text.strip()
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char)
            continue
        escaped = text[at]
        at += 1
        if escaped == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", text[at : at + 4]):
            out.append(chr(int(text[at : at + 4], 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out).strip()


def explain_keys(properties: Mapping[str, str], known: Iterable[str], ignored: Mapping[str, str]) -> list[str]:
    """Messages about keys in a file that have no effect here or are unknown."""
    known = set(known)
    lines: list[str] = []
    for key in properties:
        if key in known:
            continue
        if key in ignored:
            lines.append(f"{key} has no effect here: {ignored[key]}")
            continue
        near = difflib.get_close_matches(key, [*known, *ignored], n=1)
        lines.append(f"{key} is not a known key" + (f"; did you mean {near[0]}?" if near else ""))
    return lines
