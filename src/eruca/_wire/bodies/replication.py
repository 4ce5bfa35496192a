"""How a broker stands to the others of its name: the answer to `REPLICATION_STATE`, which only Eruca asks and gives."""

from __future__ import annotations

import msgspec

from eruca._wire.bodies.shared import JsonBody, kept, kept_list
from eruca._wire.ext import Int64


class EpochStart(JsonBody, kw_only=True):
    """One mastership: its number, and the position in the log it began at."""

    epoch: Int64
    start: Int64
    #: From here on the log may differ from what others had copied before; -1 when it does not.
    unsure: Int64 = kept(-1)


class FollowedMaster(JsonBody, kw_only=True):
    """A slave's view of its master."""

    address: str = kept("")
    connected: bool = kept(False)
    epoch: Int64 = kept(0)
    ha_address: str = kept("")
    lag_bytes: Int64 = kept(0)
    lag_ms: Int64 = kept(0)
    required: int = kept(0)  # what the master said of itself when it was last heard of; 0: never
    sync: bool = kept(False)


class SlaveState(JsonBody, kw_only=True):
    """A master's view of one slave. A classic link does not say who is at its other end: broker id -1."""

    address: str = kept("")
    broker_id: Int64 = kept(-1)
    fenced: bool = kept(False)
    in_sync: bool = kept(False)
    lag_bytes: Int64 = kept(0)
    lag_ms: Int64 = kept(0)
    position: Int64 = kept(0)


class DataVersions(JsonBody, kw_only=True):
    """What slaves copy beside the log; a number grows with every change."""

    delays: Int64 = kept(0)
    groups: Int64 = kept(0)
    offsets: Int64 = kept(0)
    topics: Int64 = kept(0)


class DivergedTail(JsonBody, kw_only=True):
    """A part of a log that no other member has, set aside in a file."""

    begin: Int64 = kept(0)
    end: Int64 = kept(0)
    epoch: Int64 = kept(0)
    file: str = kept("")
    found_ms: Int64 = kept(0)


class ReplicationState(JsonBody, kw_only=True):
    """The role, the log and the links of a broker (answer to 90101)."""

    address: str = kept("")
    broker_id: Int64 = kept(0)
    broker_name: str = kept("")
    check_crc: Int64 = kept(-1)  # of the bytes that were asked for; -1: none were, or they are not there
    claimed_epoch: Int64 = kept(0)  # a name server has heard of a master of this epoch, and nobody proves it
    configured_id: Int64 = kept(0)
    confirmed: Int64 = kept(0)
    diverged: list[DivergedTail] = kept_list()
    epoch: Int64 = kept(0)
    epochs: list[EpochStart] = kept_list()
    epochs_joined: Int64 = kept(0)  # masterships up to this one are one entry of the list
    failover: str = kept("")  # "etcd", or empty: an operator promotes
    flushed: Int64 = kept(0)
    ha_address: str = kept("")
    last_store_time: Int64 = kept(0)
    log_start: Int64 = kept(0)
    master: FollowedMaster | None = None
    members: list[str] = kept_list()  # service addresses of all members it has ever known, itself too
    required: int = kept(1)  # copies of a message before it is acknowledged, this broker's included
    role: str = kept("")  # MASTER, SLAVE or FENCED
    slaves: list[SlaveState] = kept_list()
    store_id: str = kept("")  # the identity of the store; empty in older versions
    store_id_given_at: Int64 = kept(0)  # where the log ended when it got it
    sync: bool = kept(False)
    tail: Int64 = kept(0)
    versions: DataVersions = msgspec.field(default_factory=DataVersions)
    writable: bool = kept(False)
