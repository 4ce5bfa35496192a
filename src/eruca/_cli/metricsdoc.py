"""Writes docs/METRICS.md, the list of all metrics of servers: `python -m eruca._cli.metricsdoc docs/METRICS.md`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from eruca._broker.app import Broker
from eruca._broker.observing import exporter, own, rocketmq5, runtimefigures
from eruca._broker.options import BrokerOptions
from eruca._broker.replication.meters import ReplicationMeter
from eruca._ground.config import StoreOptions
from eruca._nameserver import observing as of_nameserver
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca._net import observing as of_process
from eruca._net.budget import count_closed
from eruca._net.meters import count_refused
from eruca._observe import process
from eruca._observe.figures import Description, read_registry
from eruca._observe.metrics import BROKER, SERVER
from eruca._wire.bodies import ReplicationState, SlaveState

_INTRO = """\
# Metrics

The metrics at `/metrics` of brokers, name servers and filter servers. [Operations](guide/operations.md) explains how to
collect them, and which dashboards and alerts there are. This page is generated from the code (`make generate`); a test
fails when it is out of date.

A counter starts at 0 when the server starts, unless its description says that it counts what was *ever* stored. The
metrics of producers and consumers (`eruca_client_...`) are those of the process that runs them:
[clients](guide/clients.md).
"""
_EXPORTER = """\
## The names of rocketmq-exporter

Each with the labels that boards for rocketmq-exporter use. A broker shows what it has itself; such a board adds up over
brokers. Only masters show topics, groups and clients. The exporter collects once a minute; here everything is computed
at every request, except for the metrics of clients: consumers are asked once a minute (`metricsAskClients`). None of
its names is missing.
"""
_RUNTIME = """\
## The names of rocketmq-exporter for a broker

Labels: `cluster`, `brokerIP`, `brokerHost`, `des`, `boottime`, `broker_version`. Slaves show them too.
"""
_ROCKETMQ5 = """\
## The names of RocketMQ 5

With the labels of its documentation. `node_id` is the name of the broker. Missing are metrics of what does not exist
here (pop consumption, tiered storage, RocksDB, proxy, controller), and `rocketmq_rpc_latency`,
`rocketmq_topic_create_execution_time` and `rocketmq_consumer_group_create_execution_time`: no request is timed on its
own, because that would cost every request.
"""
_OWN = "## Brokers\n\n`member` is the address of the broker.\n"
_NAMESERVER = "## Name servers\n"
_PROCESS = """\
## Every process

The process itself (`process_...`, with the names of all Prometheus clients), and what peers use of each limit.
"""
_HEAD = "| name | type | labels | meaning |\n| --- | --- | --- | --- |\n"


def write_page() -> str:
    """Return the whole page."""
    registered = asyncio.run(_list_registered())
    of_broker = [about for about in registered if about.name.startswith(BROKER.prefix)]
    others = [about for about in registered if about not in of_broker]
    sections: tuple[tuple[str, list[Description]], ...] = (
        (_EXPORTER, _list_declared(exporter)),
        (_RUNTIME, [figure.about._replace(labels=()) for figure in runtimefigures.RUNTIME_FIGURES]),
        (_ROCKETMQ5, _list_declared(rocketmq5)),
        (_OWN, [*_list_declared(own), *of_broker]),
        (_NAMESERVER, _list_declared(of_nameserver)),
        (_PROCESS, [*_list_declared(of_process, process), *others]),
    )
    parts = [f"{heading}\n{_HEAD}" + "".join(map(_write_row, found)) for heading, found in sections]
    return "\n".join([_INTRO, *parts])


def _list_declared(*modules: ModuleType) -> list[Description]:
    """List the metrics that modules declare as constants."""
    return [about for module in modules for about in vars(module).values() if isinstance(about, Description)]


async def _list_registered() -> list[Description]:
    """List the metrics that a name server and a broker register while they run, and those of rare events."""
    with tempfile.TemporaryDirectory(prefix="eruca-metrics-") as folder:
        home = Path(folder)
        nameserver = NameServer(NameServerOptions(listen_port=0, kv_config_path=str(home / "kvConfig.json")))
        small = StoreOptions(commitlog_segment_bytes=1 << 20, index_slots=5000, index_entries=20_000)
        broker = Broker(BrokerOptions(port=0), small, home / "store")
        await nameserver.start()
        await broker.start()
        try:
            count_refused("")
            count_closed("")
            ReplicationMeter("").show(ReplicationState(broker_name="", slaves=[SlaveState()]))
            found = [figures.about for registry in (SERVER, BROKER) for figures in read_registry(registry)]
            return sorted(found, key=lambda about: about.name)
        finally:
            await broker.stop()
            await nameserver.stop()


def _write_row(about: Description) -> str:
    labels = ", ".join([f"`{label}`" for label in about.labels])
    text = about.help_text.replace("|", "\\|")
    return f"| `{about.name}` | {about.kind.value} | {labels} | {text}{'' if text.endswith('.') else '.'} |\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(write_page(), encoding="utf-8")
