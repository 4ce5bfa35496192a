"""Running the official `mqadmin` and `eruca admin` on two systems with the same content, and comparing what they print.

What a command prints is cut into fields: cells of tables under their headings, `key : value` pairs, JSON, the fields of
a message, otherwise words.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from eruca._cli.main import main
from eruca._ground.printable import say_count
from tests.figures import note_figures
from tests.interop.brokers import BROKER_NAME, Cluster
from tests.interop.javapeer import JavaProgram
from tests.patience import PATIENCE_S

# What differs between any two runs, of the same system too, by its look.
VOLATILE = (
    # An offset id is address, port and position: only the port is another.
    (re.compile(r"\b7F000001[0-9A-F]{8}(?=[0-9A-F]{16}\b)"), "BROKER-"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d(?:[,:]\d{3})?"), "TIME"),
    (re.compile(r"\b20\d{12}(?:\d{3})?\b"), "TIME"),
    # Where a Java object is in memory.
    (re.compile(r"@[0-9a-f]{5,8}\b"), "@OBJECT"),
    (re.compile(r"\$\$Lambda\S+"), "$$Lambda"),
    # Milliseconds; a number, so that JSON stays JSON.
    (re.compile(r"\b1[6-9]\d{11}\b"), "1600000000000"),
    # Where a client connected from.
    (re.compile(r"/?\b127\.0\.0\.1:\d+"), "PEER"),
)


# What Java prints behind another thing without a new line.
_GLUED = re.compile(
    r"(?<=[^\n])(?=create topic to |TopicConfig \[|MessageTrack \[|SendResult \[|account's accesskey|WARN: Diff)"
)

_MONITORING = "startMonitoring"

JAVA, OURS = "ByJava", "ByOurs"
TOOLS = (JAVA, OURS)


@dataclass(frozen=True)
class Ask:
    """A command line of mqadmin, and the fields of its answer that may differ, each with the reason."""

    line: str
    differs: Mapping[str, str] = field(default_factory=dict)
    # The command prints a Java hash table or set as it comes.
    unordered: bool = False
    # Only the names of the fields are compared, for the reason given.
    names_only: str = ""
    # Eruca has fields that Java does not have.
    more: bool = False
    # Java's tool has nothing to say, though it does not fail; ours says that there is nothing.
    silent: bool = False
    # Both are asked again until their answer has this; for what a broker samples from time to time.
    awaited: Mapping[str, str] = field(default_factory=dict)
    # The answer is in this file below {home}, as JSON.
    file: str = ""
    # It prepares what follows, and its answer is not compared.
    setup: bool = False
    # What is compared instead of the fields.
    digest: Callable[[list[Any]], list[Any]] | None = None
    # Only rows with these fields are compared.
    only: Mapping[str, str] = field(default_factory=dict)
    # The command of Java goes on for ever, and is stopped when it has printed this; ours gets these words.
    stop_at: str = ""
    ours: str = ""
    # Ours refuses, or fails, where Java's tool on Java succeeds, for the reason given; `eruca` refuses Java's tool too.
    refused: str = ""
    eruca_refuses: bool = False
    # Java's tool prints the trace of an exception although it succeeds.
    complains: bool = False
    # Eruca reports a failure in other words than Java's broker, for the reason given.
    own_words: str = ""

    @property
    def command(self) -> str:
        """The name of the command."""
        return self.line.split()[0]


@dataclass(frozen=True)
class Answer:
    """What a tool answered."""

    fields: list[Any]
    failed: bool
    # What Java's tool says about a failure; the same on both systems.
    said: tuple[str, ...] = ()


# --- from text to fields ----------------------------------------------------------------------------------------


def parse_fields(text: str) -> list[Any]:
    """Cut what a command printed into tables, pairs, JSON, messages and words."""
    if text.lstrip().startswith("{"):
        # Java writes numbers as keys without quotes.
        return [json.loads(re.sub(r"([{,]\s*)(-?\d+):", r'\1"\2":', text))]
    items: list[Any] = []
    columns: list[str] = []
    for line in _GLUED.sub("\n", text).splitlines():
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
                items.append({pair[1]: _split_map(pair[2])} if pair else cells)
    return items


def _split_map(text: str) -> str | list[str]:
    """The parts of a Java map, whose order is that of its hash table; other texts as they are."""
    return sorted(text[1:-1].split(", ")) if re.fullmatch(r"\{.*=.*\}", text) else text


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
    # One name ends with a path of the store. With a cluster the line is words, the value behind it among them.
    return sorted(re.sub(r"HOME\S*( \S+)?", "PATH", name.partition(" : ")[0]) for name in names)


# --- two systems with the same content ----------------------------------------------------------------------------


class Side:
    """One of the two systems, as commands see it."""

    def __init__(
        self, program: JavaProgram, cluster: Cluster, home: Path, *, tools_file: Path | None = None, **words: str
    ) -> None:
        self._program = program
        self._cluster = cluster
        self._tools_file = tools_file
        self._words = {"broker": cluster.broker, "names": cluster.name_server, "name": BROKER_NAME, "home": str(home)}
        self._words |= words

    @property
    def accounts(self) -> Path:
        """The file of accounts of the broker."""
        return Path(self._words["accounts"])

    @property
    def kind(self) -> str:
        """Of which kind the system is."""
        return self._cluster.kind

    def build(self, what: str = "build") -> None:
        """Make the content that commands are asked about; with `trace`, a message whose producer traces it."""
        request = {"do": what, "kind": self.kind, "nameServer": self._cluster.name_server}
        (ids,) = self._program.ask(request | {"address": self._cluster.broker, "broker": BROKER_NAME})
        self._words |= {label.removesuffix(f"-{self.kind}"): name for label, name in ids.items()}

    def answer(self, ask: Ask, tool: str) -> Answer:
        """The answer of a tool; when something is awaited, the first that has it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._answer(ask, tool)
            rows = [item for item in answer.fields if isinstance(item, dict)]
            if not ask.awaited or any(ask.awaited.items() <= row.items() for row in rows):
                return answer
            assert time.monotonic() < deadline, f"{tool} on {self.kind} still says {answer} to {ask.line}"

    def _answer(self, ask: Ask, tool: str) -> Answer:
        """Run a command and give the fields of its answer, without what always differs."""
        words = self._words | {"by": tool}
        arguments = [word.format_map(words) for word in ask.line.split()]
        run = self._run_java if tool == JAVA else self._run_ours
        out, said = run(ask, arguments)
        failed = bool(said)
        text = Path(self._words["home"], ask.file).read_text("utf-8") if ask.file else out
        items = self._choose_items(ask, parse_fields(self._hide(text, tool)))
        return Answer(items, failed, tuple(self._hide(line, tool) for line in said))

    def _run_java(self, ask: Ask, arguments: Sequence[str]) -> tuple[str, list[str]]:
        request = {"do": "run", "nameServer": self._cluster.name_server, "arguments": arguments}
        request |= {"tools": str(self._tools_file)} if self._tools_file else {}
        (row,) = self._program.ask(request | ({"until": ask.stop_at} if ask.stop_at else {}))
        complaints = [] if ask.complains else row["err"].splitlines()[:1]
        out = row["out"]
        if ask.command != _MONITORING:
            # Java's monitor goes on in the same process, and reports once a minute.
            out = "".join(line for line in out.splitlines(keepends=True) if not line.startswith("[MONITOR]"))
        return out, [*complaints, *([row["error"]] if row.get("error") else [])]

    def _run_ours(self, ask: Ask, arguments: Sequence[str]) -> tuple[str, list[str]]:
        before = ["-n", self._cluster.name_server]
        before += ["--account", str(self._tools_file)] if self._tools_file else []
        result = CliRunner().invoke(main, ["admin", *before, *arguments, *ask.ours.split()])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.stdout, [result.stderr] if result.exit_code else []

    def _choose_items(self, ask: Ask, items: list[Any]) -> list[Any]:
        if ask.names_only:
            return list(list_names(items))
        items = [item for item in items if not _is_idle_retry(item)]
        if ask.only:
            items = [item for item in items if isinstance(item, dict) and ask.only.items() <= item.items()]
        items = [hide_fields(item, ask.differs) for item in items]
        if ask.digest is not None:
            items = ask.digest(items)
        if ask.unordered:
            items.sort(key=lambda item: json.dumps(item, sort_keys=True))
        return items

    def _hide(self, text: str, tool: str) -> str:
        text = text.replace(self._cluster.broker, "BROKER").replace(self._cluster.name_server, "NAMESERVER")
        if "accounts" in self._words:
            text = text.replace(self._words["accounts"], "ACCOUNTS")
        text = text.replace(self._words["home"], "HOME").replace(f"-{self.kind}", "-KIND")
        # What the other tool made is there too.
        text = text.replace(tool, "").replace(OURS if tool == JAVA else JAVA, "ByOther")
        for pattern, mark in VOLATILE:
            text = pattern.sub(mark, text)
        return text


