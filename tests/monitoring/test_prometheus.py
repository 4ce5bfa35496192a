"""A real Prometheus collects from a cluster: every query of the dashboards and of the alert rules returns data.

Grafana itself is not run: it is in no package registry that this project uses. The queries are those that it sends.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from eruca.admin import Admin
from tests.figures import note_figures
from tests.monitoring.conftest import Cluster
from tests.monitoring.prometheusserver import PrometheusServer, run_prometheus, run_promtool
from tests.monitoring.queries import (
    CONFIG,
    RULES,
    list_operands,
    list_panel_queries,
    list_rules,
    list_variable_queries,
)
from tests.monitoring.workload import run_workload
from tests.needs import needs
from tests.patience import PATIENCE_S
from tests.replication.etcdserver import EtcdServer

pytestmark = needs("prometheus")

# What the workload does wrong: a producer left a transaction open, a group left with unread messages, and dead letters.
ALWAYS_ACTIVE = {"ErucaHalvesWithoutProducer", "ErucaMetricsLeftOut", "ErucaGroupStuck"}
# The last one is about the disk of this machine.
PERHAPS_ACTIVE = {"ErucaDeadLettersGrow", "ErucaRefuses", "ErucaDiskFilling"}
RULE_TESTS = Path(__file__).with_name("rules_test.yml")
# These are shown only if it happens: that a value is refused, and that rows are left out (a slave has one per role).
_KEYS_MAX = 4096
_ROWS_MAX = 2
_POLL_S = 0.5


async def poll(ask: Callable[[], Awaitable[bool]], what: Callable[[], object]) -> None:
    """Wait for a condition; `what` is the reason if it never holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while not await ask():
        assert loop.time() < deadline, what()
        await asyncio.sleep(_POLL_S)


async def refuse_something(nameserver: str) -> None:
    """Store a value that is too large."""
    async with Admin(nameserver) as admin:
        assert not (await admin.nameservers.set_config({"maxKVConfigBytes": str(_KEYS_MAX)})).failed
        assert (await admin.nameservers.kv_put("limits", "long", "x" * 2 * _KEYS_MAX)).failed


async def has_number(prometheus: PrometheusServer, query: str) -> bool:
    """Whether a query returns at least one number."""
    return any(not math.isnan(float(row["value"][1])) for row in await prometheus.query(query))


async def check_targets(prometheus: PrometheusServer) -> None:
    """Both servers are collected from without errors."""

    async def are_up() -> bool:
        targets = await prometheus.list_targets()
        return len(targets) == 2 and all(target["health"] == "up" for target in targets)

    await poll(are_up, lambda: "not all targets are up")
    assert [target["lastError"] for target in await prometheus.list_targets()] == ["", ""]


class Wanted:
    """What must have data, read from the files."""

    def __init__(self) -> None:
        rules = list_rules()
        self.alerts = {rule["alert"] for rule in rules}
        self.variables = list(list_variable_queries())
        # Of every panel, and the operands of every rule.
        self.queries = list(list_panel_queries())
        self.queries += [(rule["alert"], each) for rule in rules for each in list_operands(rule["expr"])]
        assert len(self.queries) > 100


async def check_queries(prometheus: PrometheusServer, wanted: Wanted) -> None:
    """Every panel, every variable and every operand of a rule has data."""
    missing = dict(enumerate(wanted.queries))

    async def are_there() -> bool:
        for number, (_, query) in list(missing.items()):
            if await has_number(prometheus, query):
                del missing[number]
        return not missing

    await poll(are_there, lambda: f"no data: {list(missing.values())}")
    for selector, label in wanted.variables:
        assert await prometheus.list_label_values(label, selector), (label, selector)


async def check_rules(prometheus: PrometheusServer, wanted: Wanted) -> None:
    """Every rule is evaluated without errors, and those that fire or soon will are those that should."""

    async def are_evaluated() -> bool:
        rules = await prometheus.list_rules()
        return {rule["name"] for rule in rules} == wanted.alerts and all(rule["health"] != "unknown" for rule in rules)

    await poll(are_evaluated, lambda: "not all rules were evaluated")
    rules = await prometheus.list_rules()
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}
    active: set[str] = set()

    async def are_right() -> bool:
        active.clear()
        active.update(rule["name"] for rule in await prometheus.list_rules() if rule["state"] != "inactive")
        return ALWAYS_ACTIVE <= active <= ALWAYS_ACTIVE | PERHAPS_ACTIVE

    await poll(are_right, lambda: active)


@needs("etcd")
async def test_every_query_returns_data(tmp_path: Path) -> None:
    wanted = await asyncio.to_thread(Wanted)
    async with EtcdServer(tmp_path / "etcd") as etcd:
        failover = ("failover=etcd", f"etcdEndpoints={etcd.endpoint}")
        few = [f"metricsMaxLabelSets={_ROWS_MAX}"]
        cluster = await asyncio.to_thread(Cluster, tmp_path / "cluster", *failover, of_slave=few)
        try:
            async with (
                run_workload(cluster.nameserver, tmp_path),
                run_prometheus(tmp_path / "prometheus", cluster.urls) as prometheus,
            ):
                await check_targets(prometheus)
                await refuse_something(cluster.nameserver)
                await check_queries(prometheus, wanted)
                await check_rules(prometheus, wanted)
        finally:
            await asyncio.to_thread(cluster.end)
    note_figures(
        f"Prometheus: {len(wanted.queries)} queries of dashboards and rules return data,"
        f" {len(wanted.variables)} variables have values, {len(wanted.alerts)} rules are evaluated"
    )


def test_promtool_accepts_the_rules() -> None:
    assert f"SUCCESS: {len(list_rules())} rules found" in run_promtool("check", "rules", RULES)
    assert "SUCCESS" in run_promtool("check", "config", CONFIG)


def test_every_alert_fires_when_it_should() -> None:
    """`rules_test.yml` has a fault and a healthy time for each of them."""
    tested = yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tested for case in test["alert_rule_test"]]
    fires = {case["alertname"] for case in cases if case["exp_alerts"]}
    rests = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert fires == rests == {rule["alert"] for rule in list_rules()}
    run_promtool("test", "rules", RULE_TESTS)


@pytest.mark.parametrize(
    ("rule", "operands"),
    [
        ("a == 0", ["a == bool 0"]),
        ('max(a{b="c"}) > on (d) group_left 0.8 * e', ['max(a{b="c"}) > bool on (d) group_left 0.8 * e']),
        ("a > 0 unless on (b, c) d > 1", ["a > bool 0", "d > bool 1"]),
    ],
)
def test_the_operands_of_a_rule(rule: str, operands: list[str]) -> None:
    assert list_operands(rule) == operands
