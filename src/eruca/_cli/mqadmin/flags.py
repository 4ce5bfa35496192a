"""Flags that several commands of mqadmin have."""

from __future__ import annotations

from eruca._cli.mqadmin.commandline import Flag


def need(letter: str, name: str, about: str) -> Flag:
    """Return a flag that must be given."""
    return Flag(letter, name, about, required=True)


def switch(letter: str, name: str, about: str) -> Flag:
    """Return a flag without a value."""
    return Flag(letter, name, about, value=False)


def broker(name: str = "brokerAddr", *, one_of: bool = False) -> Flag:
    """Return the flag that names a broker."""
    return Flag("b", name, "only this broker: its address host:port", one_of=one_of)


def cluster(name: str = "clusterName", *, one_of: bool = False) -> Flag:
    """Return the flag that names a cluster."""
    return Flag("c", name, "the brokers of this cluster", one_of=one_of)


TOPIC = need("t", "topic", "name of the topic")
BROKER_OR_CLUSTER = (broker(one_of=True), cluster(one_of=True))
BROKER, CLUSTER = broker(), cluster()
BROKER_NAME = need("b", "brokerName", "name of the broker")
TIME = "milliseconds or 2026-11-15#07:21:06:000"
SINCE, UNTIL = Flag("b", "beginTimestamp", f"from this time: {TIME}"), Flag("e", "endTimestamp", f"up to: {TIME}")
CHARSET = Flag("c", "charsetName", "character set of the bodies, for example GBK [default: UTF-8]")
TAGS = Flag("s", "subExpression", "only these tags, for example 'TagA || TagB'")
FORCE = Flag("f", "force", "false: only move back [default: true]")
FOLDER = Flag("f", "filePath", "the folder to write to [default: /tmp/rocketmq/export]")
KEY, VALUE = need("k", "key", "name of the option"), need("v", "value", "its value")
NAMESPACE = need("s", "namespace", "namespace of the key")
ROUNDS = Flag("", "rounds", "stop after this many rounds (mqadmin does not have this)", ours=True)
INTERVAL = Flag("", "interval", "seconds between rounds [default: 60] (mqadmin does not have this)", ours=True)
PERMISSION = "2: write, 4: read, 6: both"