def _is_idle_retry(item: Any) -> bool:
    """A group's retry queue without messages is listed once the consumer's first long pull of it came back."""
    return isinstance(item, dict) and item.get("Topic", "").startswith("%RETRY%") and item.get("Broker Offset") == "0"


# --- comparing ----------------------------------------------------------------------------------------------------


def find_differences(sides: Sequence[Side], asks: Sequence[Ask], name: str = "") -> str:
    """Ask both tools on both systems one thing after the other; returns what differs as text.

    Java's tool on Java is what all others are compared with. With the name of a command, what was compared is noted.
    """
    answers = {(tool, side.kind): [side.answer(ask, tool) for ask in asks] for tool in TOOLS for side in sides}
    found = []
    for index, ask in enumerate(asks):
        if ask.setup:
            continue
        wanted = answers[JAVA, "java"][index]
        said = bool(wanted.fields or wanted.failed)
        assert said != ask.silent, f"{ask.line} says {wanted}"
        for who, rows in answers.items():
            found += [f"{ask.line}: {' on '.join(who)}: {text}" for text in _compare(ask, who, rows[index], wanted)]
    if name:
        note_figures(describe_row(name, asks, answers[JAVA, "java"]))
    return "\n".join(found)


def describe_row(name: str, asks: Sequence[Ask], wanted: Sequence[Answer]) -> str:
    """Return the row of a command in the table of this run: what was compared, and what is excused for which reason."""
    compared = [(ask, answer) for ask, answer in zip(asks, wanted, strict=True) if not ask.setup]
    lines = sum(len(answer.fields) for _, answer in compared)
    excused = {f"{each}: {reason}": None for ask, _ in compared for each, reason in ask.differs.items()}
    for ask, _ in compared:
        excused |= {f"values, {ask.names_only}": None} if ask.names_only else {}
        excused |= {f"refused, {ask.refused}": None} if ask.refused else {}
        excused |= {f"words of a failure, {ask.own_words}": None} if ask.own_words else {}
        excused |= {"nothing found is an error of ours": None} if ask.silent else {}
        excused |= {"more fields on Eruca": None} if ask.more else {}
    count = f"{say_count(len(compared), 'command line')}, {say_count(lines, 'line')} of the answer"
    return f"mqadmin {name:<28} {count}; excused: {'; '.join(excused) or 'nothing'}"


