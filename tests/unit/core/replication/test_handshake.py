"""The handshake of both sides: every state with every event, and what an attacker between them can change."""

from __future__ import annotations

import copy
import zlib
from dataclasses import dataclass
from math import inf
from typing import Any

import pytest

from eruca._core.replication.handshake import (
    Action,
    Close,
    HandshakeState,
    Introduced,
    MasterEvent,
    MasterHandshake,
    Open,
    Send,
    SlaveHandshake,
    Tick,
    Unproven,
)
from eruca._ground.limits import HA_HANDSHAKE_SECONDS_MAX
from eruca._wire.handshake import Challenge, Introduction, Opening, Proof, Prover, compute_proof
from eruca._wire.replication import (
    FENCED_HEAD_BYTES,
    Chunk,
    FencedDecoder,
    FencedFrame,
    Hello,
    Refusal,
    Report,
    encode_fenced,
)
from eruca.errors import WireError
from tests.figures import note_figures
from tests.unit.core.replication.exploring import Reached, check_all

NAME, ACCOUNT, SECRET = "broker-a", "members", "the secret"
SLAVE_NONCE, MASTER_NONCE = b"s" * 32, b"m" * 32
OPENING = Opening(NAME, ACCOUNT, SLAVE_NONCE, MASTER_NONCE)
SLAVE_PROOF = Proof(compute_proof(Prover.SLAVE, OPENING, SECRET))
MASTER_PROOF = Proof(compute_proof(Prover.MASTER, OPENING, SECRET))
RIGHT = Introduced(Introduction(SLAVE_NONCE, ACCOUNT), SECRET)


def make_master(*, required: bool = True) -> MasterHandshake:
    return MasterHandshake(0.0, broker_name=NAME, nonce=MASTER_NONCE, required=required)


def make_slave(secret: str = SECRET, *, name: str = NAME, account: str = ACCOUNT) -> SlaveHandshake:
    return SlaveHandshake(broker_name=name, account=account, secret_key=secret, nonce=SLAVE_NONCE)


# --- every state with every event -----------------------------------------------------------------------------------

EVENTS: tuple[MasterEvent, ...] = (
    RIGHT,
    Introduced(Introduction(SLAVE_NONCE, ACCOUNT), None),
    Introduced(Introduction(b"x" * 32, ACCOUNT), SECRET),
    Introduced(Introduction(SLAVE_NONCE, "another"), SECRET),
    SLAVE_PROOF,
    MASTER_PROOF,
    Proof(bytes(32)),
    Unproven(),
    Tick(),
)
STEPS = (*((0.0, event) for event in EVENTS), *((pause, Tick()) for pause in (1.0, HA_HANDSHAKE_SECONDS_MAX)))


@dataclass
class Seen(Reached[MasterHandshake, MasterEvent]):
    """A state that was reached, and the last introduction before it."""

    introduced: Introduced | None = None
    is_required: bool = True

    def note(self, event: MasterEvent) -> None:
        if isinstance(event, Introduced) and self.introduced is None:
            self.introduced = event

    def fingerprint(self) -> tuple[object, ...]:
        secret = self.introduced and self.introduced.secret_key
        return self.link.state, self.introduced, secret, min(self.now, HA_HANDSHAKE_SECONDS_MAX)


