"""The filter server: uploads are checked, pulls are filtered, and what fails is switched off for its group alone."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca._broker.app import Broker
from eruca._filterserver.app import FilterServer
from eruca._ground.limits import FRAME_BYTES_MAX
from eruca._net.caller import Caller
from eruca._net.handlers import expect_success
from eruca._observe.metrics import SERVER
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import PullMessageAnswerHeader, PullMessageHeader, RegisterFilterClassHeader
from eruca._wire.record import body_crc, decode_records
from eruca.errors import RequestRefused
from tests.integration.broker.conftest import MakePeer, make_peer
from tests.integration.client.conftest import StartBroker
from tests.integration.filterserver.conftest import StartFilterServer
from tests.patience import PATIENCE_S
from tests.unit.filterserver import modules
from tests.unit.filterserver.modules import NAME
from tests.unit.filterserver.test_plugins import install
from tests.unit.net.rawpeer import turn_until

__all__ = ["make_peer"]

GROUP, TOPIC = "readers", "Letters"
TIMEOUT_MS = PATIENCE_S * 1000


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    made = Caller()
    yield made
    await made.close()


async def upload(
    caller: Caller,
    server: FilterServer,
    module: bytes,
    *,
    group: str = GROUP,
    name: str = NAME,
    crc: int | None = None,
    body: bytes | None = None,
) -> None:
    """Upload a module as a client does. Raises RequestRefused."""
    body = base64.b64encode(module) if body is None else body
    header = RegisterFilterClassHeader(
        consumer_group=group, topic=TOPIC, class_name=name, class_crc=body_crc(body) if crc is None else crc
    )
    command = make_request(RequestCode.REGISTER_MESSAGE_FILTER_CLASS, header, body)
    expect_success(await caller.call(server.address, command, TIMEOUT_MS))


async def pull(
    caller: Caller,
    server: FilterServer,
    offset: int = 0,
    *,
    group: str = GROUP,
    hold_ms: int = 0,
    queue_id: int = 0,
    commit: int | None = None,
) -> Command:
    """Pull as a client does."""
    header = PullMessageHeader(
        consumer_group=group,
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=offset,
        max_message_nums=32,
        sys_flag=8 | (2 if hold_ms else 0) | (0 if commit is None else 1),
        commit_offset=commit or 0,
        suspend_timeout_ms=hold_ms,
        subscription_version=0,
    )
    return await caller.call(server.address, make_request(RequestCode.PULL_MESSAGE, header), TIMEOUT_MS)


def read(answer: Command) -> tuple[list[bytes], int]:
    """The bodies of an answer, and where the next pull begins."""
    where = answer.decode_header(PullMessageAnswerHeader)
    return [message.body for message in decode_records(answer.body)], where.next_begin_offset


async def send(broker: Broker, make_peer: MakePeer, *bodies: bytes) -> None:
    peer = make_peer(broker)
    for body in bodies:
        await peer.send(TOPIC, body=body, queue_id=0)


async def test_a_pull_is_filtered_and_goes_on_behind_what_nobody_wanted(
    broker: Broker, filter_server: FilterServer, caller: Caller, make_peer: MakePeer
) -> None:
    await send(broker, make_peer, b"Anna", b"Bob", b"Albert", b"Bert")
    await upload(caller, filter_server, modules.want_first("A"))
    answer = await pull(caller, filter_server)
    assert (answer.code, read(answer)) == (ResponseCode.SUCCESS, ([b"Anna", b"Albert"], 4))
    answer = await pull(caller, filter_server, 3)
    assert (answer.code, read(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, ([], 4))
    answer = await pull(caller, filter_server, 4)
    assert (answer.code, read(answer)) == (ResponseCode.PULL_NOT_FOUND, ([], 4))
    answer = await pull(caller, filter_server, 1000)
    assert (answer.code, read(answer)) == (ResponseCode.PULL_OFFSET_MOVED, ([], 4))


async def test_everything_and_nothing(
    broker: Broker, filter_server: FilterServer, caller: Caller, make_peer: MakePeer
) -> None:
    await send(broker, make_peer, b"Anna", b"Bob")
    await upload(caller, filter_server, modules.EVERYTHING)
    assert read(await pull(caller, filter_server)) == ([b"Anna", b"Bob"], 2)
    await upload(caller, filter_server, modules.NOTHING)
    assert read(await pull(caller, filter_server)) == ([], 2)


async def test_a_pull_is_held_until_a_message_comes(
    broker: Broker, filter_server: FilterServer, caller: Caller, make_peer: MakePeer
) -> None:
    await send(broker, make_peer, b"Anna")
    await upload(caller, filter_server, modules.want_first("A"))
    held = asyncio.create_task(pull(caller, filter_server, 1, hold_ms=9000))
    done, _ = await asyncio.wait((held,), timeout=0.3)
    assert not done
    await send(broker, make_peer, b"Albert")
    assert read(await held) == ([b"Albert"], 2)


async def test_messages_that_wait_for_their_turn_are_bounded(
    start_broker: StartBroker, start_filter_server: StartFilterServer, caller: Caller, make_peer: MakePeer
) -> None:
    """A class filters one pull at a time; the others must not fill the memory."""
    broker = await start_broker(filter_servers_max=2)
    server = await start_filter_server(broker, waiting_bytes_max=FRAME_BYTES_MAX)
    size = 500_000
    room = FRAME_BYTES_MAX // (size + 200)
    await send(broker, make_peer, bytes(size))
    await upload(caller, server, modules.EVERYTHING)
    assert server._classes is not None
    async with server._classes.find(GROUP, TOPIC).turn:
        waiting = [asyncio.create_task(pull(caller, server)) for _ in range(room + 5)]
        await turn_until(lambda: len([task for task in waiting if task.done()]) == 5)
        refused = [task.result() for task in waiting if task.done()]
        waiting = [task for task in waiting if not task.done()]
        assert SERVER.snapshot()["eruca_server_filter_waiting_bytes"] > room * size
    assert {answer.code for answer in refused} == {ResponseCode.SYSTEM_BUSY}
    assert f"(filterMaxWaitingBytes={FRAME_BYTES_MAX}): pull again" in (refused[0].remark or "")
    assert {len(read(await task)[0][0]) for task in waiting} == {size}
    assert read(await pull(caller, server))[1] == 1
    assert SERVER.snapshot()["eruca_server_filter_waiting_bytes"] == 0


async def test_the_broker_has_its_say(
    broker: Broker, filter_server: FilterServer, caller: Caller, make_peer: MakePeer
) -> None:
    await send(broker, make_peer, b"Anna")
    await upload(caller, filter_server, modules.EVERYTHING)
    answer = await pull(caller, filter_server, queue_id=99)
    assert (answer.code, "queueId[99]" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    answer = await pull(caller, filter_server, group="strangers")
    assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST


@pytest.mark.parametrize(
    ("module", "changes", "reason"),
    [
        (modules.EVERYTHING, {"crc": 1}, "CRC"),
        (modules.OTHER_NAME, {}, f"not export a function named {NAME}"),
        (bytes(300_000), {}, "larger than 262144 bytes"),
        (b"", {"body": b"public class Wanted implements MessageFilter {}"}, "not the base64 of a WebAssembly module"),
        (b"import os", {}, "not a WebAssembly module"),
        (b"", {}, "no such class is installed"),
        (modules.EVERYTHING, {"name": "x" * 256}, "256 characters"),
        (modules.EVERYTHING, {"group": "a group\n"}, "group"),
        (modules.BORN_LARGE, {}, "bytes of memory"),
        (modules.ENDLESS_START, {}, "instructions"),
    ],
    ids=["crc", "export", "size", "java", "python", "nothing", "name", "group", "memory", "start"],
)
async def test_a_bad_upload_is_refused_and_changes_nothing(
    broker: Broker,
    filter_server: FilterServer,
    caller: Caller,
    make_peer: MakePeer,
    module: bytes,
    changes: dict[str, object],
    reason: str,
) -> None:
    await send(broker, make_peer, b"Anna", b"Bob")
    await upload(caller, filter_server, modules.want_first("A"))
    with pytest.raises(RequestRefused, match=reason):
        await upload(caller, filter_server, module, **changes)  # type: ignore[arg-type]
    assert read(await pull(caller, filter_server)) == ([b"Anna"], 2)


@pytest.mark.parametrize("hostile", ["ENDLESS", "GREEDY", "RECURSIVE"])
async def test_a_hostile_module_is_switched_off_for_its_group_alone(
    broker: Broker, filter_server: FilterServer, caller: Caller, make_peer: MakePeer, hostile: str
) -> None:
    await send(broker, make_peer, b"Anna", b"Bob")
    await upload(caller, filter_server, getattr(modules, hostile), group="hostile")
    await upload(caller, filter_server, modules.want_first("A"))
    for _ in range(2):
        answer = await pull(caller, filter_server, group="hostile")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"filter class {NAME} is disabled: {NAME} was stopped" in (answer.remark or "")
        assert read(await pull(caller, filter_server)) == ([b"Anna"], 2)
    # The same module again does not enable it, another module does.
    with pytest.raises(RequestRefused, match="is disabled"):
        await upload(caller, filter_server, getattr(modules, hostile), group="hostile")
    await upload(caller, filter_server, modules.want_first("B"), group="hostile")
    assert read(await pull(caller, filter_server, group="hostile")) == ([b"Bob"], 2)


async def test_an_installed_class_needs_no_upload(
    broker: Broker, start_filter_server: StartFilterServer, caller: Caller, make_peer: MakePeer, tmp_path: Path
) -> None:
    source = """
