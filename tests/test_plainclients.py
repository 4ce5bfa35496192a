"""The plain clients are what the generator writes from the async ones."""

from __future__ import annotations

import ast
import inspect

import pytest

import eruca
import eruca.sync
from tools.plainclients import CLIENTS, SOURCES, SYNC, Client, Writer, format_source, make_plain


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_plain_client_is_up_to_date(client: Client) -> None:
    path = SOURCES / SYNC.replace(".", "/") / f"{client.target}.py"
    assert format_source(Writer(client).write(), path) == path.read_text(encoding="utf-8"), "run `make generate`"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_plain_client_has_all_that_its_twin_has(client: Client) -> None:
    twin, plain = getattr(eruca, client.name), getattr(eruca.sync, client.name)
    for name, method in inspect.getmembers(twin):
        if name.startswith("_"):
            continue
        found = getattr(plain, name)
        if inspect.isfunction(method) and name not in {"start", "close", "run"}:
            assert list(inspect.signature(found).parameters) == list(inspect.signature(method).parameters), name


def test_docstrings_have_no_async_code() -> None:
    assert (
        make_plain(">>> async with Producer() as p:\n...     await p.send()")
        == ">>> with Producer() as p:\n...     p.send()"
    )
    for client in CLIENTS:
        doc = getattr(eruca.sync, client.name).__doc__
        examples = [line for line in doc.splitlines() if line.lstrip().startswith((">>>", "..."))]
        assert not [line for line in examples if "await" in line or "async" in line]


def test_a_method_that_needs_thought_is_refused() -> None:
    writer = Writer(CLIENTS[0])
    tree = ast.parse('class Producer:\n    async def find(self) -> dict[str, Message]:\n        """Find."""')
    method = tree.body[0].body[0]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="define _plain_find for it"):
        writer._write_method(method)