def check_step(before: Seen, event: MasterEvent, actions: list[Action], after: Seen) -> None:
    old, link = before.link, after.link
    if old.state is HandshakeState.CLOSED:
        assert actions == [] and link.state is HandshakeState.CLOSED
        return
    # The end is told once, with a reason, and nothing with it.
    closes = [action for action in actions if isinstance(action, Close)]
    assert bool(closes) == (link.state is HandshakeState.CLOSED)
    if closes:
        assert actions == closes and closes[0].reason
    # It opens for the right proof of a known account and no other, or, where that is allowed, without a handshake.
    opens = Open() in actions
    assert opens == (link.state is HandshakeState.OPEN and old.state is not HandshakeState.OPEN)
    if opens and isinstance(event, Unproven):
        assert not before.is_required and old.state is HandshakeState.AWAITING and actions == [Open()]
        assert link.account is None
    elif opens:
        assert (old.state, before.introduced, event) == (HandshakeState.CHALLENGED, RIGHT, SLAVE_PROOF)
        assert before.introduced is not None and before.introduced.secret_key == SECRET
        assert actions == [Send(MASTER_PROOF), Open()] and link.account == ACCOUNT
    # Nothing made with the secret is sent before; whether an account exists does not show.
    sent = [action.frame for action in actions if isinstance(action, Send)]
    if isinstance(event, Introduced) and old.state is HandshakeState.AWAITING:
        assert sent == [Challenge(MASTER_NONCE)]
    elif not opens:
        assert sent == []
    # Once open, nothing of a handshake may come.
    if old.state is HandshakeState.OPEN:
        assert bool(closes) == (not isinstance(event, Tick))
    if isinstance(event, Tick):
        assert bool(closes) == (after.now >= old.wake_at)


def check_time(after: Seen) -> None:
    """Who does not go on is closed in time; an open link, and one that may come without, waits for nothing."""
    link = copy.copy(after.link)
    is_waiting = link.state is HandshakeState.CHALLENGED or (
        link.state is HandshakeState.AWAITING and after.is_required
    )
    assert (link.wake_at < inf) == is_waiting
    if is_waiting:
        link.handle(Tick(), link.wake_at)
        assert link.state is HandshakeState.CLOSED


@pytest.mark.parametrize("required", [False, True])
def test_all_states_and_events_of_a_master(required: bool) -> None:
    first = Seen(make_master(required=required), is_required=required)
    walk = check_all(first, STEPS, depth=5, check_step=check_step, check_time=check_time)
    states = set(HandshakeState) - {HandshakeState.PROVING}
    assert walk.met == {(state, type(event)) for state in states for event in EVENTS}
    note_figures(f"handshake, master's side: {walk.states} states, {walk.transitions} transitions, 5 events deep")


FRAMES: tuple[FencedFrame, ...] = (
    Challenge(MASTER_NONCE),
    Challenge(SLAVE_NONCE),
    MASTER_PROOF,
    SLAVE_PROOF,
    Proof(bytes(32)),
    Introduction(MASTER_NONCE, ACCOUNT),
    Refusal(0, "no"),
    Chunk(1, 0, 0, 0, 0, b"log"),
    Hello(1, 1, 0, 0, 0, ""),
    Report(1, 0),
)


def test_all_states_and_messages_of_a_slave() -> None:
    met = set()
    waiting: list[tuple[FencedFrame, ...]] = [()]
    while waiting:
        path = waiting.pop()
        for frame in FRAMES:
            link = make_slave()
            for earlier in path:
                link.handle(earlier)
            before = link.state
            met.add((before, type(frame)))
            actions = link.handle(frame)
            if before is HandshakeState.CLOSED:
                assert actions == [] and link.state is before
            elif before is HandshakeState.AWAITING and isinstance(frame, Challenge):
                opening = Opening(NAME, ACCOUNT, SLAVE_NONCE, frame.nonce)
                assert actions == [Send(Proof(compute_proof(Prover.SLAVE, opening, SECRET)))]
            elif before is HandshakeState.PROVING and frame == MASTER_PROOF and path[0] == FRAMES[0]:
                assert actions == [Open()] and link.state is HandshakeState.OPEN
            else:
                (action,) = actions
                assert isinstance(action, Close) and action.reason and link.state is HandshakeState.CLOSED
            if len(path) < 3:
                waiting.append((*path, frame))
    states = set(HandshakeState) - {HandshakeState.CHALLENGED}
    assert met == {(state, type(frame)) for state in states for frame in FRAMES}


