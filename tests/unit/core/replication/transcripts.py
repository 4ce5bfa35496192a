"""Scenario files: a conversation with one machine, as text that can be read without the code.

    # comments, then the parameters of the machine
    primary epoch=5 start=0 tail=1000
    at 0.0 report position=0          an event
      heartbeat 0                     the resulting actions, one per line; none: nothing

A file is right when replaying its events produces the same file again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from eruca._core.replication import handshake, primary, replica
from eruca._core.replication.handshake import MasterHandshake, SlaveHandshake
from eruca._core.replication.primary import LinkLimits, PrimaryLink
from eruca._core.replication.replica import ReplicaLimits, ReplicaLink
from eruca._wire.handshake import Challenge, Introduction, Opening, Proof, Prover, compute_proof
from eruca._wire.replication import Hello, Refusal
from tests.unit.core.replication.chunks import make_chunk

Handle = Callable[[Any, float], list[Any]]


def make_primary(given: dict[str, int]) -> Handle:
    """The master's side. Small numbers unless the file sets others."""
    begin = {name: given.pop(name, default) for name, default in (("epoch", 0), ("start", 0), ("tail", 0))}
    sizes = {"segment_bytes": 1000, "transfer_bytes": 400, "fenced_transfer_bytes": 600, "live_bytes": 500}
    limits = LinkLimits(**{**sizes, **given})  # type: ignore[arg-type]
    return PrimaryLink(limits, 0.0, **begin).handle


def make_replica(given: dict[str, int]) -> Handle:
    """The slave's side."""
    seen_epoch = given.pop("seen_epoch", 0)
    return ReplicaLink(ReplicaLimits(**given), 0.0, seen_epoch=seen_epoch).handle  # type: ignore[arg-type]


def make_hello(epoch: int, position: int, check_begin: int | None = None) -> primary.HelloReceived:
    """A slave's hello; without a begin it has nothing to compare."""
    begin = position if check_begin is None else check_begin
    return primary.HelloReceived(Hello(epoch, 1, position, begin, 99, "slave:10911"))


_OPENING: Final = Opening("broker-a", "members", b"s" * 32, b"m" * 32)


def make_gate(given: dict[str, int]) -> Handle:
    """The master's side of the handshake."""
    required = bool(given.pop("required", 1))
    return MasterHandshake(0.0, broker_name="broker-a", nonce=b"m" * 32, required=required).handle


def make_visitor(given: dict[str, int]) -> Handle:
    """The slave's side of the handshake; it knows no time."""
    slave = SlaveHandshake(broker_name="broker-a", account="members", secret_key="secret", nonce=b"s" * 32)
    return lambda frame, now: slave.handle(frame)


def make_introduction(known: int = 1) -> handshake.Introduced:
    """A slave's introduction, with the name of an account that exists or does not."""
    return handshake.Introduced(Introduction(b"s" * 32, "members"), "secret" if known else None)


def make_proof(prover: Prover, right: int = 1) -> Proof:
    """A proof of one side, made with the secret or with another one."""
    return Proof(compute_proof(prover, _OPENING, "secret" if right else "guessed"))


MACHINES: Final[dict[str, Callable[[dict[str, int]], Handle]]] = {
    "primary": make_primary,
    "replica": make_replica,
    "gate": make_gate,
    "visitor": make_visitor,
}
EVENTS: Final[dict[str, dict[str, Callable[..., Any]]]] = {
    "primary": {
        "hello": make_hello,
        "report": primary.ReportReceived,
        "checked": lambda same: primary.CheckAnswered(bool(same)),
        "log": primary.LogGrew,
        "blocked": primary.Blocked,
        "drained": primary.Drained,
        "tick": primary.Tick,
    },
    "replica": {
        "connected": replica.Connected,
        "chunk": lambda position, size=0, epoch=None, confirmed=0, tail=0: make_chunk(
            position, bytes(size), epoch, confirmed=confirmed, tail=tail
        ),
        "appended": lambda tail, flushed=0: replica.Appended(tail, flushed),
        "refused": lambda: Refusal(0, "because"),
        "tick": replica.Tick,
        "lost": lambda: replica.Lost("reset"),
    },
    "gate": {
        "introduction": make_introduction,
        "proof": lambda right=1: make_proof(Prover.SLAVE, right),
        "unproven": handshake.Unproven,
        "tick": handshake.Tick,
    },
    "visitor": {
        "challenge": lambda: Challenge(b"m" * 32),
        "proof": lambda right=1: make_proof(Prover.MASTER, right),
        "refused": lambda: Refusal(0, "because"),
        "chunk": lambda position, size: make_chunk(position, bytes(size), 5, tail=position + size),
    },
}


def describe(action: Any) -> str:
    """Write an action as a scenario file has it."""
    match action:
        case primary.CheckPrefix(position, begin, crc):
            return f"compare {begin}..{position} crc {crc}"
        case primary.SendChunk(position, size):
            return f"send {position}..{position + size}"
        case primary.SendHeartbeat(position):
            return f"heartbeat {position}"
        case primary.Confirm(position):
            return f"confirmed {position}"
        case replica.SendHello(epoch, position):
            return f"hello epoch {epoch} position {position}"
        case replica.SendReport(position):
            return f"report {position}"
        case replica.Append(position, data):
            return f"append {position}..{position + len(data)}"
        case replica.Reconnect(at):
            return f"reconnect at {at}"
        case handshake.Send(frame):
            return f"send {type(frame).__name__.lower()}"
        case handshake.Open():
            return "open"
        case primary.Close(reason) | replica.Close(reason) | handshake.Close(reason):
            return f"close: {reason}"
    raise AssertionError(f"no words for {action}")


def read_values(words: list[str]) -> dict[str, int]:
    """Read `name=number` words."""
    return {name: int(value) for name, _, value in (word.partition("=") for word in words)}


def replay(text: str) -> str:
    """Feed a scenario's events to a machine; returns the scenario with the machine's actions."""
    return "".join(line + "\n" for line in _replay_lines(text))


def _replay_lines(text: str) -> Iterator[str]:
    kind, handle = "", None
    for line in text.splitlines():
        words = line.split()
        if not words or words[0] == "#":
            yield line
        elif words[0] in MACHINES:
            kind = words[0]
            handle = MACHINES[kind](read_values(words[1:]))
            yield line
        elif words[0] == "at":
            assert handle is not None, "no machine before the first event"
            yield line
            event = EVENTS[kind][words[2]](**read_values(words[3:]))
            yield from (f"  {describe(action)}" for action in handle(event, float(words[1])))
        else:
            # An expected action: the machine has to produce it itself.
            assert line.startswith("  "), f"not a line of a scenario: {line}"
