"""Every method of the admin, async and plain, on Eruca and on Java's broker; the two have the same methods."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from eruca import ClientOptions
from tests.admin.stage import FLAVOURS, Case, list_methods, open_stage
from tests.interop.brokers import Cluster
from tests.interop.guarded import WHO, Guarded

_FILES = sorted(path.stem for path in Path(__file__).parent.glob("cases_*.py"))
_OPTIONS: dict[str, Any] = {"call_timeout": 15.0, "route_interval": 0.5}


def list_cases(file: str) -> dict[str, Case]:
    """The cases of a file by name."""
    module = importlib.import_module(f"tests.admin.{file}")
    return {name.removeprefix("case_"): case for name, case in vars(module).items() if name.startswith("case_")}


CASES = {name: case for file in _FILES if file != "cases_guarded" for name, case in list_cases(file).items()}
GUARDED = list_cases("cases_guarded")


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("case", CASES)
async def test_methods(cluster: Cluster, flavour: str, case: str) -> None:
    options = ClientOptions(**_OPTIONS)
    async with open_stage(cluster.kind, flavour, cluster.name_server, case.replace("_", "-"), options) as stage:
        await CASES[case](stage)
        assert stage.noted.called >= CASES[case].__dict__["covers"]


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("case", GUARDED)
@pytest.mark.parametrize("guarded", ["eruca", pytest.param("java", marks=pytest.mark.needs("java"))], indirect=True)
async def test_methods_with_accounts(guarded: Guarded, flavour: str, case: str) -> None:
    who = WHO["admin"]
    assert who is not None
    options = ClientOptions(**_OPTIONS, access_key=who.access_key, secret_key=who.secret_key)
    async with open_stage(guarded.kind, flavour, guarded.name_server, case.replace("_", "-"), options) as stage:
        await GUARDED[case](stage)
        assert stage.noted.called >= GUARDED[case].__dict__["covers"]


def test_every_method_has_a_case() -> None:
    covered: set[str] = set()
    for case in [*CASES.values(), *GUARDED.values()]:
        covered |= case.__dict__["covers"]
    assert covered == list_methods()
