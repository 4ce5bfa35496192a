"""Running the official `mqadmin` on two systems with the same content, and comparing what it prints field by field.

What a command prints is cut into fields: cells of tables under their headings, `key : value` pairs, JSON, the fields of
a message, otherwise words.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.brokers import BROKER_NAME, Cluster
from tests.interop.javapeer import JavaProgram

# A broker samples its counters every 10 s.
SAMPLE_SECONDS_MAX = 30

# What differs between any two runs, of the same system too, by its look.
VOLATILE = (
    # An offset id is address, port and position: only the port is another.
    (re.compile(r"\b7F000001[0-9A-F]{8}(?=[0-9A-F]{16}\b)"), "BROKER-"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d(?:[,:]\d{3})?"), "TIME"),
    # Milliseconds; a number, so that JSON stays JSON.
    (re.compile(r"\b1[6-9]\d{11}\b"), "1600000000000"),
    # Where a client connected from.
    (re.compile(r"/?\b127\.0\.0\.1:\d+"), "PEER"),
)


@dataclass(frozen=True)
class Ask:
    """A command line of mqadmin, and the fields of its answer that may differ, each with the reason."""

    line: str
    differs: Mapping[str, str] = field(default_factory=dict)
    # The command prints a Java hash table or set as it comes.
    unordered: bool = False
    # Only the names of the fields are compared, for the reason given.
    names_only: str = ""
    # Names of fields that Eruca may have in addition.
    more: Container[str] = ()
    # Neither has anything to say.
    silent: bool = False
    # Both are asked again until their answer has this; for what a broker samples from time to time.
    until: Mapping[str, str] = field(default_factory=dict)
    # The answer is in this file below {home}, as JSON.
    file: str = ""

    @property
    def command(self) -> str:
        """The name of the command."""
        return self.line.split()[0]


# --- from text to fields ----------------------------------------------------------------------------------------


def parse_fields(text: str) -> list[Any]:
    """Cut what a command printed into tables, pairs, JSON, messages and words."""
    if text.lstrip().startswith("{"):
        # Java writes numbers as keys without quotes.
        return [json.loads(re.sub(r"([{,]\s*)(-?\d+):", r'\1"\2":', text))]
    items: list[Any] = []
    columns: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            columns = [name.strip() for name in line.split("#")[1:]]
            items.append(columns)
        elif not line.strip():
            columns = []
        elif "MessageExt [" in line or "Result [" in line:
            items.append(_parse_object(line))
        else:
            cells = line.split()
            pair = re.fullmatch(r"\s*([\w.@/#-]+(?: [\w.]+)?)\s*[:=]\s+(.*?)\s*", line)
            if len(cells) == len(columns):
                items.append(dict(zip(columns, cells, strict=True)))
            else:
                items.append({pair[1]: pair[2]} if pair else cells)
    return items


def _parse_object(line: str) -> dict[str, Any]:
    """The fields, and the properties of a message, of what Java's `toString` wrote."""
    before, _, body = line.partition("body=")
    number = re.match(r"MSGID: (\w+)", line)
    fields = dict(re.findall(r"(\w+)=([^,\[\]{}]+)", before))
    return {"MSGID": number and number[1], **fields, "kind": re.findall(r"\w+(?= \[)", before), "body": body}


def hide_fields(item: Any, hidden: Mapping[str, str]) -> Any:
    """A copy with a mark in place of the values of some fields, at any depth."""
    if isinstance(item, dict):
        return {key: "*" if key in hidden else hide_fields(value, hidden) for key, value in item.items()}
    if isinstance(item, list):
        return [hide_fields(value, hidden) for value in item]
    return item


def list_names(items: list[Any]) -> list[str]:
    """The sorted names of the fields, without what they say."""
    names = (name for item in items for name in (item if isinstance(item, dict) else [" ".join(map(str, item))]))
    # One name ends with a path of the store.
    return sorted(re.sub(r"HOME\S*", "PATH", name) for name in names)


# --- two systems with the same content ----------------------------------------------------------------------------


