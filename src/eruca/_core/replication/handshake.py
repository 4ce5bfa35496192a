"""The handshake before a replication link, where brokers authenticate each other: a machine for each side.

Nothing that a slave sends counts, and nothing of the log is sent, before the handshake is open.

    master   awaiting ---- introduction ----> challenged ---- the slave's proof is right ---> open
                 |                                |
                 +-- a link without handshake     +-- wrong proof, something else, too late -> closed
                       not required -> open
                       required -----> closed

    slave    introduced ---- challenge ----> proving ---- the master's proof is right ----> open
                 +------ a refusal, or anything else -> closed
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final, TypeAlias

import msgspec

from eruca._ground.limits import HA_HANDSHAKE_SECONDS_MAX
from eruca._wire.handshake import (
    Challenge,
    HandshakeFrame,
    Introduction,
    Opening,
    Proof,
    Prover,
    check_proof,
    compute_proof,
)
from eruca._wire.replication import FencedFrame, Refusal

_WRONG: Final = "authentication failed: the account does not exist, or its secret is a different one"

# --- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Introduced:
    """A slave introduced itself; the secret is that of its account, None if no such account may replicate."""

    introduction: Introduction
    secret_key: str | None = field(default=None, repr=False)


class Unproven(msgspec.Struct, frozen=True, gc=False):
    """The first message of a link without handshake: of a Java slave, or of an Eruca without an account."""


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed."""


MasterEvent: TypeAlias = Introduced | Proof | Unproven | Tick


# --- actions ------------------------------------------------------------------------------------------------------


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a message of the handshake."""

    frame: HandshakeFrame


class Open(msgspec.Struct, frozen=True, gc=False):
    """The link may begin."""


class Close(msgspec.Struct, frozen=True, gc=False):
    """End the connection; the other side is told why."""

    reason: str


Action: TypeAlias = Send | Open | Close


class HandshakeState(Enum):
    """The state of a handshake."""

    AWAITING = "waiting for the first message"
    CHALLENGED = "waiting for the proof of the slave"
    PROVING = "waiting for the proof of the master"
    OPEN = "the link has begun"
    CLOSED = "is over"


class MasterHandshake:
    """The master's side: whether a connection is that of a member."""

    def __init__(
        self, now: float, *, broker_name: str, nonce: bytes, required: bool, certified: str | None = None
    ) -> None:
        """`nonce` is random, and of this connection only; `required`: nobody is let in without authentication.

        `certified` is the account that the slave has proved by a certificate; then it needs no handshake.
        """
        self._broker_name = broker_name
        self._nonce = nonce
        self._is_required = required and certified is None
        self._certified = certified
        self._end_at = now + HA_HANDSHAKE_SECONDS_MAX
        self._introduction: Introduction | None = None
        self._secret_key: str | None = None
        self.state = HandshakeState.AWAITING

    @property
    def account(self) -> str | None:
        """The account that the slave has proved to have, or None."""
        if self.state is HandshakeState.OPEN and self._introduction is not None:
            return self._introduction.account
        return self._certified

    @property
    def wake_at(self) -> float:
        """When a Tick is due; infinite if time does not matter."""
        is_waiting = self.state is HandshakeState.CHALLENGED or (
            self.state is HandshakeState.AWAITING and self._is_required
        )
        return self._end_at if is_waiting else inf

    def handle(self, event: MasterEvent, now: float) -> list[Action]:
        """Process an event; returns the actions to take, in order."""
        if self.state is HandshakeState.CLOSED:
            return []
        match event:
            case Tick():
                late = now >= self.wake_at
                return self._close(f"it did not authenticate within {HA_HANDSHAKE_SECONDS_MAX:g} s") if late else []
            case Introduced(introduction, secret_key) if self.state is HandshakeState.AWAITING:
                self.state = HandshakeState.CHALLENGED
                self._introduction, self._secret_key = introduction, secret_key
                # An unknown account is challenged too: a stranger must not find out which ones exist.
                return [Send(Challenge(self._nonce))]
            case Proof(mac) if self.state is HandshakeState.CHALLENGED:
                return self._take_proof(mac)
            case Unproven() if self.state is HandshakeState.AWAITING and not self._is_required:
                self.state = HandshakeState.OPEN
                return [Open()]
            case Unproven() if self.state is HandshakeState.AWAITING:
                return self._close("it does not authenticate, which this master requires (aclEnable)")
            case Introduced() | Proof() | Unproven():
                return self._close(f"an unexpected message of the handshake ({self.state.value})")

    def _take_proof(self, mac: bytes) -> list[Action]:
        introduction, secret_key = self._introduction, self._secret_key
        self._secret_key = None
        if introduction is None or secret_key is None:
            return self._close(_WRONG)
        opening = Opening(self._broker_name, introduction.account, introduction.nonce, self._nonce)
        if not check_proof(mac, Prover.SLAVE, opening, secret_key):
            return self._close(_WRONG)
        self.state = HandshakeState.OPEN
        return [Send(Proof(compute_proof(Prover.MASTER, opening, secret_key))), Open()]

    def _close(self, reason: str) -> list[Action]:
        self.state = HandshakeState.CLOSED
        return [Close(reason)]


class SlaveHandshake:
    """The slave's side: whether it is connected to a master of its own account."""

    def __init__(self, *, broker_name: str, account: str, secret_key: str, nonce: bytes) -> None:
        """`nonce` is random, and of this connection only."""
        self._broker_name = broker_name
        self._secret_key = secret_key
        self._opening: Opening | None = None
        #: The first message of the slave.
        self.introduction = Introduction(nonce, account)
        self.state = HandshakeState.AWAITING

    def handle(self, frame: FencedFrame) -> list[Action]:
        """Process a message of the master; returns the actions to take, in order."""
        if self.state is HandshakeState.CLOSED:
            return []
        match frame:
            case Challenge(nonce) if self.state is HandshakeState.AWAITING:
                account, own = self.introduction.account, self.introduction.nonce
                self._opening = Opening(self._broker_name, account, own, nonce)
                self.state = HandshakeState.PROVING
                return [Send(Proof(compute_proof(Prover.SLAVE, self._opening, self._secret_key)))]
            case Proof(mac) if self.state is HandshakeState.PROVING and self._opening is not None:
                if not check_proof(mac, Prover.MASTER, self._opening, self._secret_key):
                    return self._close("the master could not prove that it knows the secret of the account")
                self.state = HandshakeState.OPEN
                return [Open()]
            case Refusal(_, reason):
                return self._close(f"the master refused the link: {reason}")
            case _:
                return self._close(f"the master sent an unexpected message ({self.state.value})")

    def _close(self, reason: str) -> list[Action]:
        self.state = HandshakeState.CLOSED
        return [Close(reason)]
