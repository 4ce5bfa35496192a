"""A real Prometheus on loopback: the configuration of the repository, with other targets and shorter intervals."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

import yaml

from tests.interop.javapeer import find_ports
from tests.monitoring.queries import CONFIG, RULES
from tests.needs import expect_need
from tests.patience import PATIENCE_S

_INTERVAL = "1s"


class PrometheusServer:
    """A running Prometheus, and its HTTP API."""

    def __init__(self, address: str) -> None:
        self._address = address

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Evaluate an expression now; it must be valid."""
        result: list[dict[str, Any]] = self._ask("query", {"query": expression})["result"]
        return result

    def list_label_values(self, label: str, selector: str) -> list[str]:
        """The values of a label, as Grafana asks for them to fill a variable."""
        values: list[str] = self._ask(f"label/{label}/values", {"match[]": selector})
        return values

    def list_targets(self) -> list[dict[str, Any]]:
        """What it collects from, and how the last collection went."""
        targets: list[dict[str, Any]] = self._ask("targets")["activeTargets"]
        return targets

    def list_rules(self) -> list[dict[str, Any]]:
        """The alert rules as it evaluates them."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            with urlopen(f"http://{self._address}/-/ready", timeout=PATIENCE_S) as answer:
                return bool(answer.status == 200)
        except (URLError, ConnectionError):
            return False

    def _ask(self, path: str, parameters: dict[str, str] | None = None) -> Any:
        url = f"http://{self._address}/api/v1/{path}?{urlencode(parameters or {})}"
        with urlopen(url, timeout=PATIENCE_S) as answer:
            told = json.loads(answer.read())
        assert told["status"] == "success", told
        return told["data"]


@contextmanager
def run_prometheus(home: Path, urls: Sequence[str], wait: Any) -> Iterator[PrometheusServer]:
    """Run one that collects from these pages; `wait` is called with a condition until it holds."""
    expect_need("prometheus")
    home.mkdir()
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL}
    config["rule_files"] = [str(RULES)]
    (job,) = config["scrape_configs"]
    job["static_configs"] = [{"targets": [urlsplit(url).netloc for url in urls]}]
    (home / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{find_ports()}"
    command = [
        "prometheus",
        f"--config.file={home / 'prometheus.yml'}",
        f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (home / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            server = PrometheusServer(address)
            wait(lambda: process.poll() is not None or server.is_ready())
            assert process.poll() is None, (home / "prometheus.log").read_text()
            yield server
        finally:
            process.terminate()


def run_promtool(*arguments: str | Path) -> str:
    """Run `promtool`; it must succeed."""
    expect_need("prometheus")
    run = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout
