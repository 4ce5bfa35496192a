"""What tests of connections with TLS share."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from eruca._net.tls import Tls, make_client_context
from tests.authority import Authority
from tests.unit.net.tlsserver import Run


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on one of the two loops that servers run on."""
    if request.param == "asyncio":
        return asyncio.run
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not made for this system")
    return uvloop.run  # type: ignore[no-any-return]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Signs certificates."""
    return Authority(tmp_path)


@pytest.fixture
def trusting(authority: Authority) -> ssl.SSLContext:
    """A client that trusts the authority and presents nothing."""
    return make_client_context(Tls(ca=authority.ca))


@pytest.fixture
def options(authority: Authority) -> dict[str, str]:
    """The files of a server."""
    pair = authority.issue("server")
    return {"certificate": str(pair.certificate), "key": str(pair.key)}
