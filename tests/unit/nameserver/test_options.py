"""Options of the name server: all keys of Java are known, and only listed ones change while it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eruca._ground.config import from_properties, info_of
from eruca._ground.javaconf import parse_conf
from eruca._nameserver.options import NameServerOptions, change_options, to_properties
from eruca._nameserver.running import RunningOptions
from eruca._wire.codes import ResponseCode
from eruca.errors import ConfigError, RequestRefused

# What the Java name server 4.9.7 returns (319), and the key that 4.9.8 added.
JAVA_DEFAULTS = {
    "serverSocketBacklog": "1024",
    "writeBufferHighWaterMark": "0",
    "serverWorkerThreads": "8",
    "serverSelectorThreads": "3",
    "serverChannelMaxIdleTimeSeconds": "120",
    "writeBufferLowWaterMark": "0",
    "serverSocketRcvBufSize": "0",
    "serverAsyncSemaphoreValue": "64",
    "clusterTest": "false",
    "orderMessageEnable": "false",
    "serverSocketSndBufSize": "0",
    "serverOnewaySemaphoreValue": "256",
    "serverCallbackExecutorThreads": "0",
    "listenPort": "9876",
    "productEnvName": "center",
    "useEpollNativeSelector": "false",
    "serverPooledByteBufAllocatorEnable": "true",
    "configBlackList": "configBlackList;configStorePath;kvConfigPath",
}


def test_every_key_of_java_is_known_with_its_default() -> None:
    shown = to_properties(NameServerOptions())
    assert {key: shown[key] for key in JAVA_DEFAULTS} == JAVA_DEFAULTS
    assert {"kvConfigPath", "configStorePath", "rocketmqHome"} <= shown.keys()


def test_default_listens_on_loopback_and_writes_nothing_at_home() -> None:
    options = NameServerOptions()
    assert options.bind_address == "127.0.0.1"
    for path in (options.kv_config_path, options.config_store_path):
        assert not path.startswith(("~", "/"))


def test_official_file_is_read_as_it_is() -> None:
    text = "listenPort=9888\nkvConfigPath = run/kv.json\n# comment\norderMessageEnable=true\nserverWorkerThreads=16\n"
    options = from_properties(NameServerOptions, parse_conf(text))
    assert (options.listen_port, options.kv_config_path, options.order_message_enable) == (9888, "run/kv.json", True)
    assert from_properties(NameServerOptions, to_properties(options)) == options


def test_every_option_explains_itself() -> None:
    for name, info in info_of(NameServerOptions).items():
        assert info.doc, name


def test_listed_keys_change() -> None:
    options = change_options(
        NameServerOptions(), {"orderMessageEnable": "true", "serverChannelMaxIdleTimeSeconds": "60"}
    )
    assert options.order_message_enable and options.idle_seconds == 60
    assert change_options(options, {}) == options


@pytest.mark.parametrize(
    "key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", "listenPort", "noSuchKey"]
)
def test_other_keys_are_refused_and_nothing_changes(key: str) -> None:
    with pytest.raises(RequestRefused, match=f"black list: {key}.*orderMessageEnable") as caught:
        change_options(NameServerOptions(), {"orderMessageEnable": "true", key: "1"})
    assert caught.value.code == ResponseCode.NO_PERMISSION


def test_black_list_of_the_operator_holds_too() -> None:
    options = NameServerOptions(config_black_list="configBlackList; orderMessageEnable")
    with pytest.raises(RequestRefused):
        change_options(options, {"orderMessageEnable": "true"})


@pytest.mark.parametrize(
    ("key", "value"),
    [("orderMessageEnable", "yes"), ("serverChannelMaxIdleTimeSeconds", "0"), ("scanNotActiveBrokerInterval", "x")],
)
def test_values_are_checked_by_type_and_bound(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        change_options(NameServerOptions(), {key: value})


async def test_change_is_kept_in_the_file_and_told(tmp_path: Path) -> None:
    told: list[NameServerOptions] = []
    path = tmp_path / "conf" / "namesrv.properties"
    options = NameServerOptions(config_store_path=str(path))
    running = RunningOptions(options, told.append)
    await asyncio.gather(
        running.change({"orderMessageEnable": "true"}), running.change({"scanNotActiveBrokerInterval": "5000"})
    )
    assert running.current == told[-1]
    assert (running.current.order_message_enable, running.current.scan_interval_ms) == (True, 5000)
    kept = parse_conf(await asyncio.to_thread(path.read_text))
    assert kept == {"orderMessageEnable": "true", "scanNotActiveBrokerInterval": "5000"}
    before = running.current
    with pytest.raises(RequestRefused):
        await running.change({"orderMessageEnable": "false", "listenPort": "1"})
    await running.change({})
    assert running.current is before and len(told) == 2
