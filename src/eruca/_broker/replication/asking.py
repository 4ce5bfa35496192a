"""Asking another broker how it stands to the others of its name."""

from __future__ import annotations

import zlib

from eruca._net.caller import Caller
from eruca._wire.bodies import ReplicationState
from eruca._wire.catalog import decode_answer
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.headers import ReplicationStateHeader
from eruca.errors import RequestRefused, WireError

_CALL_MS = 5000


def seal(body: bytes) -> str:
    """What stands beside a state, so that a slave does not cut its log because a digit changed on its way."""
    return f"crc32 {zlib.crc32(body)}"


async def ask_state(
    caller: Caller, address: str, timeout_ms: int = _CALL_MS, *, check: tuple[int, int] = (0, 0)
) -> ReplicationState | None:
    """How a broker stands to the others of its name; None when it is not an Eruca. Raises ErucaError.

    `check` is a part of the log whose CRC is wanted too.
    """
    command = make_request(RequestCode.REPLICATION_STATE, ReplicationStateHeader(*check))
    answer = await caller.call(address, command, timeout_ms)
    # The words too: a digit that changed on its way must not make a Java broker of it.
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and (answer.remark or "").endswith("not supported"):
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(answer.code, f"broker {address} does not tell its state: {answer.remark}")
    if answer.remark != seal(answer.body):
        raise WireError(f"what broker {address} said of its state is damaged")
    state = decode_answer(RequestCode.REPLICATION_STATE, answer)[1]
    if not isinstance(state, ReplicationState):
        raise WireError(f"broker {address} answers without its state")
    return state
