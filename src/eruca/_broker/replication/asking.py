"""Requests to another member of this broker's name, whose answers have to be those of a member."""

from __future__ import annotations

import secrets
import zlib
from dataclasses import dataclass

from eruca._broker.replication.membership import Membership
from eruca._ground.limits import BODY_BYTES_AT_ONCE
from eruca._net.apart import run_apart
from eruca._net.caller import Caller
from eruca._wire.answerproof import NONCE
from eruca._wire.bodies import ReplicationState
from eruca._wire.catalog import decode_answer
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command, make_request
from eruca._wire.handshake import NONCE_BYTES
from eruca._wire.headers import ReplicationStateHeader
from eruca.errors import RequestRefused, WireError

_CALL_MS = 5000


def seal(body: bytes) -> str:
    """Return the checksum sent with a state, so that a slave does not cut its log because of a corrupted digit."""
    return f"crc32 {zlib.crc32(body)}"


@dataclass(frozen=True, slots=True)
class MemberCaller:
    """Calls other members."""

    #: For requests to others, and for answers of Java brokers.
    plain: Caller
    _membership: Membership

    async def call(self, address: str, command: Command, timeout_ms: int) -> Command:
        """Send a request to a member and return its response. Raises NetError, also if it is not from a member."""
        nonce = secrets.token_hex(NONCE_BYTES)
        if self._membership.credentials is not None:
            command.ext = {**command.ext_dict(), NONCE: nonce}
        answer = await self.plain.call(address, command, timeout_ms)
        # A refusal changes nothing, whoever it is from.
        if answer.code == ResponseCode.SUCCESS:
            told = nonce, command.code, answer, address
            if len(answer.body) > BODY_BYTES_AT_ONCE:
                await run_apart(self._membership.check_answer, *told)
            else:
                self._membership.check_answer(*told)
        return answer


async def ask_state(
    caller: MemberCaller, address: str, timeout_ms: int = _CALL_MS, *, check: tuple[int, int] = (0, 0)
) -> ReplicationState | None:
    """Return the replication state of a broker; None if it is not an Eruca broker. Raises ErucaError.

    `check` is a part of the log whose CRC is requested too.
    """
    command = make_request(RequestCode.REPLICATION_STATE, ReplicationStateHeader(*check))
    answer = await caller.call(address, command, timeout_ms)
    # Check the remark too: a corrupted digit in the code must not make it look like a Java broker.
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and (answer.remark or "").endswith("not supported"):
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(answer.code, f"broker {address} did not return its state: {answer.remark}")
    if answer.remark != seal(answer.body):
        raise WireError(f"the state returned by broker {address} is corrupted")
    state = decode_answer(RequestCode.REPLICATION_STATE, answer)[1]
    if not isinstance(state, ReplicationState):
        raise WireError(f"broker {address} responded without its state")
    return state
