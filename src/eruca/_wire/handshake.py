"""The handshake of a replication link: two brokers prove to each other that they know the secret of one account.

The slave opens with 8 bytes of its own; then both send frames, framed like those of a fenced link (`replication`):
    kind 1 | fields   | rest
    5      | nonce 32 | account      introduction   slave to master
    6      | nonce 32 |              challenge      master to slave
    7      | mac 32   |              proof          first the slave, then the master

A proof is the HMAC-SHA256, keyed with the secret, of these parts, each after its length in 2 bytes:
    label | role of the prover | broker name | account | nonce of the slave | nonce of the master
The nonces are new on every connection, so a recorded handshake proves nothing; the role keeps a proof from being sent
back to its author. The slave proves first: a stranger that connects to a master gets nothing made with the secret.
"""

from __future__ import annotations

import hmac
import struct
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from eruca._ground.limits import HA_ACCOUNT_BYTES_MAX
from eruca.errors import WireError

#: The first bytes of a slave that authenticates. To a broker without the handshake they are a position beyond any log.
HANDSHAKE_MAGIC: Final = b"\x7fERUCA\x00\x02"

NONCE_BYTES: Final = 32
MAC_BYTES: Final = 32
HANDSHAKE_KINDS: Final = frozenset({5, 6, 7})
_INTRODUCTION, _CHALLENGE, _PROOF = sorted(HANDSHAKE_KINDS)
_FIELDS: Final = struct.Struct(f">B{NONCE_BYTES}s")
_LABEL: Final = b"eruca replication handshake 1"


class Introduction(msgspec.Struct, gc=False, frozen=True):
    """A slave names its account, and asks the master for a challenge."""

    nonce: bytes
    account: str


class Challenge(msgspec.Struct, gc=False, frozen=True):
    """A master's nonce, for which the slave has to compute a proof."""

    nonce: bytes


class Proof(msgspec.Struct, gc=False, frozen=True):
    """The proof of one side that it knows the secret."""

    mac: bytes


HandshakeFrame: TypeAlias = Introduction | Challenge | Proof


class Prover(Enum):
    """The side whose proof it is."""

    MASTER = b"master"
    SLAVE = b"slave"


class Opening(msgspec.Struct, gc=False, frozen=True):
    """What both sides of a handshake know: the broker name, the account, and both nonces."""

    broker_name: str
    account: str
    slave_nonce: bytes
    master_nonce: bytes


def compute_proof(prover: Prover, opening: Opening, secret_key: str) -> bytes:
    """Compute the proof of one side."""
    names = opening.broker_name.encode(), opening.account.encode()
    parts = (_LABEL, prover.value, *names, opening.slave_nonce, opening.master_nonce)
    text = b"".join([len(part).to_bytes(2, "big") + part for part in parts])
    return hmac.digest(secret_key.encode(), text, "sha256")


def check_proof(mac: bytes, prover: Prover, opening: Opening, secret_key: str) -> bool:
    """Check a proof, in a time that does not depend on where it differs."""
    return hmac.compare_digest(mac, compute_proof(prover, opening, secret_key))


def encode_handshake(frame: HandshakeFrame) -> bytes:
    """Encode the content of a frame: its kind, its fields and the rest."""
    match frame:
        case Introduction(nonce, account):
            text = account.encode()
            if not 0 < len(text) <= HA_ACCOUNT_BYTES_MAX:
                raise WireError(f"an account name of {len(text)} bytes: at most {HA_ACCOUNT_BYTES_MAX}")
            return _FIELDS.pack(_INTRODUCTION, nonce) + text
        case Challenge(nonce):
            return _FIELDS.pack(_CHALLENGE, nonce)
        case Proof(mac):
            return _FIELDS.pack(_PROOF, mac)


def decode_handshake(content: memoryview) -> HandshakeFrame:
    """Decode the content of a frame whose kind is one of the handshake's. Raises WireError."""
    rest_max = HA_ACCOUNT_BYTES_MAX if content[0] == _INTRODUCTION else 0
    if not 0 <= len(content) - _FIELDS.size <= rest_max:
        raise WireError(f"a replication frame of kind {content[0]} has {len(content)} bytes")
    kind, field = _FIELDS.unpack_from(content)
    if kind == _CHALLENGE:
        return Challenge(field)
    if kind == _PROOF:
        return Proof(field)
    try:
        account = str(content[_FIELDS.size :], "utf-8")
    except UnicodeDecodeError as error:
        raise WireError("the account of a slave is not UTF-8") from error
    # It ends up in the log of the master.
    if not account or not account.isprintable():
        raise WireError("a slave introduces itself without a printable account")
    return Introduction(field, account)
