"""Proofs of answers: with one, a slave knows that an answer is from a broker that knows the secret of its account.

Signatures prove who sends a request, but not who answers it. A request between members therefore has the field
`erucaNonce`, random hexadecimal digits, and its answer the field `erucaProof`: the HMAC-SHA256, keyed with the secret,
of these parts, each after its length in 4 bytes:
    label | account | nonce | request code | response code | remark | body | name, value of each other field, sorted
"""

from __future__ import annotations

import hmac
from typing import Final

from eruca._wire.command import Command

NONCE: Final = "erucaNonce"
PROOF: Final = "erucaProof"
_LABEL: Final = "eruca answer 1"


def compute_answer_proof(account: str, nonce: str, request_code: int, answer: Command, secret_key: str) -> str:
    """Compute the proof of an answer."""
    others = sorted((name, value) for name, value in answer.ext_dict().items() if name != PROOF)
    texts = [_LABEL, account, nonce, str(request_code), str(int(answer.code)), answer.remark or ""]
    parts = [text.encode("utf-8", "replace") for text in texts]
    parts.append(answer.body)
    parts += [text.encode("utf-8", "replace") for pair in others for text in pair]
    mac = hmac.new(secret_key.encode(), digestmod="sha256")
    for part in parts:
        mac.update(len(part).to_bytes(4, "big"))
        mac.update(part)
    return mac.hexdigest()


def check_answer_proof(account: str, nonce: str, request_code: int, answer: Command, secret_key: str) -> bool:
    """Check the proof of an answer, in a time that does not depend on where it differs."""
    given = answer.ext_dict().get(PROOF, "").encode("utf-8", "replace")
    return hmac.compare_digest(given, compute_answer_proof(account, nonce, request_code, answer, secret_key).encode())
