"""Which addresses webhooks may reach."""

from __future__ import annotations

import pytest

from eruca._console.watching.targets import Targets
from eruca.errors import ConfigError

INTERNAL = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
    "2002:a00:1::1", "240.0.0.1", "192.0.0.8",
    "fec0::1", "64:ff9b:1::808:808", "5f00::1", "4000::1", "::ffff:0:127.0.0.1",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", INTERNAL)
def test_no_internal_address_without_being_named(address: str) -> None:
    with pytest.raises(ConfigError, match="may not reach"):
        Targets("").choose("hooks.example.com", 443, [address])


@pytest.mark.parametrize("address", PUBLIC)
def test_every_public_address(address: str) -> None:
    assert Targets("").choose("hooks.example.com", 443, [address]) == address


def test_a_list_allows_nothing_else() -> None:
    targets = Targets("hooks.example.com; *.corp.example:8443 ;10.1.0.0/16")
    assert targets.choose("hooks.example.com", 443, ["10.9.9.9"]) == "10.9.9.9"
    assert targets.choose("HOOKS.example.com.", 80, ["8.8.8.8"]) == "8.8.8.8"
    assert targets.choose("a.b.corp.example", 8443, ["127.0.0.1"]) == "127.0.0.1"
    assert targets.choose("anything", 1, ["8.8.8.8", "10.1.2.3"]) == "10.1.2.3"
    for host, port in [("a.corp.example", 443), ("corp.example", 8443), ("evilhooks.example.com", 443)]:
        with pytest.raises(ConfigError):
            targets.choose(host, port, ["8.8.8.8"])


@pytest.mark.parametrize("text", ["10.0.0.0/99", "ho st", "a:0", "a:x", "a:99999", "a*b", "*.*.x"])
def test_a_wrong_list_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="alarmWebhookTargets"):
        Targets(text)
