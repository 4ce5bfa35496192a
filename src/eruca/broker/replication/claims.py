"""What others say of who is the master, and what a broker makes of it: nobody is believed without proof.

A name server believes whoever registers with it, and a request can come from anybody. What they say is a reason to ask
those it is about. Only a broker that proves to be of the same store is followed, or given way to.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from eruca.broker.options import BrokerRole
from eruca.broker.parts import Parts
from eruca.broker.registration import Registration
from eruca.broker.replication.members import KnownMembers
from eruca.broker.replication.proving import Proof, prove
from eruca.broker.replication.returning import NewerMaster, Survey, is_member, survey_members
from eruca.core.replication.kinship import Kinship
from eruca.core.replication.numbering import count_promotion
from eruca.limits import EPOCH_AHEAD_MAX
from eruca.net.caller import Caller

log = logging.getLogger(__name__)

# How long a broker may take to prove what it is.
_ASK_MS = 2000


class Verdict(NamedTuple):
    """What a master makes of the word that it was replaced."""

    #: Who proves to be its successor.
    newer: NewerMaster | None = None
    #: The epoch to begin, so that name servers take this broker for the master again; 0: it leaves that to an operator.
    outbid: int = 0


class Claims:
    """Asks for proof."""

    def __init__(self, parts: Parts, caller: Caller, registration: Registration, members: KnownMembers) -> None:
        self._parts = parts
        self._caller = caller
        self._registration = registration
        self._members = members
        self._is_told_to_follow = parts.options.role is BrokerRole.SLAVE or bool(parts.options.failover)
        # A name server says that this master was replaced, and members are being asked.
        self.is_doubting = False
        #: The epoch of a master that a name server has heard of and nobody proves; 0 when there is none.
        self.claimed_epoch = 0
        self._said: dict[str, str] = {}

    async def survey(self, *, starts: bool) -> Survey:
        """Ask all members whether one of them leads. Raises ConfigError when the name is another store's."""
        parts, nameservers = self._parts, self._registration.nameservers
        known = self._members.members
        return await survey_members(self._caller, nameservers, parts.options, parts.store, known, starts=starts)

    def may_follow(self, proof: Proof) -> bool:
        """Whether the log of a broker may be copied: one that has none copies whom it was configured to."""
        is_new = self._is_told_to_follow and proof.kinship is Kinship.EMPTY
        return is_new or is_member(proof, self._parts.options.address)

    async def ask(self, address: str) -> Proof | None:
        """Have a broker prove what it is; None for a Java broker. Raises ErucaError."""
        return await prove(self._caller, address, self._parts.store, _ASK_MS)

    async def weigh(self, reason: str, epoch: int, own_epoch: int) -> Verdict:
        """A name server says that this master was replaced, in an epoch: is it so?"""
        survey = await self.survey(starts=False)
        if survey.newer is not None or epoch < own_epoch:
            return Verdict(survey.newer)
        # All who have this log know of no other master, so there is none. A broker without a log may have forgotten
        # whom it knew.
        has_log = self._parts.store.commitlog.tail > 0
        if has_log and survey.is_complete and epoch <= own_epoch + EPOCH_AHEAD_MAX:
            return Verdict(outbid=count_promotion(epoch, self._parts.options.configured_id))
        self.claimed_epoch = epoch
        self.say_once(
            "replaced",
            f"this broker stays the master: a name server says {reason!r}, and nobody proves it; if no such master"
            f" exists: eruca cluster promote {self._parts.options.address} --force",
        )
        return Verdict()

    def say_once(self, about: str, text: str) -> None:
        """Log a warning unless the last one about this was the same."""
        if self._said.get(about) != text:
            self._said = {about: text}
            log.warning("%s", text)
