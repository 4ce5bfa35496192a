"""Asking another broker to prove that its log is from the same store, before following it or giving way to it."""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from eruca._broker.replication.asking import MemberCaller, ask_state
from eruca._core.replication.epochs import is_epoch
from eruca._core.replication.kinship import History, Kinship, choose_check, find_common, judge_kinship
from eruca._store.lineage.replicationstate import check_epochs
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import ReplicationState
from eruca._wire.epoch import Epoch
from eruca.errors import NetError, WireError

_ASK_MS: Final = 3000


class Proof(NamedTuple):
    """A broker's state, how its log relates to this one, and up to which position they are equal."""

    state: ReplicationState
    kinship: Kinship
    common: int


async def prove(caller: MemberCaller, address: str, store: MessageStore, timeout_ms: int = _ASK_MS) -> Proof | None:
    """Ask a broker for its state, and for a checksum that requires our log; return None if it is not an Eruca broker.

    Raises ErucaError if it does not respond, or if the response is impossible.
    """
    state = await ask_state(caller, address, timeout_ms)
    if state is None:
        return None
    if not is_epoch(state.epoch):
        raise WireError(f"{address} reports epoch {state.epoch}, which does not exist")
    theirs = _read_history(state)
    check_epochs(theirs.epochs)
    mine = describe_history(store)
    begin, end = choose_check(mine, theirs)
    is_alike = None
    if begin < end:
        found = store.log.read_bytes(begin, end)
        answer = await ask_state(caller, address, timeout_ms, check=(begin, end))
        if answer is None or (answer.store_id, answer.epoch) != (state.store_id, state.epoch):
            raise NetError(f"{address} is changing its role at the moment")
        if found is not None and answer.check_crc >= 0:
            is_alike = zlib.crc32(found) == answer.check_crc
    return Proof(state, judge_kinship(mine, theirs, is_alike), find_common(mine, theirs))


def describe_history(store: MessageStore) -> History:
    """Return the history that identifies this broker's log."""
    record, commitlog = store.lineage.record, store.log
    return History(
        store_id=record.store_id,
        given_at=record.store_id_given_at,
        epochs=record.epochs,
        joined=record.epochs_joined,
        start=commitlog.start,
        tail=commitlog.tail,
        unsure=record.unsure,
    )


def _read_history(state: ReplicationState) -> History:
    return History(
        store_id=state.store_id,
        given_at=state.store_id_given_at,
        epochs=[Epoch(item.epoch, item.start, item.unsure) for item in state.epochs],
        joined=state.epochs_joined,
        start=state.log_start,
        tail=state.tail,
    )
