"""Options of a running broker: all are shown, few can be changed, and those are checked."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from eruca._access.options import AccessOptions
from eruca._broker.administering.javakeys import IGNORED
from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._ground.config import StoreOptions, info_of
from eruca._wire.codes import RequestCode, ResponseCode
from eruca.errors import ConfigError
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import Peer
from tests.unit.net.rawpeer import turn_until


async def show(peer: Peer) -> dict[str, str]:
    body: dict[str, str] = (await peer.expect(RequestCode.GET_BROKER_CONFIG)).body
    return body


async def read_version(peer: Peer) -> int:
    """How often the options were changed."""
    answer = await peer.expect(RequestCode.GET_BROKER_CONFIG)
    assert answer.ext is not None
    version: int = json.loads(answer.ext["version"])["counter"]
    return version


async def test_every_option_is_shown_as_text(broker: Broker, peer: Peer) -> None:
    answer = await peer.expect(RequestCode.GET_BROKER_CONFIG)
    shown = answer.body
    expected = {
        info.java for options in (BrokerOptions, StoreOptions, AccessOptions) for info in info_of(options).values()
    }
    assert set(shown) == expected | set(IGNORED)
    assert shown["listenPort"] == str(broker.standing.port)
    assert shown["haListenPort"] == str(broker.standing.port + 1)
    assert (shown["brokerRole"], shown["flushDiskType"]) == ("ASYNC_MASTER", "ASYNC_FLUSH")
    assert (shown["autoCreateTopicEnable"], shown["fileReservedTime"]) == ("true", "72")
    assert shown["messageDelayLevel"].startswith("1s 5s 10s")
    assert answer.ext is not None
    version = json.loads(answer.ext["version"])
    assert version == {"counter": 0, "timestamp": broker.started_ms}


async def test_mutable_options_change_at_once(broker: Broker, peer: Peer) -> None:
    wanted = {
        "fileReservedTime": "71",
        "deleteWhen": "03;23",
        "maxMessageSize": "1000",
        "longPollingEnable": "FALSE",
        "maxTransferCountOnMessageInMemory": "5",
    }
    answer = await peer.expect(RequestCode.UPDATE_BROKER_CONFIG, None, wanted)
    assert (answer.ext, answer.remark, answer.command.body) == (None, None, b"")
    shown = await show(peer)
    assert {key: shown[key] for key in wanted} == wanted | {"longPollingEnable": "false"}
    assert broker.store.options.retention_hours == 71
    assert broker.options.long_polling is False
    assert broker.options.transfer_count_memory == 5
    assert await read_version(peer) == 1
    await peer.send("T", 0, b"x" * 1000)
    with pytest.raises(AssertionError, match="the message is illegal"):
        await peer.send("T", 0, b"x" * 1001)


@pytest.mark.parametrize(
    ("key", "value", "remark"),
    [
        ("noSuchKey", "1", "noSuchKey is not an option"),
        ("listenPort", "1", "listenPort cannot be changed while the broker runs"),
        ("mappedFileSizeCommitLog", "1", "mappedFileSizeCommitLog cannot be changed while the broker runs"),
        ("storePathRootDir", "elsewhere", "storePathRootDir cannot be changed while the broker runs"),
        (
            "sendMessageThreadPoolNums",
            "8",
            "sendMessageThreadPoolNums has no effect here: one event loop does the work",
        ),
    ],
)
async def test_other_keys_are_refused_by_name(broker: Broker, peer: Peer, key: str, value: str, remark: str) -> None:
    before = await show(peer)
    code, said = await peer.refused(RequestCode.UPDATE_BROKER_CONFIG, None, {"fileReservedTime": "1", key: value})
    assert (code, said.startswith(remark)) == (ResponseCode.NO_PERMISSION, True)
    assert await show(peer) == before  # all or none


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fileReservedTime", "many"),
        ("fileReservedTime", "-1"),
        ("fileReservedTime", ""),
        ("maxMessageSize", "999999999999"),
        ("brokerPermission", "8"),
        ("longPollingEnable", "yes"),
        ("deleteWhen", "24"),
        ("deleteWhen", "now"),
        ("deleteWhen", "²"),
        ("flushIntervalCommitLog", str(10**12)),
        ("flushIntervalCommitLog", str(10**400)),
        ("flushIntervalCommitLog", "9" * 5000),
        ("maxTransferBytesOnMessageInMemory", str(1 << 30)),
        ("maxTransferCountOnMessageInMemory", "0"),
        ("defaultTopicQueueNums", "1000000"),
        ("startAcceptSendRequestTimeStamp", "-1"),
    ],
)
async def test_values_are_checked(broker: Broker, peer: Peer, key: str, value: str) -> None:
    before = await show(peer)
    code, remark = await peer.refused(
        RequestCode.UPDATE_BROKER_CONFIG, None, {"shortPollingTimeMills": "7", key: value}
    )
    assert (code, key in remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert await show(peer) == before


async def test_nothing_to_change_changes_nothing(broker: Broker, peer: Peer) -> None:
    await peer.expect(RequestCode.UPDATE_BROKER_CONFIG)
    await peer.expect(RequestCode.UPDATE_BROKER_CONFIG, None, b"# only a comment\n")
    assert await read_version(peer) == 0
    code, _ = await peer.refused(RequestCode.UPDATE_BROKER_CONFIG, None, b"no equals sign")
    assert code == ResponseCode.SYSTEM_ERROR


async def test_a_new_permission_is_told_to_name_servers(broker: Broker, peer: Peer) -> None:
    before = broker.topics.data_version.counter
    told: list[object] = []
    broker.topics.changed.listen(lambda: told.append(broker.topics.list_changes(0)))
    await peer.expect(RequestCode.UPDATE_BROKER_CONFIG, None, {"brokerPermission": "4"})
    assert (broker.options.permission, told) == (4, [None])  # every topic
    assert broker.topics.data_version.counter == before + 1


async def test_flushing_follows_its_options(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(flush_interval_ms=1, flush_pages_min=10**6, flush_thorough_ms=10**9)
    peer = make_peer(broker)
    await peer.send("T", 0)
    store = broker.store
    assert store.flusher.flushed == 0
    await peer.expect(RequestCode.UPDATE_BROKER_CONFIG, None, {"flushCommitLogLeastPages": "0"})
    await turn_until(lambda: store.flusher.flushed == store.log.tail)
    assert store.flusher.waiting_bytes == 0


async def test_a_shorter_flush_interval_is_followed_at_once(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(flush_interval_ms=1, flush_pages_min=0)
    peer = make_peer(broker)
    store = broker.store
    await peer.expect(RequestCode.UPDATE_BROKER_CONFIG, None, {"flushIntervalCommitLog": str(2**31 - 1)})
    await peer.send("T", 0)
    await peer.expect(RequestCode.GET_BROKER_CONFIG)
    await peer.expect(RequestCode.UPDATE_BROKER_CONFIG, None, {"flushIntervalCommitLog": "1"})
    await turn_until(lambda: store.flusher.flushed == store.log.tail)


async def test_a_secret_is_not_shown(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(etcd_endpoints="http://root:hunter2@10.0.0.1:2379")
    assert (await show(make_peer(broker)))["etcdEndpoints"] == "******"


async def test_a_store_keeps_what_it_was_opened_with(broker: Broker) -> None:
    store = broker.store
    before = store.options
    with pytest.raises(ConfigError, match="maxHashSlotNum cannot change"):
        store.change_options(dataclasses.replace(before, index_slots=7, retention_hours=1))
    assert store.options is before


async def test_a_job_that_archives_tells_how_far_it_is(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(delete_only_archived=True, retention_hours=0, commitlog_segment_bytes=4096)
    peer = make_peer(broker)
    for _ in range(6):
        await peer.send("T", 0, body=b"x" * 2000)
    await asyncio.to_thread(broker.store.flusher.sync_log)
    assert await broker.background.retain(asked=True) == 0
    tail = broker.store.log.tail
    refused = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, None, {"archivedPosition": str(tail + 1)})
    assert (refused.code, "only grows" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    await peer.expect(RequestCode.UPDATE_BROKER_CONFIG, None, {"archivedPosition": "8192"})
    assert (await show(peer))["archivedPosition"] == "8192"
    assert await broker.background.retain(asked=True) == 2
    assert broker.store.log.start == 8192
    assert await asyncio.to_thread(broker.store.archived.read) == 8192
