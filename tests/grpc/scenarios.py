"""What is done with every client on every server. A scenario returns facts, which are the same in each cell.

A scenario gets a `Stage` and makes its own topics and groups there, so that all of them can run at the same time.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.grpc.programs import Program, Refused, Row, describe_account
from tests.grpc.remote import ARRIVE_SECONDS_MAX, poll
from tests.grpc.servers import Server

Facts = dict[str, Any]

# The shortest that the official proxy accepts; afterwards a message comes again.
INVISIBLE_MS = 10_000
LONG_INVISIBLE_MS = 60_000
AWAIT_MS = 5_000
# How the clients name the codes that the facts mention. Some say only that they found no route.
CODES = {
    "TOPIC_NOT_FOUND": r"TOPIC_NOT_FOUND|TopicNotFound|40402",
    "UNAUTHORIZED": r"UNAUTHORIZED|Unauthorized|40100",
    "no route": r"[Ff]ailed to fetch topic",
}


class Stage:
    """One cell: a client on a server, with names that no other cell has."""

    def __init__(self, program: Program, server: Server, scenario: str) -> None:
        self.program = program
        self.server = server
        self._prefix = f"{program.language}-{scenario.replace('_', '-')}"
        self._names = itertools.count(1)
        self._running: list[str] = []

    def make_name(self, what: str) -> str:
        """A name that nothing else has."""
        return f"{self._prefix}-{what}{next(self._names)}"

    def make_topic(self, kind: str = "NORMAL", queues: int = 2) -> str:
        """A topic for one type of messages."""
        name = self.make_name("topic")
        self.server.remote.make_topic(name, kind, queues)
        return name

    def make_group(self, *, fifo: bool = False, retries: int = 16) -> str:
        """A group."""
        name = self.make_name("group")
        self.server.remote.make_group(name, fifo=fifo, retries=retries)
        return name

    def start(self, action: str, /, account: Mapping[str, str] | None = None, **fields: Any) -> str:
        """Start a client; returns the name to ask for it by."""
        name = self.make_name(action)
        self.program.ask(action, name, **describe_account(self.server, **(account or {})), **fields)
        self._running.append(name)
        return name

    def stop(self, name: str) -> None:
        """Stop a client."""
        self._running.remove(name)
        self.program.ask("stop", name)

    def close(self) -> None:
        """Stop all that still runs."""
        while self._running:
            self.stop(self._running[-1])

    def start_producer(self, *topics: str, **fields: Any) -> str:
        """A producer that names its topics at the start."""
        return self.start("producer", topics=list(topics), **fields)

    def start_push(self, group: str, topic: str, expression: str = "*", kind: str = "TAG", **fields: Any) -> str:
        """A push consumer."""
        subscriptions = {topic: {"type": kind, "expression": expression}}
        return self.start("push", group=group, subscriptions=subscriptions, **fields)

    def start_simple(self, group: str, topic: str, expression: str = "*", kind: str = "TAG") -> str:
        """A simple consumer."""
        subscriptions = {topic: {"type": kind, "expression": expression}}
        return self.start("simple", group=group, subscriptions=subscriptions, awaitMs=AWAIT_MS)

    def send(self, producer: str, *messages: Row, **fields: Any) -> list[Row]:
        """Send messages one by one; returns what the client says of each."""
        return self.program.ask("send", producer, messages=list(messages), **fields)

    def receive(self, consumer: str, count: int, *, invisible_ms: int = LONG_INVISIBLE_MS) -> list[Row]:
        """Receive until this many messages have come."""
        rows: list[Row] = []
        deadline = time.monotonic() + ARRIVE_SECONDS_MAX
        while len(rows) < count:
            assert time.monotonic() < deadline, f"came: {list_bodies(rows)}, not {count} messages"
            rows += self.program.ask("receive", consumer, max=16, invisibleMs=invisible_ms)
        return rows

    def receive_once(self, consumer: str) -> list[Row]:
        """Ask once, which waits for a while."""
        return self.program.ask("receive", consumer, max=16, invisibleMs=LONG_INVISIBLE_MS)

    def ack(self, consumer: str, *rows: Row) -> None:
        """Acknowledge what was received."""
        for row in rows:
            self.program.ask("ack", consumer, key=row["key"])

    def read_inbox(self, client: str) -> list[Row]:
        """What a push consumer was called with, or what a producer was asked about."""
        return self.program.ask("list", client)

    def wait_for(self, client: str, wanted: Callable[[list[Row]], bool], what: str) -> list[Row]:
        """Wait until what has come is as wanted."""
        return poll(lambda: self.read_inbox(client), wanted, what)


def list_bodies(rows: Sequence[Row]) -> list[str]:
    """The bodies, sorted."""
    return sorted(row["body"] for row in rows)


def list_attempts(rows: Sequence[Row], body: str) -> list[int]:
    """The attempts of one message, in the order of their coming."""
    return [row["attempt"] for row in rows if row["body"] == body]


def make_messages(topic: str, *bodies: str, **fields: Any) -> list[Row]:
    """Messages with these bodies."""
    return [{"topic": topic, "body": body, **fields} for body in bodies]


def find_code(error: Refused) -> str:
    """The code that a client names in its error; all of it when it names none that we know."""
    return next((code for code, pattern in CODES.items() if re.search(pattern, str(error))), str(error))


# --- start and send -----------------------------------------------------------------------------------------------


def start(stage: Stage) -> Facts:
    """A producer starts with a topic that exists; with one that does not, it is refused at its start or at its send."""
    topic, missing = stage.make_topic(), stage.make_name("missing")
    stage.start_producer(topic)
    try:
        stage.send(stage.start_producer(missing), *make_messages(missing, "lost"))
        refused = "sent"
    except Refused as error:
        refused = find_code(error)
    return {"missing": refused}


def normal(stage: Stage) -> Facts:
    """A message arrives with everything that it was sent with, and once."""
    topic, group = stage.make_topic(), stage.make_group()
    consumer, producer = stage.start_simple(group, topic), stage.start_producer(topic)
    text = "火箭菜 🚀\nsecond line"
    message = {"topic": topic, "body": text, "tag": "fresh", "keys": ["k1", "k2"], "properties": {"colour": "grün"}}
    (sent,) = stage.send(producer, message)
    (row,) = stage.receive(consumer, 1)
    stage.ack(consumer, row)
    return {
        "body": row["body"] == text,
        "topic": row["topic"] == topic,
        "id": row["messageId"] == sent["messageId"],
        "tag": row["tag"],
        "keys": sorted(row["keys"]),
        "colour": row["properties"].get("colour"),
        "attempt": row["attempt"],
        "more": list_bodies(stage.receive_once(consumer)),
    }


def fifo(stage: Stage) -> Facts:
    """Messages of a group come in the order of their sending."""
    topic, _, consumer = _send_groups(stage, fail={})
    rows = stage.wait_for(consumer, lambda rows: len(rows) >= 10, "ten messages")
    order = {key: [row["body"] for row in rows if row["group"] == key] for key in "AB"}
    return {"order": order, "topic": {row["topic"] for row in rows} == {topic}, "attempts": _list_all_attempts(rows)}


def fifo_failure(stage: Stage) -> Facts:
    """A message that fails comes again before the next one of its group."""
    _, group, consumer = _send_groups(stage, fail={"A1": 1})
    dead = f"%DLQ%{group}"
    stage.wait_for(consumer, lambda rows: len(rows) >= 10 + (not stage.server.remote.count(dead)), "all messages")
    rows = stage.read_inbox(consumer)
    return {"order": [row["body"] for row in rows if row["group"] == "A"], "dead": stage.server.remote.count(dead)}


def _send_groups(stage: Stage, fail: Mapping[str, int]) -> tuple[str, str, str]:
    topic, group = stage.make_topic("FIFO", queues=4), stage.make_group(fifo=True)
    producer = stage.start_producer(topic)
    for number in range(5):
        for key in "AB":
            stage.send(producer, *make_messages(topic, f"{key}{number}", group=key))
    return topic, group, stage.start_push(group, topic, fail=dict(fail))


def _list_all_attempts(rows: Sequence[Row]) -> list[int]:
    return sorted({row["attempt"] for row in rows})


def delay(stage: Stage) -> Facts:
    """Messages come when they are due, the later one later."""
    topic, group = stage.make_topic("DELAY"), stage.make_group()
    consumer, producer = stage.start_push(group, topic), stage.start_producer(topic)
    now = _find_second()
    due = {"late": now + 6_000, "soon": now + 3_000}
    for body, at in due.items():
        stage.send(producer, *make_messages(topic, body, deliverAt=at))
    rows = stage.wait_for(consumer, lambda rows: len(rows) >= len(due), "two messages")
    # The official timer counts in seconds.
    return {
        "order": [row["body"] for row in rows],
        "too early": [row["body"] for row in rows if row["at"] < due[row["body"]] - 1_000],
        "attempts": [row["attempt"] for row in rows],
    }


def _find_second() -> int:
    """The next second in milliseconds: some clients know of no smaller steps."""
    return (int(time.time()) + 1) * 1000


def recall(stage: Stage) -> Facts:
    """A message that is recalled in time does not come; the one due after it does."""
    topic, group = stage.make_topic("DELAY"), stage.make_group()
    consumer, producer = stage.start_push(group, topic), stage.start_producer(topic)
    now = _find_second()
    (sent,) = stage.send(producer, *make_messages(topic, "recalled", deliverAt=now + 20_000))
    (recalled,) = stage.program.ask("recall", producer, topic=topic, handle=sent["recallHandle"])
    stage.send(producer, *make_messages(topic, "kept", deliverAt=now + 23_000))
    rows = stage.wait_for(consumer, lambda rows: "kept" in list_bodies(rows), "the message that was kept")
    return {"id": recalled == sent["messageId"], "came": list_bodies(rows)}


# --- transactions -------------------------------------------------------------------------------------------------


def transaction(stage: Stage) -> Facts:
    """What is committed comes, what is rolled back does not."""
    topic, group = stage.make_topic("TRANSACTION"), stage.make_group()
    consumer, producer = stage.start_push(group, topic), stage.start_producer(topic, check="rollback")
    for body, end in (("first", "commit"), ("never", "rollback"), ("second", "commit")):
        stage.send(producer, *make_messages(topic, body), transaction=end)
    rows = stage.wait_for(consumer, lambda rows: len(rows) >= 2, "two messages")
    return {"came": list_bodies(rows)}


def check_back(stage: Stage) -> Facts:
    """A producer is asked about what it left undecided, and its answer counts."""
    topic, group = stage.make_topic("TRANSACTION"), stage.make_group()
    other = stage.make_topic("TRANSACTION")
    consumer, producer = stage.start_push(group, topic), stage.start_producer(topic, check="commit")
    refuser = stage.start_producer(other, check="rollback")
    stage.send(refuser, *make_messages(other, "never"), transaction="leave")
    stage.send(producer, *make_messages(topic, "asked"), transaction="leave")
    rows = stage.wait_for(consumer, bool, "the message that was asked about")
    stage.wait_for(refuser, bool, "the question about the other message")
    return {
        "came": list_bodies(rows),
        "asked": sorted({row["body"] for row in stage.read_inbox(producer)}),
        "asked the other": sorted({row["body"] for row in stage.read_inbox(refuser)}),
        "of the other": [stage.server.remote.count(other, queue) for queue in range(2)],
    }


# --- push consumers -----------------------------------------------------------------------------------------------


def push(stage: Stage) -> Facts:
    """Each message comes once."""
    topic, group = stage.make_topic(), stage.make_group()
    producer = stage.start_producer(topic)
    bodies = [f"m{number:02}" for number in range(20)]
    stage.send(producer, *make_messages(topic, *bodies[:10]))
    consumer = stage.start_push(group, topic)
    stage.send(producer, *make_messages(topic, *bodies[10:]))
    rows = stage.wait_for(consumer, lambda rows: len(rows) >= len(bodies), "twenty messages")
    return {"each once": list_bodies(rows) == bodies, "attempts": _list_all_attempts(rows)}


def push_failure(stage: Stage) -> Facts:
    """What fails comes again after a while, and what does not fail does not."""
    topic, group = stage.make_topic(), stage.make_group()
    consumer, producer = stage.start_push(group, topic, fail={"bad": 2}), stage.start_producer(topic)
    stage.send(producer, *make_messages(topic, "bad", "good"))
    rows = stage.wait_for(consumer, lambda rows: len(rows) >= 4, "two messages, one of them three times")
    times = [row["at"] for row in rows if row["body"] == "bad"]
    return {
        "bad": list_attempts(rows, "bad"),
        "good": list_attempts(rows, "good"),
        # The steps of the back-off are one and five seconds; the official broker counts in seconds.
        "waited": times[1] - times[0] >= 500 and times[2] - times[1] >= 4_000,
        "same id": len({row["messageId"] for row in rows if row["body"] == "bad"}) == 1,
    }


def dead_letter(stage: Stage) -> Facts:
    """After the last attempt a message is a dead letter."""
    topic, group = stage.make_topic(), stage.make_group(retries=1)
    consumer, producer = stage.start_push(group, topic, fail={"bad": 100}), stage.start_producer(topic)
    stage.send(producer, *make_messages(topic, "bad", "good"))
    count = poll(lambda: stage.server.remote.count(f"%DLQ%{group}"), bool, "a dead letter")
    rows = stage.read_inbox(consumer)
    return {"bad": list_attempts(rows, "bad"), "good": list_attempts(rows, "good"), "dead": count}


def members(stage: Stage) -> Facts:
    """Two members share the messages; when one leaves, the other gets all of them."""
    topic, group = stage.make_topic(), stage.make_group()
    first, producer = stage.start_push(group, topic), stage.start_producer(topic)
    second, sent = stage.start_push(group, topic), set[str]()
    deadline = time.monotonic() + ARRIVE_SECONDS_MAX
    for number in itertools.count():
        bodies = [f"round {number} message {index}" for index in range(4)]
        sent |= set(bodies)
        for body in bodies:
            stage.send(producer, *make_messages(topic, body))
        _wait_for_all(stage, [first, second], sent)
        if stage.read_inbox(first) and stage.read_inbox(second):
            break
        assert time.monotonic() < deadline, "one member got nothing"
    stage.stop(first)
    rest = {f"rest {index}" for index in range(20)}
    stage.send(producer, *make_messages(topic, *sorted(rest)))
    _wait_for_all(stage, [second], rest)
    third = stage.start_push(group, topic)
    stage.stop(second)
    last = {f"last {index}" for index in range(20)}
    stage.send(producer, *make_messages(topic, *sorted(last)))
    _wait_for_all(stage, [third], last)
    return {"all came": True}


def _wait_for_all(stage: Stage, consumers: Sequence[str], bodies: set[str]) -> None:
    def list_missing() -> set[str]:
        return bodies - {row["body"] for consumer in consumers for row in stage.read_inbox(consumer)}

    poll(list_missing, lambda missing: not missing, "all messages")


def renewal(stage: Stage) -> Facts:
    """A handler may take longer than the invisible time: the server makes that longer, and nothing comes twice."""
    topic, group = stage.make_topic(), stage.make_group()
    consumer, producer = stage.start_push(group, topic, busyMs=75_000), stage.start_producer(topic)
    stage.send(producer, *make_messages(topic, "slow"))
    (row,) = stage.wait_for(consumer, bool, "the message")
    # Longer than the handler takes, and than the time after which it would have come again.
    rows = stage.wait_for(consumer, lambda rows: time.time() * 1000 > row["at"] + 80_000, "the end of the handler")
    return {"attempts": list_attempts(rows, "slow")}


# --- simple consumers ---------------------------------------------------------------------------------------------


def simple_ack(stage: Stage) -> Facts:
    """What is acknowledged does not come again; what is not comes after its invisible time, as attempt 2."""
    topic, group = stage.make_topic(), stage.make_group()
    consumer, producer = stage.start_simple(group, topic), stage.start_producer(topic)
    stage.send(producer, *make_messages(topic, "done", "left"))
    started = time.monotonic()
    rows = stage.receive(consumer, 2, invisible_ms=INVISIBLE_MS)
    stage.ack(consumer, *(row for row in rows if row["body"] == "done"))
    again = stage.receive(consumer, 1)
    waited = time.monotonic() - started
    stage.ack(consumer, *again)
    return {
        "first": [(row["body"], row["attempt"]) for row in sorted(rows, key=lambda row: str(row["body"]))],
        "again": [(row["body"], row["attempt"]) for row in again],
        "waited": waited >= INVISIBLE_MS / 1000 - 1,
        "more": list_bodies(stage.receive_once(consumer)),
    }


def simple_change(stage: Stage) -> Facts:
    """A message comes again after the invisible time that it was changed to, not after the one it was received with."""
    topic, group = stage.make_topic(), stage.make_group()
    consumer, producer = stage.start_simple(group, topic), stage.start_producer(topic)
    stage.send(producer, *make_messages(topic, "message"))
    (row,) = stage.receive(consumer, 1)
    changed = time.monotonic()
    stage.program.ask("change", consumer, key=row["key"], invisibleMs=2_000)
    (again,) = stage.receive(consumer, 1)
    waited = time.monotonic() - changed
    stage.ack(consumer, again)
    return {
        "attempts": [row["attempt"], again["attempt"]],
        "same id": row["messageId"] == again["messageId"],
        "waited": waited >= 1,
        "sooner": waited < LONG_INVISIBLE_MS / 1000 - 5,
        "more": list_bodies(stage.receive_once(consumer)),
    }


# --- filters ------------------------------------------------------------------------------------------------------


def tags(stage: Stage) -> Facts:
    """A subscription to two tags gets these."""
    topic, group = stage.make_topic(), stage.make_group()
    consumer, producer = stage.start_push(group, topic, "a || c"), stage.start_producer(topic)
    stage.send(producer, *(message for tag in "abcd" for message in make_messages(topic, tag, tag=tag)))
    rows = stage.wait_for(consumer, lambda rows: len(rows) >= 2, "two messages")
    return {"came": list_bodies(rows)}


def sql(stage: Stage) -> Facts:
    """A subscription by SQL92 gets what it describes."""
    topic, group = stage.make_topic(), stage.make_group()
    consumer = stage.start_push(group, topic, "price > 5 AND region IN ('north', 'east')", "SQL")
    producer = stage.start_producer(topic)
    for number, (price, region) in enumerate([(3, "north"), (7, "north"), (9, "south"), (6, "east"), (5, "east")]):
        properties = {"price": str(price), "region": region}
        stage.send(producer, *make_messages(topic, f"m{number}", properties=properties))
    rows = stage.wait_for(consumer, lambda rows: len(rows) >= 2, "two messages")
    return {"came": list_bodies(rows)}


# --- accounts and TLS ---------------------------------------------------------------------------------------------


def secret(stage: Stage) -> Facts:
    """An account works with its secret and with no other one."""
    topic, group = stage.make_topic(), stage.make_group()
    consumer, producer = stage.start_simple(group, topic), stage.start_producer(topic)
    stage.send(producer, *make_messages(topic, "signed"))
    rows = stage.receive(consumer, 1)
    stage.ack(consumer, *rows)
    try:
        wrong = stage.start_producer(topic, account={"secretKey": "wrong"})
        stage.send(wrong, *make_messages(topic, "forged"))
        refused = "sent"
    except Refused as error:
        refused = find_code(error)
    return {"came": list_bodies(rows), "wrong": refused}


_ALL: Sequence[Callable[[Stage], Facts]] = (
    *(start, normal, fifo, fifo_failure, delay, recall, transaction, check_back, push, push_failure, dead_letter),
    *(members, renewal, simple_ack, simple_change, tags, sql, secret),
)
SCENARIOS: dict[str, Callable[[Stage], Facts]] = {each.__name__: each for each in _ALL} | {"tls": normal}
