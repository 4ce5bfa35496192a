"""The figures of a name server: which brokers it knows, and whether each name has a master."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eruca._observe.figures import Description, Figures, Kind
from eruca._wire.bodies import ClusterInfo
from eruca._wire.names import MASTER_ID

_LABELS: Final = ("cluster", "broker")
MEMBERS: Final = Description(
    "eruca_nameserver_members", Kind.GAUGE, "Registered members of a broker name, masters and slaves.", _LABELS
)
MASTERS: Final = Description(
    "eruca_nameserver_masters", Kind.GAUGE, "1 if one of them is the master, 0 if not.", _LABELS
)


def list_figures(clusters: ClusterInfo) -> Iterator[Figures]:
    """Yield the figures of the brokers."""
    brokers = list(clusters.broker_addr_table.values())
    named = [((each.cluster or "", each.broker_name), each.broker_addrs) for each in brokers]
    yield Figures(MEMBERS, [(labels, len(addresses)) for labels, addresses in named])
    yield Figures(MASTERS, [(labels, int(MASTER_ID in addresses)) for labels, addresses in named])
