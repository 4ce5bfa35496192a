"""A small form of `make torture ONLY=pop-kills`."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import Header, PopMessageAnswerHeader
from eruca._wire.record import Record, encode_record
from eruca.errors import ConnectionLost
from tests.torture import popkills
from tests.torture.popkills import Client, Ledger, consume, run


class OneMessage(Client):
    """A broker that delivers one message; the answer to its acknowledgement is what the test says."""

    def __init__(self, code: int | None) -> None:
        super().__init__("nowhere")
        self._code = code

    async def ask(self, code: int, header: Header | None, body: object = None) -> Command:
        request = make_request(code)
        if code == RequestCode.POP_MESSAGE:
            record = Record(popkills.TOPIC, 0, 0, b"1", born_timestamp=1)
            answer = PopMessageAnswerHeader(1, 2000, 0, 0, "0 0 0")
            return request.answer(ResponseCode.SUCCESS, answer, encode_record(record))
        if self._code is None:
            raise ConnectionLost("killed")
        return request.answer(self._code)


def test_nothing_acknowledged_comes_again(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    ledger = asyncio.run(run(3, seed, tmp_path))
    assert ledger.list_violations() == []
    assert ledger.kills == 3
    assert len(ledger.acked) > 50


def test_what_goes_wrong_is_named() -> None:
    ledger = Ledger(sent={b"1": 0.0, b"3": 0.0}, again=[b"2"])
    ledger.deliveries[b"3"] += 1
    assert [text.split(":")[0] for text in ledger.list_violations()] == [
        "1 messages were never delivered",
        "1 did not come again",
        "1 came after their acknowledgement",
    ]


def test_an_acknowledgement_without_an_answer_may_be_kept() -> None:
    ledger = Ledger(sent={b"1": 0.0})
    with pytest.raises(ConnectionLost):
        asyncio.run(consume(OneMessage(None), ledger, random.Random(1), forgets=0.0))
    assert ledger.deliveries == {b"1": 1}
    assert not ledger.acked
    assert ledger.list_violations() == []


def test_an_acknowledgement_answered_late_may_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.5, 2.5])
    monkeypatch.setattr(popkills, "time", SimpleNamespace(monotonic=lambda: next(times)))
    ledger = Ledger(sent={b"1": 0.0})
    asyncio.run(consume(OneMessage(ResponseCode.SUCCESS), ledger, random.Random(1), forgets=0.0))
    assert not ledger.acked
    assert ledger.list_violations() == []


def test_an_acknowledgement_that_is_not_synced_may_be_kept() -> None:
    ledger = Ledger(sent={b"1": 0.0})
    asyncio.run(consume(OneMessage(ResponseCode.FLUSH_DISK_TIMEOUT), ledger, random.Random(1), forgets=0.0))
    assert not ledger.acked
    assert ledger.list_violations() == []


@pytest.mark.parametrize(("code", "forgets"), [(ResponseCode.SYSTEM_ERROR, 0.0), (ResponseCode.SUCCESS, 1.1)])
def test_what_is_not_acknowledged_has_to_come_again(code: int, forgets: float) -> None:
    ledger = Ledger(sent={b"1": 0.0})
    asyncio.run(consume(OneMessage(code), ledger, random.Random(1), forgets=forgets))
    assert [text.split(":")[0] for text in ledger.list_violations()] == ["1 did not come again"]
