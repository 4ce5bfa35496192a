"""What tests of HTTP/2 share."""

from __future__ import annotations

import pytest

from eruca._net import turns
from eruca._net.http2 import link


@pytest.fixture(autouse=True)
def take_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a slice may end after any frame: `test_http2_fairness` tests that."""
    if "fairness" not in request.path.name:
        for module in (link, turns):
            monkeypatch.setattr(module, "SLICE_SECONDS", 3600.0)
