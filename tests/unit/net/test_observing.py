"""The port for metrics and health: its pages, who may read them, what a collection costs others."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from eruca._ground.limits import SLICE_SECONDS
from eruca._net import observing
from eruca._net.metricsoptions import MetricsOptions
from eruca._net.observing import LoopLag, MetricsPort
from eruca._net.tls import Tls, make_client_context
from eruca._net.tlsoptions import TlsMode, TlsOptions
from eruca._observe.figures import Description, Figures, Kind
from eruca.errors import ConfigError, ConnectFailed
from tests.authority import Authority
from tests.unit.net.rawpeer import turn_until
from tests.unit.net.webclient import get
from tests.unit.observe.test_otlp import run_collector

LENGTH = Description("test_length", Kind.GAUGE, "Length of a queue.", ("queue",))


class Server:
    """A server with as many queues as wanted."""

    def __init__(self, queues: int = 2, obstacles: list[str] | None = None) -> None:
        self.queues = queues
        self.obstacles = obstacles or []
        self.collections = 0

    def list_obstacles(self) -> list[str]:
        return self.obstacles

    async def collect_figures(self, rows_max: int) -> AsyncIterator[Figures]:
        self.collections += 1
        yield Figures(LENGTH, [((f"q{number}",), number) for number in range(self.queues)])


@asynccontextmanager
async def open_port(
    server: Server, tls: TlsOptions | None = None, shared_s: float = 0.0, **options: Any
) -> AsyncIterator[int]:
    port = MetricsPort(MetricsOptions(port=0, **options), {"server": server}, tls=tls, shared_s=shared_s)
    await port.start()
    try:
        yield int(port.address.rpartition(":")[2].partition("/")[0])
    finally:
        await port.stop()
    assert port.address == ""


def read_metrics(text: str) -> dict[tuple[str, ...], float]:
    """The values by name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value for family in parse_text(text) for sample in family.samples
    }