# --- both together --------------------------------------------------------------------------------------------------


def reseal(frame: bytes) -> bytes:
    """Make the checksum right again."""
    content = frame[FENCED_HEAD_BYTES:]
    return frame[:4] + zlib.crc32(content).to_bytes(4, "big") + content


def shake(slave: SlaveHandshake, change: Any = None, secret: str | None = SECRET) -> tuple[bool, bool, list[bytes]]:
    """Run a handshake; `change` gets the number and the bytes of every message. Returns who considers it open."""
    master = make_master()
    sent: list[bytes] = []

    def carry(frame: FencedFrame) -> FencedFrame | None:
        data = encode_fenced(frame)
        sent.append(data)
        try:
            frames = FencedDecoder().feed(change(len(sent) - 1, data) if change else data)
        except WireError:
            return None
        return frames[0] if frames else None

    to_master: list[FencedFrame] = [slave.introduction]
    while to_master:
        frame = carry(to_master.pop(0))
        if isinstance(frame, Introduction):
            event: MasterEvent = Introduced(frame, secret if frame.account == ACCOUNT else None)
        elif isinstance(frame, Proof):
            event = frame
        else:
            break
        for action in master.handle(event, 0.0):
            if isinstance(action, Send) and (arrived := carry(action.frame)) is not None:
                to_master += [step.frame for step in slave.handle(arrived) if isinstance(step, Send)]
    return slave.state is HandshakeState.OPEN, master.state is HandshakeState.OPEN, sent


def test_both_sides_open_with_the_same_secret() -> None:
    assert shake(make_slave())[:2] == (True, True)


@pytest.mark.parametrize(
    "slave",
    [make_slave("another secret"), make_slave(name="broker-b"), make_slave(account="nobody")],
    ids=["secret", "broker name", "account"],
)
def test_neither_side_opens_otherwise(slave: SlaveHandshake) -> None:
    is_slave_open, is_master_open, sent = shake(slave)
    assert not is_slave_open and not is_master_open
    # The master has sent nothing that was made with its secret.
    assert len(sent) == 3


@pytest.mark.parametrize("sealed", [False, True])
def test_no_changed_byte_of_any_message_lets_anybody_in(sealed: bool) -> None:
    whole = shake(make_slave())[2]
    assert len(whole) == 4
    for number, frame in enumerate(whole):
        for index in range(FENCED_HEAD_BYTES if sealed else 0, len(frame)):
            for bit in (0x01, 0x80):

                def change(at: int, data: bytes, number: int = number, index: int = index, bit: int = bit) -> bytes:
                    if at != number:
                        return data
                    changed = bytearray(data)
                    changed[index] ^= bit
                    return reseal(bytes(changed)) if sealed else bytes(changed)

                is_slave_open, is_master_open, _ = shake(make_slave(), change)
                assert not is_slave_open
                # The last message is the master's: it does not learn what happens to it.
                assert is_master_open == (number == 3)


def test_a_recorded_handshake_opens_no_other() -> None:
    _, _, sent = shake(make_slave())
    introduction, proof = (FencedDecoder().feed(sent[number])[0] for number in (0, 2))
    assert isinstance(introduction, Introduction) and isinstance(proof, Proof)
    master = MasterHandshake(0.0, broker_name=NAME, nonce=b"n" * 32, required=True)
    master.handle(Introduced(introduction, SECRET), 0.0)
    assert isinstance(master.handle(proof, 0.0)[0], Close)


def test_a_proof_sent_back_to_its_author_is_wrong() -> None:
    slave = make_slave()
    (sent,) = slave.handle(Challenge(SLAVE_NONCE))
    assert isinstance(sent, Send)
    assert isinstance(slave.handle(sent.frame)[0], Close)


def test_no_secret_shows() -> None:
    assert SECRET not in f"{RIGHT!r} {make_slave()!r} {make_slave().introduction!r}"
