"""What others say of who is the master, and what a broker makes of it: nobody is believed without proof.

A name server believes whoever registers with it, and a request can come from anybody. What they say is a reason to ask
those it is about. Only a broker that proves to be of the same store is followed, or given way to.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple

from eruca.broker.options import BrokerOptions, BrokerRole
from eruca.broker.replication.members import KnownMembers
from eruca.broker.replication.proving import Proof, prove
from eruca.broker.replication.returning import NewerMaster, Survey, is_member, survey_members
from eruca.broker.standing import Standing
from eruca.core.replication.kinship import Kinship
from eruca.core.replication.numbering import count_promotion
from eruca.limits import EPOCH_AHEAD_MAX
from eruca.net.addresses import NameServers
from eruca.net.caller import Caller
from eruca.store.messagestore import MessageStore

log = logging.getLogger(__name__)

# How long a broker may take to prove what it is.
_ASK_MS = 2000


class Verdict(NamedTuple):
    """What a master makes of the word that it was replaced."""

    #: Who proves to be its successor.
    newer: NewerMaster | None = None
    #: The epoch to begin, so that name servers take this broker for the master again; 0: it leaves that to an operator.
    outbid: int = 0


@dataclass(eq=False)
class Claims:
    """Asks for proof."""

    _options: BrokerOptions
    _standing: Standing
    _store: MessageStore
    _members: KnownMembers
    _nameservers: NameServers
    _caller: Caller

    def __post_init__(self) -> None:
        #: The epoch of a master that a name server has heard of and nobody proves; 0 when there is none.
        self.claimed_epoch = 0
        self._said: dict[str, str] = {}

    async def survey(self, starts_as: BrokerRole | None = None) -> Survey:
        """Ask all members whether one of them leads; a broker that starts says as what kind of master.

        Raises ConfigError when the name of one that starts is another store's.
        """
        return await survey_members(
            self._caller,
            self._nameservers,
            self._options.name,
            self._standing.address,
            self._store,
            self._members.members,
            starts_as,
        )

    def may_follow(self, proof: Proof) -> bool:
        """Whether the log of a broker may be copied: one that has none copies whom it was configured to."""
        is_told = self._options.role is BrokerRole.SLAVE or bool(self._options.failover)
        is_new = is_told and proof.kinship is Kinship.EMPTY
        return is_new or is_member(proof, self._standing.address)

    async def ask(self, address: str) -> Proof | None:
        """Have a broker prove what it is; None for a Java broker. Raises ErucaError."""
        return await prove(self._caller, address, self._store, _ASK_MS)

    async def weigh(self, reason: str, epoch: int, own_epoch: int) -> Verdict:
        """A name server says that this master was replaced, in an epoch: is it so?"""
        survey = await self.survey()
        if survey.newer is not None or epoch < own_epoch:
            return Verdict(survey.newer)
        # All who have this log know of no other master, so there is none. A broker without a log may have forgotten
        # whom it knew.
        has_log = self._store.log.tail > 0
        if has_log and survey.is_complete and epoch <= own_epoch + EPOCH_AHEAD_MAX:
            return Verdict(outbid=count_promotion(epoch, self._options.broker_id))
        self.claimed_epoch = epoch
        self.say_once(
            "replaced",
            f"this broker stays the master: a name server says {reason!r}, and nobody proves it; if no such master"
            f" exists: eruca cluster promote {self._standing.address} --force",
        )
        return Verdict()

    def forget(self) -> None:
        """A mastership begins: what was claimed of the one before counts no more."""
        self.claimed_epoch = 0

    def say_once(self, about: str, text: str) -> None:
        """Log a warning unless the last one about this was the same."""
        if self._said.get(about) != text:
            self._said = {about: text}
            log.warning("%s", text)
