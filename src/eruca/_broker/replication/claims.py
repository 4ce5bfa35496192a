"""How a broker judges claims about who is the master: none is believed without proof.

A name server trusts any broker that registers with it, and requests can come from anywhere. Such claims are only a
reason to ask the brokers concerned. A broker follows, or gives way to, only a broker that proves to have the same
store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from eruca._broker.options import BrokerOptions, BrokerRole
from eruca._broker.registering.asking import ask_addresses
from eruca._broker.replication.asking import MemberCaller
from eruca._broker.replication.members import KnownMembers
from eruca._broker.replication.proving import Proof, prove
from eruca._broker.replication.returning import NewerMaster, Returning, is_member, judge_return, refuse_taken_name
from eruca._broker.standing import Standing
from eruca._core.replication.kinship import Kinship
from eruca._core.replication.numbering import count_promotion
from eruca._ground.limits import EPOCH_AHEAD_MAX
from eruca._net.addresses import NameServers
from eruca._store.messagestore import MessageStore
from eruca.errors import ErucaError

log = logging.getLogger(__name__)

# How long a broker may take to prove its identity; an unresponsive member delays the start by this long.
_ASK_MS = 2000
_SURVEY_MS = 3000


class Survey(NamedTuple):
    """The answers of the other members of a name."""

    #: The broker that leads instead of this one; None if there is none.
    newer: NewerMaster | None
    #: All known members answered, so no broker with this store can be the master without their knowledge.
    is_complete: bool


class Verdict(NamedTuple):
    """What a master concludes from the claim that it was replaced."""

    #: The broker that proved to be its successor.
    newer: NewerMaster | None = None
    #: The epoch to start, so that name servers accept this broker as the master again; 0: leave it to an operator.
    outbid: int = 0


@dataclass(eq=False)
class Claims:
    """Verifies claims by asking for proof."""

    _options: BrokerOptions
    _standing: Standing
    _store: MessageStore
    _members: KnownMembers
    _nameservers: NameServers
    _caller: MemberCaller

    def __post_init__(self) -> None:
        #: The epoch of a master that a name server reported but no broker proved; 0 if there is none.
        self.claimed_epoch = 0
        self._said: dict[str, str] = {}

    async def survey(self, starts_as: BrokerRole | None = None) -> Survey:
        """Ask all members of this name whether one of them leads.

        A starting broker passes the kind of master it would be; a running one knows what it has. Raises ConfigError on
        start if another broker already has its name.
        """
        name, own_address, lineage = self._options.name, self._standing.address, self._store.lineage
        await self._nameservers.refresh()
        remembered = set(self._members.members) - {"", own_address}
        # In parallel: unresponsive members delay the start only once.
        named, answers = await asyncio.gather(
            asyncio.gather(*[self._list_members(address) for address in self._nameservers.addresses]),
            self._ask_all(remembered),
        )
        registered = {address for group in named for address in group} - {"", own_address}
        answers |= await self._ask_all(registered - remembered)
        own = Returning(
            address=own_address,
            seen_epoch=lineage.seen_epoch,
            led_epoch=lineage.record.led_epoch,
            epochs=lineage.epochs,
            tail=self._store.log.tail,
            sync=starts_as is BrokerRole.SYNC_MASTER,
        )
        proofs = {address: proof for address, proof in answers.items() if proof and proof.state.broker_name == name}
        if starts_as is not None:
            taken = [proof for address, proof in proofs.items() if address in registered]
            refuse_taken_name(name, own_address, taken)
        newer = judge_return(own, [proof.state for proof in proofs.values() if is_member(proof, own_address)])
        if newer is not None:
            log.warning("this broker does not become the master of %s: %s", name, newer.reason)
        return Survey(newer, is_complete=all(answers[address] is not None for address in remembered))

    async def _list_members(self, nameserver: str) -> list[str]:
        name = self._options.name
        try:
            return list((await ask_addresses(self._caller.plain, nameserver, name, _SURVEY_MS)).values())
        except ErucaError as error:
            log.warning("name server %s did not return the members of %s: %s", nameserver, name, error)
            return []

    async def _ask_all(self, addresses: Iterable[str]) -> dict[str, Proof | None]:
        asked = sorted(addresses)
        return dict(zip(asked, await asyncio.gather(*[self._ask_member(address) for address in asked]), strict=True))

    async def _ask_member(self, address: str) -> Proof | None:
        try:
            return await prove(self._caller, address, self._store, _SURVEY_MS)
        except ErucaError as error:
            log.info("member %s does not respond: %s", address, error)
            return None

    def may_follow(self, proof: Proof) -> bool:
        """Whether the log of a broker may be copied: a broker without a log copies from its configured master."""
        is_told = self._options.role is BrokerRole.SLAVE or bool(self._options.failover)
        is_new = is_told and proof.kinship is Kinship.EMPTY
        return is_new or is_member(proof, self._standing.address)

    async def ask(self, address: str) -> Proof | None:
        """Ask a broker for proof; return None for a Java broker. Raises ErucaError."""
        return await prove(self._caller, address, self._store, _ASK_MS)

    async def weigh(self, reason: str, epoch: int, own_epoch: int) -> Verdict:
        """Check a name server's claim that this master was replaced in an epoch."""
        survey = await self.survey()
        if survey.newer is not None or epoch < own_epoch:
            return Verdict(survey.newer)
        # If all members with this log know of no other master, there is none. A member without a log may have forgotten
        # a master it knew.
        has_log = self._store.log.tail > 0
        if has_log and survey.is_complete and epoch <= own_epoch + EPOCH_AHEAD_MAX:
            return Verdict(outbid=count_promotion(epoch, self._options.broker_id))
        self.claimed_epoch = epoch
        self.say_once(
            "replaced",
            f"this broker stays the master: a name server reports {reason!r}, but no broker proves it; if no such"
            f" master exists: eruca cluster promote {self._standing.address} --force",
        )
        return Verdict()

    def forget(self) -> None:
        """A mastership starts: claims about the previous one no longer count."""
        self.claimed_epoch = 0

    def say_once(self, about: str, text: str) -> None:
        """Log a warning unless it equals the last one on this subject."""
        if self._said.get(about) != text:
            self._said = {about: text}
            log.warning("%s", text)
