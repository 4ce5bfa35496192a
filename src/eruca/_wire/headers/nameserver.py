"""Headers between name servers and everyone else."""

from __future__ import annotations

from eruca._wire.ext import Header, Int32, Int64


class PutKVConfigHeader(Header):
    """Set one value of a namespace (100)."""

    namespace: str
    key: str
    value: str


class KVConfigHeader(Header):
    """Get (101) or delete (102) one value of a namespace."""

    namespace: str
    key: str


class KVConfigAnswerHeader(Header):
    """The value (answer to 101)."""

    value: str | None = None


class NamespaceHeader(Header):
    """List a namespace (219)."""

    namespace: str


class RegisterBrokerHeader(Header):
    """A broker reports that it is alive, and its topics (103)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    compressed: bool = False
    body_crc32: Int32 = 0  # 0: not checked
    # Eruca's own: the epoch of its mastership, so that a replaced master cannot displace its successor. A broker
    # without epochs does not send it, and Java ignores it.
    eruca_epoch: Int64 | None = None
    # Eruca's own: the identity of the store, so that a broker of another installation cannot take the name of this one.
    eruca_store: str | None = None
    # Eruca's own: the body has only the topics that changed since this version of the table, `counter:timestamp`, which
    # the name server reported in its last answer. Empty: the body has all topics, and the answer may report a version.
    eruca_base: str | None = None


class RegisterBrokerAnswerHeader(Header):
    """Where a slave finds its master (answer to 103)."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    #: Eruca's own, with the refusal of a replaced master: the epoch of its successor.
    eruca_epoch: Int64 | None = None
    #: Eruca's own: the version of the broker's table that this name server has now, `counter:timestamp`; empty when it
    #: took nothing because it does not have the version the registration is based on. Java's name servers omit it.
    eruca_known: str | None = None


class BrokerHeader(Header):
    """A broker leaves (104), or asks whether its registration is still current (322)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class DataVersionAnswerHeader(Header):
    """True when the broker should register again (answer to 322)."""

    changed: bool


class RouteHeader(Header):
    """Request the route of a topic (105)."""

    topic: str
    accept_standard_json_only: bool | None = None


class BrokerNameHeader(Header):
    """Take (205) or give back (327) the write permission of a broker."""

    broker_name: str


class WipeWritePermAnswerHeader(Header):
    """How many topics lost the permission (answer to 205)."""

    wipe_topic_count: Int32


class AddWritePermAnswerHeader(Header):
    """How many topics got it back (answer to 327)."""

    add_topic_count: Int32


class ClusterHeader(Header):
    """List the topics of a cluster (224)."""

    cluster: str


class DeleteTopicInNameServerHeader(Header):
    """Forget a topic (216), of one cluster or everywhere."""

    topic: str
    cluster_name: str | None = None
