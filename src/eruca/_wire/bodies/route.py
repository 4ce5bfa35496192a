"""Bodies of the name server: routes, clusters, topic lists, key-value tables."""

from __future__ import annotations

from typing import ClassVar

from eruca._wire import fastjson
from eruca._wire.bodies.shared import JsonBody, encode_json, kept, kept_dict, kept_list
from eruca._wire.ext import Int32, Int64


class BrokerData(JsonBody, kw_only=True):
    """The addresses of one broker name: id 0 is the master, others are slaves."""

    has_odd_keys: ClassVar[bool] = True

    broker_addrs: dict[Int64, str] = kept_dict()
    broker_name: str
    cluster: str | None = None


class QueueData(JsonBody, kw_only=True):
    """The queues a topic has on one broker name."""

    broker_name: str
    perm: Int32 = kept(6)
    read_queue_nums: Int32 = kept(0)
    #: Name servers up to 4.8.0 misspell the flag; it is moved to the right field automatically.
    topic_syn_flag: Int32 | None = None
    topic_sys_flag: Int32 = kept(0)
    write_queue_nums: Int32 = kept(0)

    def __post_init__(self) -> None:
        if self.topic_syn_flag is not None:
            self.topic_sys_flag = self.topic_syn_flag
            self.topic_syn_flag = None


class TopicRouteData(JsonBody, kw_only=True):
    """Where the queues of a topic are (answer to 105)."""

    has_odd_keys: ClassVar[bool] = True

    broker_datas: list[BrokerData] = kept_list()
    filter_server_table: dict[str, list[str]] = kept_dict()
    order_topic_conf: str | None = None  # "brokerA:4;brokerB:4"
    queue_datas: list[QueueData] = kept_list()


def encode_route(route: TopicRouteData, *, strict: bool) -> bytes:
    """Write a route as strict JSON, or with bare broker ids for requesters older than 4.9.4.

    Go clients before 2.1.2 split the text at commas and colons and rely on the bare ids; they announce an old version.
    """
    return encode_json(route) if strict else fastjson.write(route, bare_int_keys=True)


class ClusterInfo(JsonBody, kw_only=True):
    """All brokers and clusters a name server knows (answer to 106)."""

    has_odd_keys: ClassVar[bool] = True

    broker_addr_table: dict[str, BrokerData] = kept_dict()
    cluster_addr_table: dict[str, list[str]] = kept_dict()


class TopicList(JsonBody, kw_only=True):
    """Names of topics (answer to 206, 224, 304, 305, 311, 312, 313; 90104)."""

    broker_addr: str | None = None
    topic_list: list[str] = kept_list()


class KVTable(JsonBody, kw_only=True):
    """Strings by name (answer to 28, 103 and 219)."""

    table: dict[str, str] = kept_dict()
