"""Asks for `/metrics` as Prometheus does, and reads it with the parser of its Python client."""

from __future__ import annotations

import asyncio
from urllib.request import Request, urlopen

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.patience import PATIENCE_S

Labels = dict[str, str]
Values = dict[str, list[tuple[Labels, float]]]


def fetch(url: str, accept: str = "text/plain") -> str:
    """The text of a page."""
    with urlopen(Request(url, headers={"Accept": accept}), timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def parse(text: str) -> list[Metric]:
    """The metrics of a page."""
    return list(text_string_to_metric_families(text))


def list_values(families: list[Metric]) -> Values:
    """The labels and values of each sample name."""
    values: Values = {}
    for family in families:
        for sample in family.samples:
            values.setdefault(sample.name, []).append((sample.labels, sample.value))
    return values


async def read_values(url: str) -> Values:
    """The values of a page now."""
    return list_values(parse(await asyncio.to_thread(fetch, url)))
