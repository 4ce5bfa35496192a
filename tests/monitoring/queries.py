"""The queries of the Grafana dashboards and of the alert rules, and the metrics they name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.paths import REPOSITORY

DASHBOARDS = REPOSITORY / "deploy" / "grafana"
RULES = REPOSITORY / "deploy" / "prometheus" / "rules.yml"
CONFIG = RULES.with_name("prometheus.yml")
_STRING = re.compile(r'"[^"]*"')
_COMPARISON = re.compile(r"(==|!=|<=|>=|<|>)(?= )")
_SET_OPERATOR = re.compile(r"\b(?:unless|and) on \([\w, ]+\)")
_METRIC = re.compile(r"\b(?:rocketmq|eruca|process)_\w+|\bup\b")


def read_dashboards() -> dict[str, Any]:
    """The dashboards by the name of their file."""
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(DASHBOARDS.glob("*.json"))}


def list_panel_queries() -> Iterator[tuple[str, str]]:
    """The queries of all panels with dashboard and title, without the variables of Grafana."""
    for name, dashboard in read_dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", fill_in(target["expr"])


def fill_in(query: str) -> str:
    """A query as Grafana sends it with all values chosen, over a short range."""
    query = query.replace("[$__rate_interval]", "[30s]")
    query = re.sub(r"\$\w+", ".*", query)
    assert "$" not in query
    return query


def list_variable_queries() -> Iterator[tuple[str, str]]:
    """The queries that list the values of variables: what is in `label_values(...)`, and the label."""
    for dashboard in read_dashboards().values():
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
                assert found, variable["query"]
                yield fill_in(found[1]), found[2]


def list_rules() -> list[dict[str, Any]]:
    """The alert rules."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def list_queries() -> Iterator[str]:
    """All queries."""
    for _, query in list_panel_queries():
        yield query
    for query, _ in list_variable_queries():
        yield query
    for rule in list_rules():
        yield rule["expr"]


def list_operands(rule: str) -> list[str]:
    """The parts of an alert rule that must have data at any time, so that it can fire.

    A comparison answers 0 or 1 instead of nothing, and both sides of `unless` and `and` count.
    """
    return [_COMPARISON.sub(r"\1 bool", each).strip() for each in _SET_OPERATOR.split(rule)]


def list_names(query: str) -> set[str]:
    """The metrics that a query names."""
    return set(_METRIC.findall(_STRING.sub('""', query)))
