"""Builds popping; the rest of a broker uses its service, its redelivery and its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from eruca._broker.administering.stats import Stats
from eruca._broker.delaying.steadytime import SteadyTime
from eruca._broker.groups.groups import Groups
from eruca._broker.groups.offsets import Offsets
from eruca._broker.options import LiveOptions
from eruca._broker.popping.admission import Admission
from eruca._broker.popping.copies import Copies
from eruca._broker.popping.handlers import PopHandlers
from eruca._broker.popping.ordering import Ordering
from eruca._broker.popping.poplog import PopLog
from eruca._broker.popping.redelivery import Redelivery
from eruca._broker.popping.service import PopService
from eruca._broker.popping.taking import Taking
from eruca._broker.pulling.subscriptions import PullFilters
from eruca._broker.replication.acknowledging import Acknowledgement
from eruca._broker.standing import Standing
from eruca._broker.topics import Topics
from eruca._store.messagestore import MessageStore


@dataclass(frozen=True, slots=True, eq=False)
class PopParts:
    """Popping in one broker."""

    #: Pops and acknowledges; what protocols use (`contract.Popping`).
    service: PopService
    #: Delivers again; runs on a master.
    redelivery: Redelivery
    handlers: PopHandlers


def build_popping(
    options: LiveOptions,
    standing: Standing,
    store: MessageStore,
    topics: Topics,
    groups: Groups,
    offsets: Offsets,
    stats: Stats,
    steady: SteadyTime,
    acknowledgement: Acknowledgement,
    filters: PullFilters,
    sync: Callable[[], asyncio.Future[bool]],
) -> PopParts:
    """Build the parts, and listen to the store."""
    poplog = PopLog(standing, store, steady)
    copies = Copies(store, topics, groups, stats, poplog)
    taking = Taking(options, store, topics, offsets, stats, acknowledgement.reads, poplog)
    ordering = Ordering(options, store, offsets, poplog, copies, taking)
    admission = Admission(options, standing, topics, groups, filters, poplog)
    service = PopService(options, store, offsets, steady, acknowledgement, admission, poplog, copies, taking, ordering)
    redelivery = Redelivery(
        store, offsets, steady, poplog, copies, sync, service.waiting.release_all, service.wake_capped
    )
    store.dispatched.listen(service.waiting.on_dispatched)
    acknowledgement.reads.readable.listen(service.waiting.on_readable)
    return PopParts(service, redelivery, PopHandlers(service))
