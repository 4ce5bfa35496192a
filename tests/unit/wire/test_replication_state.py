"""Eruca's own requests: what they carry, who may ask, and that a Java broker's answer to them is understood."""

from __future__ import annotations

import msgspec
import pytest

from eruca._wire.bodies import (
    DataVersions,
    DivergedTail,
    EpochStart,
    FollowedMaster,
    ReplicationState,
    SlaveState,
    decode_json,
)
from eruca._wire.catalog import CATALOG, Link, Right, build_request, decode_answer, decode_request
from eruca._wire.codes import RequestCode, ResponseCode, SerializeType
from eruca._wire.ext import encode_ext
from eruca._wire.frame import Command, FrameBuffer, encode_command
from eruca._wire.headers import ChangeRoleHeader, RegisterBrokerHeader
from eruca.errors import WireError
from tests.encoding import build_answer

STATE = ReplicationState(
    broker_name="a",
    broker_id=1,
    configured_id=2,
    role="SLAVE",
    epoch=1000,
    epochs=[EpochStart(epoch=1, start=0), EpochStart(epoch=1000, start=4096)],
    master=FollowedMaster(address="h:1", ha_address="h:2", epoch=1000, connected=True, lag_bytes=7, lag_ms=3),
    slaves=[SlaveState(broker_id=2, address="h:3", position=5, in_sync=True, fenced=True), SlaveState()],
    versions=DataVersions(topics=1, groups=2, offsets=3, delays=4),
    diverged=[DivergedTail(file="1-10-20.log", epoch=1, begin=10, end=20, found_ms=99)],
    failover="etcd",
)


def carry(command: Command) -> Command:
    (arrived,) = FrameBuffer().feed(encode_command(command))
    return arrived


def test_the_state_survives_the_wire() -> None:
    request = carry(build_request(RequestCode.REPLICATION_STATE, opaque=3))
    assert decode_request(request) == (None, None)
    answer = carry(build_answer(request, ResponseCode.SUCCESS, body=STATE))
    assert decode_answer(request.code, answer) == (None, STATE)


def test_the_state_has_camel_case_names_and_may_lack_what_a_newer_one_has() -> None:
    text = msgspec.json.decode(msgspec.json.encode(STATE))
    assert {"brokerName", "configuredId", "haAddress", "logStart", "lastStoreTime", "epochs"} <= text.keys()
    assert text["epochs"][1] == {"epoch": 1000, "start": 4096, "unsure": -1}
    assert text["slaves"][1]["brokerId"] == -1
    bare = decode_json(ReplicationState, b'{"role":"MASTER","somethingNew":[1]}')
    assert bare == ReplicationState(role="MASTER")
    assert bare.master is None
    with pytest.raises(WireError):
        decode_json(ReplicationState, b'{"epochs":[{"epoch":1}]}')


def test_states_do_not_share_their_parts() -> None:
    first, second = ReplicationState(), ReplicationState()
    first.versions.topics = 5
    first.epochs.append(EpochStart(epoch=1, start=0))
    assert second == ReplicationState()


def test_a_change_of_role() -> None:
    header = ChangeRoleHeader("MASTER", epoch=2000, force=True, wait_position=77)
    request = carry(build_request(RequestCode.CHANGE_ROLE, header))
    assert decode_request(request) == (header, None)
    assert decode_request(carry(Command(RequestCode.CHANGE_ROLE, ext={"role": "SLAVE"})))[0] == ChangeRoleHeader(
        "SLAVE", epoch=0, force=False, master_address="", wait_position=-1
    )


def test_who_may_ask() -> None:
    state, change = CATALOG[RequestCode.REPLICATION_STATE], CATALOG[RequestCode.CHANGE_ROLE]
    assert (state.right, change.right) == (Right.MEMBER, Right.ADMIN)
    assert state.links == (Link.SLAVE_MASTER, Link.ADMIN_BROKER)
    assert change.links == (Link.ADMIN_BROKER,)


def test_a_java_broker_does_not_know_them() -> None:
    refused = Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, flag=1, remark=" request type 90101 not supported")
    assert decode_answer(RequestCode.REPLICATION_STATE, refused) == (None, None)


def test_they_need_a_json_header() -> None:
    with pytest.raises(WireError):
        encode_command(build_request(RequestCode.REPLICATION_STATE, serialization=SerializeType.ROCKETMQ))


def test_a_registration_has_an_epoch_or_not() -> None:
    without = RegisterBrokerHeader("b", "a:1", "c", "a:2", 0)
    assert "erucaEpoch" not in encode_ext(without)
    with_epoch = RegisterBrokerHeader("b", "a:1", "c", "a:2", 0, eruca_epoch=1000)
    texts = encode_ext(with_epoch)
    assert texts["erucaEpoch"] == "1000"
    assert msgspec.convert(texts, RegisterBrokerHeader, strict=False) == with_epoch
