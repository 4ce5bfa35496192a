"""The proof of an answer depends on all of it, and on the request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eruca._wire.answerproof import PROOF, check_answer_proof, compute_answer_proof
from eruca._wire.frame import Command, FrameBuffer, encode_command

NONCE = "ab" * 32


def make_answer() -> Command:
    answer = Command(0, remark="crc32 7", body=b'{"tail":5}', ext={"erucaTimer": "9", "a": "b"})
    proof = compute_answer_proof("members", NONCE, 90101, answer, "secret")
    answer.ext = {"erucaTimer": "9", "a": "b", PROOF: proof}
    return answer


def check(answer: Command, *, account: str = "members", nonce: str = NONCE, code: int = 90101) -> bool:
    return check_answer_proof(account, nonce, code, answer, "secret")


def test_an_answer_is_proved_after_its_way_through_the_network() -> None:
    (answer,) = FrameBuffer().feed(encode_command(make_answer()))
    assert check(answer)
    assert not check_answer_proof("members", NONCE, 90101, answer, "another secret")
    assert not check(answer, account="member") and not check(answer, nonce="00") and not check(answer, code=21)


def change_ext(answer: Command, **fields: str) -> None:
    answer.ext = {**answer.ext_dict(), **fields}


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: setattr(answer, "code", 1),
        lambda answer: setattr(answer, "remark", "crc32 8"),
        lambda answer: setattr(answer, "remark", None),
        lambda answer: setattr(answer, "body", b'{"tail":6}'),
        lambda answer: setattr(answer, "ext", None),
        lambda answer: change_ext(answer, erucaTimer="8"),
        lambda answer: change_ext(answer, more=""),
        lambda answer: change_ext(answer, **{PROOF: "é"}),
        lambda answer: change_ext(answer, **{PROOF: ""}),
    ],
)
def test_a_changed_answer_is_not_proved(change: Callable[[Command], None]) -> None:
    answer = make_answer()
    assert check(answer)
    change(answer)
    assert not check(answer)
