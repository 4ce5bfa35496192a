"""Whether a broker can do its work: the reasons why not."""

from __future__ import annotations

from collections.abc import Iterator

from eruca._broker.options import BrokerOptions
from eruca._broker.registering.registration import Registration
from eruca._broker.standing import Standing
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import FollowedMaster, ReplicationState
from eruca._wire.names import FENCED, SLAVE


def list_obstacles(
    options: BrokerOptions,
    standing: Standing,
    store: MessageStore,
    registration: Registration,
    state: ReplicationState,
) -> Iterator[str]:
    """Yield the reasons why a broker with an open store is not ready.

    It is ready as a master that accepts messages, or as a slave that is in sync, when a name server knows it. Slaves
    that a master lacks do not count: it would never be ready where they start after it.
    """
    if standing.state == FENCED:
        yield f"it is neither master nor slave: {standing.reason}"
    elif standing.state == SLAVE:
        yield from _check_slave(options, state.master)
    elif store.refusal:
        yield f"it accepts no messages: {store.refusal}"
    if not registration.nameservers.addresses:
        yield "no name server is set (namesrvAddr)"
    elif not registration.accepted:
        yield f"not registered with a name server ({', '.join(registration.nameservers.addresses)})"


def _check_slave(options: BrokerOptions, master: FollowedMaster | None) -> Iterator[str]:
    if master is None or not master.connected:
        yield "it is a slave that is not connected to its master"
    elif master.lag_bytes > options.behind_bytes_max:
        yield f"it is {master.lag_bytes} bytes behind its master (haSlaveFallbehindMax={options.behind_bytes_max})"
