"""The plain clients are what the generator writes from the async ones."""

from __future__ import annotations

import ast
import importlib
import inspect
from typing import Any

import pytest

import eruca.admin
import eruca.sync
from eruca._admin.sync.base import PlainPart
from tools.plainclients import CLIENTS, Client, Writer, format_source, make_plain


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_plain_client_is_up_to_date(client: Client) -> None:
    path = client.path
    assert format_source(Writer(client).write(), path) == path.read_text(encoding="utf-8"), "run `make generate`"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_plain_client_has_all_that_its_twin_has(client: Client) -> None:
    twin, plain = find_twin(client), find_plain(client)
    for name, method in inspect.getmembers(twin):
        if name.startswith("_"):
            continue
        found = getattr(plain, name)
        if inspect.isfunction(method) and name not in {"start", "close", "run"}:
            assert list(inspect.signature(found).parameters) == list(inspect.signature(method).parameters), name


def find_twin(client: Client) -> type[Any]:
    found: type[Any] = getattr(importlib.import_module(client.source), client.name)
    return found


def find_plain(client: Client) -> type[Any]:
    found: type[Any] = getattr(importlib.import_module(f"{client.package}.{client.target}"), client.name)
    return found


@pytest.mark.parametrize("client", [each for each in CLIENTS if not each.is_part], ids=lambda client: client.name)
def test_a_plain_client_is_public(client: Client) -> None:
    assert getattr(eruca.sync, client.name) is find_plain(client)


def test_every_part_of_the_admin_has_a_plain_twin() -> None:
    admin, plain = eruca.admin.Admin("127.0.0.1:1"), eruca.sync.Admin("127.0.0.1:1")
    parts = {name: part for name, part in vars(admin).items() if name != "connection"}
    found = {name: type(part) for name, part in vars(plain).items() if isinstance(part, PlainPart)}
    twins = {find_twin(client): find_plain(client) for client in CLIENTS}
    assert found == {name: twins[type(part)] for name, part in parts.items()}


def test_docstrings_have_no_async_code() -> None:
    assert (
        make_plain(">>> async with Producer() as p:\n...     await p.send()")
        == ">>> with Producer() as p:\n...     p.send()"
    )
    for client in CLIENTS:
        doc = find_plain(client).__doc__ or ""
        examples = [line for line in doc.splitlines() if line.lstrip().startswith((">>>", "..."))]
        assert not [line for line in examples if "await" in line or "async" in line]


def test_a_method_that_needs_thought_is_refused() -> None:
    writer = Writer(CLIENTS[0])
    tree = ast.parse('class Producer:\n    async def find(self) -> dict[str, Message]:\n        """Find."""')
    method = tree.body[0].body[0]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="define _plain_find for it"):
        writer._write_method(method)