async def test_metrics() -> None:
    async with open_port(Server(3)) as port:
        found = await get(port, "/metrics")
        assert (found.status, found.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        values = read_metrics(found.text)
        assert [values["test_length", f"q{number}"] for number in range(3)] == [0, 1, 2]
        assert values["eruca_ready",] == 1
        assert values["process_resident_memory_bytes",] > 0
        found = await get(port, "/metrics", Accept="application/openmetrics-text")
        assert found.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert found.text.endswith("# EOF\n")


async def test_health_and_readiness() -> None:
    server = Server(obstacles=["the disk is full"])
    async with open_port(server) as port:
        found = await get(port, "/readyz")
        assert (found.status, found.headers["content-type"]) == (503, "application/json")
        assert json.loads(found.text) == {"ready": False, "reasons": ["server: the disk is full"]}
        assert read_metrics((await get(port, "/metrics")).text)["eruca_ready",] == 0
        found = await get(port, "/healthz")
        assert (found.status, json.loads(found.text)) == (200, {"status": "ok"})
        server.obstacles = []
        found = await get(port, "/readyz")
        assert (found.status, json.loads(found.text)) == (200, {"ready": True, "reasons": []})


async def test_other_pages() -> None:
    async with open_port(Server()) as port:
        assert (await get(port, "/")).text == "/metrics, /healthz, /readyz\n"
        found = await get(port, "/metrics/../etc")
        assert (found.status, found.text) == (404, "no such page; there are /metrics, /healthz, /readyz\n")


async def test_a_token() -> None:
    server = Server()
    async with open_port(server, token="sesame-1234") as port:
        for presented in ("", "Bearer", "Bearer sesame-123", "Bearer sesame-12345", "Basic sesame-1234", "sesame-1234"):
            found = await get(port, "/metrics", Authorization=presented)
            assert found.status == 401, presented
            assert found.headers["www-authenticate"] == 'Bearer realm="eruca"'
            assert "test_length" not in found.text
            assert "sesame" not in found.text
        assert (await get(port, "/metrics", Authorization="Bearer sesame-1234")).status == 200
        # Load balancers have no token, and learn nothing but whether it is ready.
        assert (await get(port, "/readyz")).status == 200
        assert (await get(port, "/healthz")).status == 200
        server.obstacles = ["10.0.0.1:9876 does not answer"]
        found = await get(port, "/readyz")
        assert (found.status, json.loads(found.text)) == (503, {"ready": False, "reasons": []})
        found = await get(port, "/readyz", Authorization="Bearer sesame-1234")
        assert json.loads(found.text)["reasons"] == ["server: 10.0.0.1:9876 does not answer"]


async def test_label_sets_are_limited() -> None:
    async with open_port(Server(100), rows_max=10) as port:
        values = read_metrics((await get(port, "/metrics")).text)
        assert len([key for key in values if key[0] == "test_length"]) == 10
        assert values["eruca_metrics_left_out", "test_length"] == 90


async def test_those_who_ask_at_the_same_time_share_a_collection() -> None:
    server = Server()
    async with open_port(server, shared_s=3600) as port:
        found = await asyncio.gather(*[get(port, "/metrics") for _ in range(10)])
        assert len({each.body for each in found}) == 1
        assert server.collections == 1
        await get(port, "/metrics", Accept="application/openmetrics-text")
        assert server.collections == 2


async def test_later_ones_get_new_figures() -> None:
    server = Server(1)
    async with open_port(server) as port:
        await get(port, "/metrics")
        server.queues = 2
        assert ("test_length", "q1") in read_metrics((await get(port, "/metrics")).text)


async def test_a_long_collection_gives_others_their_turn() -> None:
    """A hundred thousand rows take a second; meanwhile, the loop turns every few milliseconds."""
    longest = 0.0
    async with open_port(Server(100_000), rows_max=1_000_000) as port:
        asking = asyncio.create_task(get(port, "/metrics"))
        began = perf_counter()
        turns = 0
        while not asking.done():
            await asyncio.sleep(0)
            turns += 1
            now = perf_counter()
            longest, began = max(longest, now - began), now
        assert len((await asking).body) > 2_000_000
    assert turns > 100, (turns, longest)


async def test_a_slice_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = 0

    class Counted:
        """Slices on a clock that advances with every look: ten looks are one slice."""

        def __init__(self) -> None:
            self.looks = 0

        @property
        def is_over(self) -> bool:
            self.looks += 1
            return self.looks % 10 == 0

        async def rest(self) -> None:
            nonlocal rests
            rests += 1

    monkeypatch.setattr(observing, "Slices", Counted)
    async with open_port(Server(1000)) as port:
        await get(port, "/metrics")
    assert rests >= 100
    assert SLICE_SECONDS <= 0.005


def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    context = make_client_context(Tls(ca=str(authority.ca)))
    options = {"certificate": str(pair.certificate), "key": str(pair.key)}

    async def check() -> None:
        async with open_port(Server(), TlsOptions(**options)) as port:  # type: ignore[arg-type]
            assert (await get(port, "/healthz", context)).status == 200
            assert (await get(port, "/healthz")).status == 200
        async with open_port(Server(), TlsOptions(mode=TlsMode.ENFORCING, **options)) as port:  # type: ignore[arg-type]
            assert (await get(port, "/healthz", context)).status == 200
            with pytest.raises((ConnectionError, IndexError, ssl.SSLError)):
                await get(port, "/healthz")

    asyncio.run(check())


async def test_the_address_is_a_url() -> None:
    for options, tls, start in (
        ({}, TlsOptions(), "http://127.0.0.1:"),
        ({"bind": "::1"}, TlsOptions(), "http://[::1]:"),
        ({}, TlsOptions(mode=TlsMode.ENFORCING), "https://127.0.0.1:"),
    ):
        port = MetricsPort(MetricsOptions(port=0, **options), {}, tls=tls)  # type: ignore[arg-type]
        await port.start()
        assert port.address.startswith(start)
        await port.stop()


async def test_a_taken_port() -> None:
    async with open_port(Server()) as taken:
        port = MetricsPort(MetricsOptions(port=taken), {})
        with pytest.raises(ConnectFailed, match=f"cannot listen on 127.0.0.1:{taken}"):
            await port.start()
        await port.stop()


def test_metrics_are_sent_to_a_collector() -> None:
    async def send(endpoint: str) -> None:
        port = MetricsPort(MetricsOptions(otlp_endpoint=endpoint), {"server": Server()})
        await port.start()
        assert port.address == ""
        await turn_until(lambda: bool(received))
        await port.stop()

    with run_collector() as (endpoint, received):
        asyncio.run(send(endpoint))
    metrics = {each.name: each for each in received[0].resource_metrics[0].scope_metrics[0].metrics}
    assert [point.as_int for point in metrics["test_length"].gauge.data_points] == [0, 1]
    assert "process_resident_memory_bytes" in metrics


async def test_a_collector_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    port = MetricsPort(MetricsOptions(otlp_endpoint="http://x"), {})
    with pytest.raises(ConfigError, match="needs the SDK"):
        await port.start()


async def test_the_lag_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "_LAG_INTERVAL_S", 0.005)
    lag = LoopLag()
    lag.start()
    await turn_until(lambda: lag.histogram.count > 2)
    busy_until = perf_counter() + 0.3
    while perf_counter() < busy_until:
        pass
    seen = lag.histogram.count
    await turn_until(lambda: lag.histogram.count > seen)
    await lag.stop()
    late = dict(lag.histogram.list_buckets())
    assert late["+Inf"] - late["0.1"] >= 1