from eruca._filterserver.plugins import FilterClass, FilterMessage
class OnlyBob(FilterClass):
    def matches(self, message: FilterMessage) -> bool:
        return message.body == b"Bob"
class Broken(FilterClass):
    def matches(self, message: FilterMessage) -> bool:
        raise ValueError("broken")
"""
    await asyncio.to_thread(install, tmp_path / "filters", source=source)
    server = await start_filter_server(broker, plugins=str(tmp_path / "filters"), uploads=False)
    await send(broker, make_peer, b"Anna", b"Bob")
    await upload(caller, server, b"", name="OnlyBob")
    assert read(await pull(caller, server)) == ([b"Bob"], 2)
    # What a client of 3.x sends besides the name is ignored.
    await upload(caller, server, b"", name="OnlyBob", body=b"class OnlyBob {}", group="old")
    assert read(await pull(caller, server, group="old")) == ([b"Bob"], 2)
    await upload(caller, server, b"", name="Broken", group="unlucky")
    assert "Broken failed: ValueError" in ((await pull(caller, server, group="unlucky")).remark or "")
    with pytest.raises(RequestRefused, match="accepts no uploads") as refused:
        await upload(caller, server, modules.EVERYTHING)
    assert refused.value.code == ResponseCode.NO_PERMISSION


async def test_a_server_waits_for_its_broker(
    broker: Broker,
    start_broker: StartBroker,
    start_filter_server: StartFilterServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    address = broker.standing.address
    await broker.stop()
    server = await start_filter_server(broker, register_interval_ms=20)
    assert server.broker_name == ""
    assert f"not registered with broker {address}" in caplog.text
    again = await start_broker(port=broker.standing.port, filter_servers_max=2)
    await turn_until(lambda: server.broker_name == "broker-a")
    assert again.filter_servers.list_addresses() == [server.address]


async def test_the_class_not_used_for_longest_makes_room(
    broker: Broker,
    filter_server: FilterServer,
    caller: Caller,
    make_peer: MakePeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eruca._filterserver.classes.FILTER_CLASSES_MAX", 2)
    await send(broker, make_peer, b"Anna")
    for group in ("first", "second"):
        await upload(caller, filter_server, modules.EVERYTHING, group=group)
    assert read(await pull(caller, filter_server, group="first")) == ([b"Anna"], 1)
    await upload(caller, filter_server, modules.EVERYTHING, group="third")
    codes = [(await pull(caller, filter_server, group=group)).code for group in ("first", "second", "third")]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.FILTER_DATA_NOT_EXIST, ResponseCode.SUCCESS]
    monkeypatch.setattr("eruca._filterserver.classes.FILTER_MODULES_BYTES_MAX", len(modules.NOTHING))
    await upload(caller, filter_server, modules.NOTHING, group="fourth")
    codes = [(await pull(caller, filter_server, group=group)).code for group in ("first", "third", "fourth")]
    assert codes == [ResponseCode.FILTER_DATA_NOT_EXIST] * 2 + [ResponseCode.PULL_RETRY_IMMEDIATELY]


async def test_too_many_uploads_at_once_are_refused(
    filter_server: FilterServer, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eruca._filterserver.classes.FILTER_UPLOADS_WAITING_MAX", 2)
    uploads = [upload(caller, filter_server, modules.want_first(letter), group=letter) for letter in "ABCDEFGH"]
    answers = await asyncio.gather(*uploads, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, RequestRefused)]
    assert len(refused) == 6
    assert {answer.code for answer in refused} == {ResponseCode.SYSTEM_BUSY}


async def test_other_groups_are_served_while_a_module_takes_its_time(
    broker: Broker, start_filter_server: StartFilterServer, caller: Caller, make_peer: MakePeer
) -> None:
    server = await start_filter_server(broker, fuel=2**62, time_ms=2000, workers=2)
    await send(broker, make_peer, b"Anna")
    await upload(caller, server, modules.ENDLESS, group="hostile")
    await upload(caller, server, modules.EVERYTHING)
    # However many of its pulls wait, it has one worker.
    attacks = [asyncio.create_task(pull(caller, server, group="hostile")) for _ in range(8)]
    served = 0
    while not attacks[0].done():
        assert read(await pull(caller, server)) == ([b"Anna"], 1)
        served += 1
    for attack in await asyncio.gather(*attacks):
        assert "it took more than 2000 ms" in (attack.remark or "")
    assert served > 10


async def test_an_offset_committed_with_a_pull_reaches_the_broker(
    broker: Broker, filter_server: FilterServer, caller: Caller, make_peer: MakePeer
) -> None:
    await send(broker, make_peer, b"Anna", b"Bob")
    await upload(caller, filter_server, modules.NOTHING)
    await pull(caller, filter_server, 1)
    assert broker.offsets.get(GROUP, TOPIC, 0) == -1
    await pull(caller, filter_server, 1, commit=1)
    assert broker.offsets.get(GROUP, TOPIC, 0) == 1


async def test_a_slow_module_gets_on_by_fewer_messages_a_pull(
    broker: Broker, start_filter_server: StartFilterServer, caller: Caller, make_peer: MakePeer
) -> None:
    # About 40 ms per message, so that a pull of 32 would exceed its time limit.
    slow = modules.make_module(
        "(local $n i32) (loop (local.set $n (i32.add (local.get $n) (i32.const 1)))"
        " (br_if 0 (i32.lt_u (local.get $n) (i32.const 20000000)))) (i32.const 1)"
    )
    server = await start_filter_server(broker, fuel=2**62, time_ms=1000)
    bodies = [b"%d" % number for number in range(200)]
    await send(broker, make_peer, *bodies)
    await upload(caller, server, slow)
    found, next_offset = read(await pull(caller, server))
    assert 0 < len(found) <= 32
    assert (found, next_offset) == (bodies[:next_offset], len(found))
    more, _ = read(await pull(caller, server, next_offset))
    assert more[0] == bodies[next_offset]