class Side:
    """One of the two systems, as commands see it."""

    def __init__(self, program: JavaProgram, cluster: Cluster, home: Path) -> None:
        self._program = program
        self._cluster = cluster
        self._words = {"broker": cluster.broker, "names": cluster.name_server, "name": BROKER_NAME, "home": str(home)}
        request = {"do": "build", "kind": cluster.kind, "nameServer": cluster.name_server}
        (ids,) = program.ask(request | {"address": cluster.broker, "broker": BROKER_NAME}, seconds=120)
        self._words |= {label.removesuffix(f"-{cluster.kind}"): name for label, name in ids.items()}

    def wait_for_answer(self, ask: Ask) -> dict[str, Any]:
        """The answer; when something is awaited, the first that has it."""
        deadline = time.monotonic() + SAMPLE_SECONDS_MAX
        while True:
            answer = self.answer(ask)
            rows = [item for item in answer["fields"] if isinstance(item, dict)]
            if not ask.until or any(ask.until.items() <= row.items() for row in rows):
                return answer
            assert time.monotonic() < deadline, f"{self._cluster.kind} still says {answer} to {ask.line}"

    def answer(self, ask: Ask) -> dict[str, Any]:
        """Run a command and give the fields of its answer, without what always differs."""
        arguments = [word.format_map(self._words) for word in ask.line.split()]
        (row,) = self._program.ask({"do": "run", "nameServer": self._cluster.name_server, "arguments": arguments})
        text = Path(self._words["home"], ask.file).read_text("utf-8") if ask.file else row["out"]
        items = parse_fields(self._hide(text))
        if ask.names_only:
            items = [name for name in list_names(items)]
        else:
            items = [item for item in items if not _is_idle_retry(item)]
            items = [hide_fields(item, ask.differs) for item in items]
            if ask.unordered:
                items.sort(key=lambda item: json.dumps(item, sort_keys=True))
        errors = self._hide(row["err"]).splitlines()
        return {
            "fields": items,
            "error": [self._hide(row["error"])] if row.get("error") else [],
            "complaint": errors[:1],
        }

    def _hide(self, text: str) -> str:
        text = text.replace(self._cluster.broker, "BROKER").replace(self._cluster.name_server, "NAMESERVER")
        text = text.replace(self._words["home"], "HOME").replace(f"-{self._cluster.kind}", "-KIND")
        for pattern, mark in VOLATILE:
            text = pattern.sub(mark, text)
        return text


def _is_idle_retry(item: Any) -> bool:
    """A group's retry queue without messages is listed once the consumer's first long pull of it came back."""
    return isinstance(item, dict) and item.get("Topic", "").startswith("%RETRY%") and item.get("Broker Offset") == "0"


# --- comparing ----------------------------------------------------------------------------------------------------


def find_differences(sides: tuple[Side, Side], *asks: Ask) -> str:
    """Ask both one thing after the other; returns what differs as text. Java answers each, unless it is silent."""
    differences = []
    for ask in asks:
        eruca, java = (side.wait_for_answer(ask) for side in sides)
        assert any(java.values()) != ask.silent, f"{ask.line} says {java}"
        known = {name for item in java["fields"] for name in _list_names_of(item)}
        eruca["fields"] = [
            item
            for item in eruca["fields"]
            if not any(name in ask.more and name not in known for name in _list_names_of(item))
        ]
        if eruca != java:
            differences.append((ask.line, list_differences(eruca, java)))
    return "\n".join(f"{line}\n    " + "\n    ".join(found) for line, found in differences)


def _list_names_of(item: Any) -> list[str]:
    """The names in a field, which is one itself where only names are compared."""
    return list(item) if isinstance(item, dict) else [str(item)]


def list_differences(eruca: dict[str, Any], java: dict[str, Any]) -> list[str]:
    """What one answer has that the other has not."""
    texts = [[json.dumps(item) for items in side.values() for item in items] for side in (eruca, java)]
    found = [f"only Eruca: {text}" for text in texts[0] if text not in texts[1]]
    found += [f"only Java: {text}" for text in texts[1] if text not in texts[0]]
    return found or ["the same fields in another order"]
