"""Options from `.conf` files: what RocketMQ's own files look like, and what is refused."""

from __future__ import annotations

import pytest

from eruca.config import FlushMode, StoreOptions, from_properties, parse_conf
from eruca.errors import ConfigError


def test_a_conf_file_is_a_java_properties_file() -> None:
    text = """
# a comment
! another
brokerName = broker-a
storePathRootDir=C\\:\\\\data\\\\store
namesrvAddr: 10.0.0.1:9876;10.0.0.2:9876
messageDelayLevel=1s 5s \\
    10s
fileReservedTime=48
fileReservedTime=72
brokerIP1=
alone
"""
    assert parse_conf(text) == {
        "brokerName": "broker-a",
        "storePathRootDir": "C:\\data\\store",
        "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876",
        "messageDelayLevel": "1s 5s 10s",
        "fileReservedTime": "72",
        "brokerIP1": "",
        "alone": "",
    }
    assert parse_conf("") == {}
    assert parse_conf("a=1\\") == {"a": "1"}


def test_options_take_their_own_keys_and_leave_the_others() -> None:
    options = from_properties(StoreOptions, {"brokerName": "x", "flushDiskType": "SYNC_FLUSH", "maxIndexNum": " 2000 "})
    assert options.flush_mode is FlushMode.SYNC
    assert options.index_entries == 2000


@pytest.mark.parametrize(
    "properties",
    [
        {"maxIndexNum": "many"},
        {"maxIndexNum": "1"},
        {"flushDiskType": "SOMETIMES"},
        {"messageIndexEnable": "perhaps"},
        {"transientStorePoolEnable": "true", "flushDiskType": "SYNC_FLUSH"},
    ],
)
def test_a_value_that_cannot_be_used_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        from_properties(StoreOptions, properties)
