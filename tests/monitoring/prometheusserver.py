"""A real Prometheus on loopback: the configuration of the repository, with other targets and shorter intervals."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

import yaml

from tests.interop.javapeer import find_ports
from tests.monitoring.queries import CONFIG, RULES
from tests.needs import expect_need
from tests.patience import PATIENCE_S

_INTERVAL = "1s"
_POLL_S = 0.1


class PrometheusServer:
    """A running Prometheus, and its HTTP API."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """Evaluate an expression now; it must be valid."""
        result: list[dict[str, Any]] = (await self._ask("query", {"query": expression}))["result"]
        return result

    async def list_label_values(self, label: str, selector: str) -> list[str]:
        """The values of a label, as Grafana asks for them to fill a variable."""
        values: list[str] = await self._ask(f"label/{label}/values", {"match[]": selector})
        return values

    async def list_targets(self) -> list[dict[str, Any]]:
        """What it collects from, and how the last collection went."""
        targets: list[dict[str, Any]] = (await self._ask("targets"))["activeTargets"]
        return targets

    async def list_rules(self) -> list[dict[str, Any]]:
        """The alert rules as it evaluates them."""
        return [rule for group in (await self._ask("rules"))["groups"] for rule in group["rules"]]

    async def is_ready(self) -> bool:
        """Whether it answers."""
        with suppress(OSError):
            await asyncio.to_thread(_fetch, f"http://{self._address}/-/ready")
            return True
        return False

    async def _ask(self, path: str, parameters: dict[str, str] | None = None) -> Any:
        url = f"http://{self._address}/api/v1/{path}?{urlencode(parameters or {})}"
        told = json.loads(await asyncio.to_thread(_fetch, url))
        assert told["status"] == "success", told
        return told["data"]


def _fetch(url: str) -> bytes:
    with urlopen(url, timeout=PATIENCE_S) as answer:
        text: bytes = answer.read()
        return text


@asynccontextmanager
async def run_prometheus(home: Path, urls: Sequence[str]) -> AsyncIterator[PrometheusServer]:
    """Run one that collects from these pages."""
    expect_need("prometheus")
    address = f"127.0.0.1:{find_ports()}"
    process = await asyncio.to_thread(_spawn, home, urls, address)
    server = PrometheusServer(address)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await server.is_ready():
                assert process.poll() is None, (home / "prometheus.log").read_text()
                await asyncio.sleep(_POLL_S)
        yield server
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


def _spawn(home: Path, urls: Sequence[str], address: str) -> subprocess.Popen[bytes]:
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL}
    config["rule_files"] = [str(RULES)]
    (job,) = config["scrape_configs"]
    job["static_configs"] = [{"targets": [urlsplit(url).netloc for url in urls]}]
    home.mkdir()
    (home / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        "prometheus",
        f"--config.file={home / 'prometheus.yml'}",
        f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (home / "prometheus.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def run_promtool(*arguments: str | Path) -> str:
    """Run `promtool`, which must succeed; returns what it printed."""
    expect_need("prometheus")
    command = ["promtool", *map(str, arguments)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert run.returncode == 0, run.stdout
    return run.stdout
