"""Replication metrics: the role and epoch of a broker, and the lag of slaves in bytes and in time.

>>> from eruca.metrics import BROKER
>>> BROKER.snapshot()['eruca_broker_replication_lag_bytes{broker="broker-a",cluster="...",member="...",slave="..."}']

`member` is the reporting broker, `slave` the broker it is about: itself on a slave, each of its slaves on a master.
"""

from __future__ import annotations

from typing import Final

from eruca._observe.metrics import BROKER, Registry
from eruca._wire.bodies import ReplicationState
from eruca._wire.names import FENCED, MASTER, SLAVE

REGISTRY: Final = BROKER

_ROLES: Final = (MASTER, SLAVE, FENCED)
_LAG_NAMES: Final = ("replication_lag_bytes", "replication_lag_seconds")
_SINGLE: Final = {
    "replication_epoch": "The current epoch, or the newest known one",
    "replication_log_end_bytes": "The position of the end of the commit log",
    "replication_slaves": "Slaves connected to this broker",
    "replication_slaves_in_sync": "Slaves close enough to count for acknowledgements",
    "replication_connected": "1 if this slave is connected to its master; 1 on a master",
    "replication_diverged_files": "Parts of this broker's log that were set aside because its master did not have them",
}


class ReplicationMeter:
    """Publishes the replication state of one broker."""

    def __init__(self, cluster: str, registry: Registry = REGISTRY) -> None:
        # Brokers of several clusters often have the same names.
        self._cluster = cluster
        self._registry = registry
        self._labels: dict[str, str] = {}
        self._slaves: set[str] = set()

    def show(self, state: ReplicationState) -> None:
        """Set all metrics from a broker's state; slaves that are gone are removed."""
        labels = {"cluster": self._cluster, "broker": state.broker_name, "member": state.address}
        if labels != self._labels:
            self.close()
            self._labels = labels
        for role in _ROLES:
            gauge = self._registry.gauge(
                "replication_role", "1 for the current role of this broker", role=role, **labels
            )
            gauge.set(role == state.role)
        followed = state.master
        values = {
            "replication_epoch": state.epoch,
            "replication_log_end_bytes": state.tail,
            "replication_slaves": len(state.slaves),
            "replication_slaves_in_sync": sum(slave.in_sync for slave in state.slaves),
            "replication_connected": followed is None or followed.connected,
            "replication_diverged_files": len(state.diverged),
        }
        for name, value in values.items():
            self._registry.gauge(name, _SINGLE[name], **labels).set(value)
        lags = {slave.address: (slave.lag_bytes, slave.lag_ms) for slave in state.slaves}
        if followed is not None:
            lags = {state.address: (followed.lag_bytes, followed.lag_ms)}
        self._show_lags(lags)

    def _show_lags(self, lags: dict[str, tuple[int, int]]) -> None:
        for slave in self._slaves - lags.keys():
            self._forget(slave)
        self._slaves = set(lags)
        for slave, (lag_bytes, lag_ms) in lags.items():
            labels = {**self._labels, "slave": slave}
            self._registry.gauge(_LAG_NAMES[0], "How many bytes of the log a slave is behind", **labels).set(lag_bytes)
            self._registry.gauge(
                _LAG_NAMES[1], "How long ago the master stored the next record that a slave will get", **labels
            ).set(lag_ms / 1000)

    def _forget(self, slave: str) -> None:
        for name in _LAG_NAMES:
            self._registry.drop(name, **self._labels, slave=slave)

    def close(self) -> None:
        """Remove all metrics of the broker."""
        for slave in self._slaves:
            self._forget(slave)
        self._slaves = set()
        if self._labels:
            for role in _ROLES:
                self._registry.drop("replication_role", role=role, **self._labels)
            for name in _SINGLE:
                self._registry.drop(name, **self._labels)
        self._labels = {}