def _compare(ask: Ask, who: tuple[str, str], answer: Answer, wanted: Answer) -> list[str]:
    """What one answer has that it should not have, or the other way round."""
    tool, kind = who
    if ask.refused and (tool == OURS or (ask.eruca_refuses and kind == "eruca")):
        return [] if answer.failed else [f"is not refused: {answer}"]
    if ask.silent and tool == OURS:
        return [] if answer.failed and not answer.fields else [f"does not say that there is nothing: {answer}"]
    if answer.failed != wanted.failed:
        return [f"failed: {answer.failed}, Java on Java: {wanted.failed}: {answer.said or wanted.said}"]
    if tool == JAVA and answer.said != wanted.said and not ask.own_words:
        return [f"says {answer.said}, not {wanted.said}"]
    if answer.failed and tool == OURS:
        return []  # what is printed before the failure is not compared
    found = answer.fields
    if ask.more and kind == "eruca":
        known = {name for item in wanted.fields for name in _list_own_names(item)}
        found = [item for item in found if known.issuperset(_list_own_names(item))]
    return list_differences(found, wanted.fields)


def _list_own_names(item: Any) -> list[str]:
    return list(item) if isinstance(item, dict) else [str(item)]


def list_differences(found: list[Any], wanted: list[Any]) -> list[str]:
    """What one answer has that the other has not."""
    texts = [[json.dumps(item, sort_keys=True) for item in items] for items in (found, wanted)]
    differences = [f"has {text}" for text in texts[0] if text not in texts[1]]
    differences += [f"lacks {text}" for text in texts[1] if text not in texts[0]]
    if not differences and texts[0] != texts[1]:
        differences = ["has the same fields in another order"]
    return differences
