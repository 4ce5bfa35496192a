"""The proofs of a handshake: each depends on everything that both sides know, and on nothing else."""

from __future__ import annotations

import hashlib
import hmac

import msgspec
import pytest

from eruca._ground.limits import HA_ACCOUNT_BYTES_MAX
from eruca._wire.handshake import (
    HANDSHAKE_MAGIC,
    Challenge,
    Introduction,
    Opening,
    Proof,
    Prover,
    check_proof,
    compute_proof,
    encode_handshake,
)
from eruca.errors import WireError

OPENING = Opening("broker-a", "members", bytes(range(32)), bytes(range(32, 64)))
SECRET = "a long secret"


def test_known_bytes() -> None:
    assert bytes.fromhex("7f45525543410002") == HANDSHAKE_MAGIC
    nonce = bytes(range(32))
    assert encode_handshake(Introduction(nonce, "m")) == b"\x05" + nonce + b"m"
    assert encode_handshake(Challenge(nonce)) == b"\x06" + nonce
    assert encode_handshake(Proof(nonce)) == b"\x07" + nonce


def test_a_proof_is_what_the_documentation_says() -> None:
    parts = [b"eruca replication handshake 1", b"slave", b"broker-a", b"members", *(bytes(range(64))[:32],)]
    parts.append(bytes(range(32, 64)))
    text = b"".join(len(part).to_bytes(2, "big") + part for part in parts)
    assert compute_proof(Prover.SLAVE, OPENING, SECRET) == hmac.new(SECRET.encode(), text, hashlib.sha256).digest()


@pytest.mark.parametrize(
    "other",
    [
        msgspec.structs.replace(OPENING, broker_name="broker-b"),
        msgspec.structs.replace(OPENING, account="member"),
        # The same characters, divided in another way.
        msgspec.structs.replace(OPENING, broker_name="broker-", account="amembers"),
        msgspec.structs.replace(OPENING, slave_nonce=OPENING.master_nonce, master_nonce=OPENING.slave_nonce),
        *(
            msgspec.structs.replace(
                OPENING, **{name: bytes(byte ^ (at == index) for at, byte in enumerate(getattr(OPENING, name)))}
            )
            for name in ("slave_nonce", "master_nonce")
            for index in range(32)
        ),
    ],
)
def test_a_proof_of_another_handshake_is_wrong(other: Opening) -> None:
    proof = compute_proof(Prover.SLAVE, OPENING, SECRET)
    assert check_proof(proof, Prover.SLAVE, OPENING, SECRET)
    assert not check_proof(proof, Prover.SLAVE, other, SECRET)


def test_a_proof_of_the_other_side_or_with_another_secret_is_wrong() -> None:
    proof = compute_proof(Prover.SLAVE, OPENING, SECRET)
    assert not check_proof(proof, Prover.MASTER, OPENING, SECRET)
    assert not check_proof(proof, Prover.SLAVE, OPENING, SECRET + " ")
    assert not check_proof(b"", Prover.SLAVE, OPENING, SECRET)


@pytest.mark.parametrize("index", range(32))
def test_a_proof_with_any_other_byte_is_wrong(index: int) -> None:
    proof = bytearray(compute_proof(Prover.MASTER, OPENING, SECRET))
    proof[index] ^= 0x80
    assert not check_proof(bytes(proof), Prover.MASTER, OPENING, SECRET)


@pytest.mark.parametrize("account", ["", "x" * (HA_ACCOUNT_BYTES_MAX + 1)])
def test_an_account_that_no_master_would_read_is_not_sent(account: str) -> None:
    with pytest.raises(WireError, match="account name"):
        encode_handshake(Introduction(bytes(32), account))
