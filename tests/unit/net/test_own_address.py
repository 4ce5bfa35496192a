"""The IP address of a host name: what records hold, and what is logged when there is none."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from eruca._net.addresses import find_ip
from eruca.errors import ConfigError

V4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.5", 0))
V6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::5", 0, 0, 0))


@pytest.mark.parametrize("ip", ["10.0.0.1", "::1", "fe80::1%eth0"])
async def test_an_address_is_its_own(ip: str) -> None:
    assert await find_ip(ip) == ip


@pytest.mark.parametrize(("found", "ip"), [([V6, V4], "10.0.0.5"), ([V6], "fd00::5")])
async def test_a_name_has_an_address(monkeypatch: pytest.MonkeyPatch, found: list[Any], ip: str) -> None:
    async def answer(*_: object, **__: object) -> list[Any]:
        return found

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", answer)
    assert await find_ip("member-0.members") == ip


async def test_a_name_that_is_known_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    async def answer(*_: object, **__: object) -> list[Any]:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise socket.gaierror(-2, "Name or service not known")
        return [V4]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", answer)
    assert (await find_ip("member-0.members"), asked) == ("10.0.0.5", 3)


async def test_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the name nowhere\.invalid has no address.*brokerIP1"):
        await find_ip("nowhere.invalid", patience_s=0)
