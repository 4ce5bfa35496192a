"""A broker's place among the members of its name: the answer to `REPLICATION_STATE`, a request only Eruca has."""

from __future__ import annotations

import msgspec

from eruca._wire.bodies.shared import JsonBody, kept, kept_list
from eruca._wire.ext import Int64


class EpochStart(JsonBody, kw_only=True):
    """One mastership: its number, and the position in the log it began at."""

    epoch: Int64
    start: Int64
    #: From here on the log may differ from what others copied earlier; -1 when it does not.
    unsure: Int64 = kept(-1)


class FollowedMaster(JsonBody, kw_only=True):
    """A slave's view of its master."""

    address: str = kept("")
    connected: bool = kept(False)
    epoch: Int64 = kept(0)
    ha_address: str = kept("")
    lag_bytes: Int64 = kept(0)
    lag_ms: Int64 = kept(0)
    required: int = kept(0)  # as last reported by the master; 0: never
    sync: bool = kept(False)


class SlaveState(JsonBody, kw_only=True):
    """A master's view of one slave. On a classic link the slave is unknown: broker id -1."""

    address: str = kept("")
    broker_id: Int64 = kept(-1)
    fenced: bool = kept(False)
    in_sync: bool = kept(False)
    lag_bytes: Int64 = kept(0)
    lag_ms: Int64 = kept(0)
    position: Int64 = kept(0)


class DataVersions(JsonBody, kw_only=True):
    """The versions of what slaves copy beside the log; a number grows with every change."""

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
    authenticates: bool = kept(False)  # on its replication port; not in older versions
    broker_id: Int64 = kept(0)
    broker_name: str = kept("")
    check_crc: Int64 = kept(-1)  # of the requested bytes; -1: none were requested, or the log does not have them
    claimed_epoch: Int64 = kept(0)  # a name server has heard of a master of this epoch, without proof
    configured_id: Int64 = kept(0)
    confirmed: Int64 = kept(0)
    diverged: list[DivergedTail] = kept_list()
    epoch: Int64 = kept(0)
    epochs: list[EpochStart] = kept_list()
    epochs_joined: Int64 = kept(0)  # masterships up to this one are joined into one entry
    failover: str = kept("")  # "etcd", or empty: an operator promotes
    flushed: Int64 = kept(0)
    ha_address: str = kept("")
    last_store_time: Int64 = kept(0)
    log_start: Int64 = kept(0)
    master: FollowedMaster | None = None
    members: list[str] = kept_list()  # service addresses of all members it has ever known, including itself
    required: int = kept(1)  # copies of a message before it is acknowledged, this broker's included
    role: str = kept("")  # MASTER, SLAVE or FENCED
    slaves: list[SlaveState] = kept_list()
    store_id: str = kept("")  # the identity of the store; empty in older versions
    store_id_given_at: Int64 = kept(0)  # where the log ended when it was assigned
    sync: bool = kept(False)
    tail: Int64 = kept(0)
    versions: DataVersions = msgspec.field(default_factory=DataVersions)
    writable: bool = kept(False)
