"""A start that fails, or is cancelled, leaves nothing behind: it can be retried at once."""

from __future__ import annotations

import asyncio
import random
import socket
from pathlib import Path
from typing import Any

import pytest

from eruca._broker import app, opening
from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._filterserver.app import FilterServer
from eruca._filterserver.options import FilterServerOptions
from eruca._ground.config import StoreOptions
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca._store.messagestore import open_store
from eruca.errors import ConnectFailed, ErucaError, StoreError
from tests.integration.broker.peer import find_port

SMALL = {"commitlog_segment_bytes": 1 << 20, "consumequeue_segment_bytes": 2000, "index_slots": 5, "index_entries": 20}


def make(root: Path, store: dict[str, Any] | None = None, **options: Any) -> Broker:
    options = {"port": find_port(), **options}
    return Broker(BrokerOptions(**options), StoreOptions(**(SMALL | (store or {}))), root)


async def check_free(root: Path) -> None:
    """The store is closed, and cleanly."""
    broker = make(root)
    await broker.start()
    await broker.stop()
    assert not await asyncio.to_thread((root / "abort").exists)


@pytest.mark.parametrize("name", ["load_once", "open_members", "Acknowledgement", "Schedule", "Registration"])
async def test_a_part_that_cannot_be_made_leaves_the_store_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreError("broken")

    broker = make(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(app, name, fail)
        with pytest.raises(StoreError, match="broken"):
            await broker.start()
    await check_free(tmp_path)
    # The same object, too.
    await broker.start()
    await broker.stop()


async def test_levels_that_make_no_sense_leave_the_store_free(tmp_path: Path) -> None:
    with pytest.raises(ErucaError, match="messageDelayLevel"):
        await make(tmp_path, {"delay_levels": "1s never"}).start()
    await check_free(tmp_path)


async def test_a_client_of_etcd_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Client:
        async def close(self) -> None:
            closed.append("closed")

    async def open_client(_: BrokerOptions) -> Client:
        return Client()

    monkeypatch.setattr(app, "open_client", open_client)
    holder = make(tmp_path)
    await holder.start()
    second = make(tmp_path, failover="etcd")
    with pytest.raises(ErucaError):  # the store is in use
        await second.start()
    assert closed == ["closed"]
    await holder.stop()


async def test_a_start_that_is_cancelled_while_it_recovers_ends_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovering, going_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    ended: list[BaseException] = []
    real = open_store

    def open_slowly(*given: Any, progress: Any, **more: Any) -> Any:
        loop.call_soon_threadsafe(recovering.set)
        asyncio.run_coroutine_threadsafe(going_on.wait(), loop).result(60)
        try:
            progress(1)
        except StoreError as error:
            ended.append(error)
            raise
        return real(*given, progress=progress, **more)

    monkeypatch.setattr(opening, "open_store", open_slowly)
    starting = asyncio.create_task(make(tmp_path).start())
    await recovering.wait()
    starting.cancel()
    await asyncio.sleep(0)
    going_on.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert len(ended) == 1
    monkeypatch.setattr(opening, "open_store", real)
    await check_free(tmp_path)


async def test_a_start_that_is_cancelled_after_it_recovered_closes_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = asyncio.Event()
    loop = asyncio.get_running_loop()
    real = open_store
    going_on = asyncio.Event()

    def open_and_wait(*given: Any, **more: Any) -> Any:
        store = real(*given, **more)
        loop.call_soon_threadsafe(opened.set)
        asyncio.run_coroutine_threadsafe(going_on.wait(), loop).result(60)
        return store

    monkeypatch.setattr(opening, "open_store", open_and_wait)
    starting = asyncio.create_task(make(tmp_path).start())
    await opened.wait()
    starting.cancel()
    await asyncio.sleep(0)
    going_on.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    monkeypatch.setattr(opening, "open_store", real)
    await check_free(tmp_path)


@pytest.mark.parametrize("kind", ["nameserver", "filterserver"])
async def test_a_taken_port_leaves_nothing_of_other_servers(tmp_path: Path, kind: str) -> None:
    server: NameServer | FilterServer
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        if kind == "nameserver":
            server = NameServer(NameServerOptions(listen_port=port, kv_config_path=str(tmp_path / "kv.json")))
        else:
            server = FilterServer(FilterServerOptions(port=port, register_interval_ms=1))
        with pytest.raises(ConnectFailed):
            await server.start()
    assert len(asyncio.all_tasks()) == 1
    if isinstance(server, FilterServer):
        assert server._sandbox is None


@pytest.mark.parametrize("beside", [-2, 1])
async def test_a_port_that_a_broker_chooses_has_free_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: int
) -> None:
    taken, free = find_port(), find_port()
    choices = [taken, taken, free]
    monkeypatch.setattr(random, "choice", lambda ports: choices.pop(0))
    broker = make(tmp_path, port=0)
    with socket.create_server(("127.0.0.1", taken + beside)):
        await broker.start()
        assert broker.standing.port == free
        await broker.stop()
    assert choices == []
