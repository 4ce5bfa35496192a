"""The parts of one broker, made once and shared by its handlers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eruca.broker.clients import Clients
from eruca.broker.groups import Groups
from eruca.broker.offsets import Offsets
from eruca.broker.once import Once
from eruca.broker.options import BrokerOptions
from eruca.broker.stats import Stats
from eruca.broker.steadytime import SteadyTime
from eruca.broker.topics import Topics
from eruca.clock import Clock
from eruca.store.background import StoreBackground
from eruca.store.messagestore import MessageStore
from eruca.store.saving import TableSaver
from eruca.store.tables import Tables

if TYPE_CHECKING:
    from eruca.broker.replication.acknowledging import Acknowledgement


@dataclass(slots=True)
class Parts:
    """What handlers work with."""

    options: BrokerOptions
    clock: Clock
    store: MessageStore
    background: StoreBackground
    tables: Tables
    saver: TableSaver
    topics: Topics
    groups: Groups
    offsets: Offsets
    once: Once
    clients: Clients
    stats: Stats
    # What delays and ages are counted by, whoever sets the machine's clock.
    steady: SteadyTime
    # The broker's address as records hold it.
    store_host: bytes
    started_ms: int
    # May clients store messages here? Only on a master that is not fenced.
    writable: bool = True
    # When what was stored may be acknowledged; made of the parts, so it comes last.
    replication: Acknowledgement = field(init=False)
