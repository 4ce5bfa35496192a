"""The `.conf` files of Apache RocketMQ: Java properties, read as they are."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from eruca.errors import ConfigError

_BYTES_MAX = 1024 * 1024
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SEPARATOR = re.compile(r"\s*(?<!\\)[=:]\s*|\s+")


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


def parse_conf(text: str) -> dict[str, str]:
    """Read Java properties: comments, continued lines, escapes, `=` or `:` between key and value."""
    found: dict[str, str] = {}
    for line in _join_lines(text):
        key, _, value = _split(line)
        if key:
            found[_unescape(key)] = _unescape(value)
    return found


def _join_lines(text: str) -> Iterable[str]:
    waiting = ""
    for raw in text.splitlines():
        line = waiting + raw.lstrip()
        waiting = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            waiting = line[:-1]
            continue
        yield line
    if waiting:
        yield waiting


def _split(line: str) -> tuple[str, str, str]:
    match = _SEPARATOR.search(line)
    if match is None:
        return line, "", ""
    return line[: match.start()], match.group(), line[match.end() :]


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
    """What to tell the user about the keys of a file: those that mean nothing here, and those nobody knows."""
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
