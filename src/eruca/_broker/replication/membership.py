"""How the members of a broker name authenticate each other: on replication links, and with their requests.

They share an account. Requests are signed with it by the `Caller`; answers to members are proved with it here, and a
replication link starts with a handshake (`core.replication.handshake`). Where accounts are enabled, a broker that does
not authenticate is neither copied from nor copied to, unless the configuration allows it.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable
from typing import Final

from eruca._access.control import AccessControl
from eruca._core.replication.handshake import MasterHandshake, SlaveHandshake
from eruca._ground.limits import BODY_BYTES_AT_ONCE
from eruca._net.answers import InOrder, LongAnswer
from eruca._net.apart import run_apart
from eruca._net.handlers import HandlerTable
from eruca._net.link import Answer, Handler, Link
from eruca._wire.answerproof import NONCE, PROOF, check_answer_proof, compute_answer_proof
from eruca._wire.codes import RequestCode
from eruca._wire.frame import Command, FrameBuffer, encode_command
from eruca._wire.handshake import NONCE_BYTES
from eruca._wire.signature import ACCESS_KEY
from eruca.errors import NetError

#: The requests of a slave to its master: their answers change what the slave has.
_PROVED: Final = (
    RequestCode.REPLICATION_STATE,
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
)
_NO_ACCOUNT: Final = "this broker has no account (brokerAccessKey)"
_HINT: Final = (
    "set the same brokerAccessKey and brokerSecretKey on both; for a Java broker, which cannot authenticate, set"
    " haAllowUnauthenticated=true"
)


class Membership:
    """What a broker needs to authenticate itself and others; without accounts, everybody is believed."""

    def __init__(
        self, broker_name: str, access: AccessControl, *, allow_strangers: bool = False, verifies_tls: bool = False
    ) -> None:
        """`allow_strangers`: brokers need not authenticate although there are accounts. `verifies_tls`: connections to
        other brokers are TLS, both sides show a certificate, and it is verified.
        """
        self._broker_name = broker_name
        self._access = access
        self._verifies_tls = verifies_tls
        #: The account of this broker.
        self.credentials = access.options.credentials
        # Only brokers that authenticate are members.
        self._is_required = access.is_on and not allow_strangers

    @property
    def can_authenticate(self) -> bool:
        """Whether this broker can authenticate a slave."""
        return self._access.is_on or self.credentials is not None

    def find_secret(self, account: str, certificate: str | None) -> str | None:
        """Return the secret of an account that may replicate on a connection with this certificate, or None."""
        if self._access.is_on:
            return self._access.find_broker_secret(account, certificate)
        own = self.credentials
        return own.secret_key if own is not None and own.access_key == account else None

    # -- links -------------------------------------------------------------------------------------------------------

    def expect_slave(self, now: float, certificate: str | None = None) -> MasterHandshake:
        """Begin the handshake of a connection to this master; the certificate of a broker is as good as a proof."""
        return MasterHandshake(
            now,
            broker_name=self._broker_name,
            nonce=secrets.token_bytes(NONCE_BYTES),
            required=self._is_required,
            certified=self._access.find_certified_broker(certificate),
        )

    def approach_master(self, address: str, *, can_authenticate: bool) -> SlaveHandshake | None:
        """Begin the handshake with an Eruca; None for a link without. Raises NetError if that is not allowed."""
        own = self.credentials
        if own is None or not can_authenticate:
            if self._is_required and not self._verifies_tls:
                why = _NO_ACCOUNT if own is None else "it does not authenticate"
                raise NetError(f"the log of the master at {address} is not copied: {why}", hint=_HINT)
            return None
        return SlaveHandshake(
            broker_name=self._broker_name,
            account=own.access_key,
            secret_key=own.secret_key,
            nonce=secrets.token_bytes(NONCE_BYTES),
        )

    def approach_java(self, address: str) -> None:
        """Raise NetError unless a Java broker, whose link has neither a handshake nor TLS, may be followed."""
        if self._is_required:
            raise NetError(
                f"the log of the Java broker at {address} is not copied: it does not authenticate", hint=_HINT
            )

    # -- requests ----------------------------------------------------------------------------------------------------

    def check_answer(self, nonce: str, code: int, answer: Command, address: str) -> None:
        """Check that a successful answer is from a member. Raises NetError."""
        own, who = self.credentials, f"a member of {self._broker_name}"
        if own is not None and PROOF in answer.ext_dict():
            if not check_answer_proof(own.access_key, nonce, code, answer, own.secret_key):
                raise NetError(f"the answer of {address} is not from {who}", hint=_HINT)
        elif self._is_required and not self._verifies_tls:
            why = (
                f"{address} does not prove that it is {who}"
                if own
                else f"{_NO_ACCOUNT}, so {address} cannot be checked"
            )
            raise NetError(why, hint=_HINT)

    def prove_answers(self, table: HandlerTable) -> None:
        """Prove the answers to members; the handlers are registered by now."""
        if self.can_authenticate:
            for code in _PROVED:
                table.handlers[code] = self._make_proving(table.handlers[code])

    def _make_proving(self, handler: Handler) -> Handler:
        def answer_proved(link: Link, command: Command) -> Answer:
            answer = handler(link, command)
            if answer is None or isinstance(answer, LongAnswer) or NONCE not in command.ext_dict():
                return answer
            if isinstance(answer, bytes):
                return self._prove(link, command, answer)
            later = self._prove_later(link, command, answer)
            return InOrder(later) if isinstance(answer, InOrder) else later

        return answer_proved

    async def _prove_later(
        self, link: Link, command: Command, answer: Awaitable[bytes | LongAnswer | None]
    ) -> bytes | LongAnswer | None:
        frame = await answer
        if not isinstance(frame, bytes):
            return frame
        return (
            await run_apart(self._prove, link, command, frame)
            if len(frame) > BODY_BYTES_AT_ONCE
            else self._prove(link, command, frame)
        )

    def _prove(self, link: Link, command: Command, frame: bytes) -> bytes:
        """Add the proof to an encoded answer."""
        asked = command.ext_dict()
        account = asked.get(ACCESS_KEY, "")
        secret_key = self.find_secret(account, link.certificate)
        if secret_key is None:
            return frame
        (answer,) = FrameBuffer().feed(frame)
        proof = compute_answer_proof(account, asked[NONCE], command.code, answer, secret_key)
        answer.ext = {**answer.ext_dict(), PROOF: proof}
        return encode_command(answer)
