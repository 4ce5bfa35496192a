"""Every argument of every client and of its settings is checked: a wrong one is refused at the call, by name."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

import eruca
from eruca import sync
from eruca._client.arguments import check_hooks
from eruca.errors import ConfigError, ErucaError

SERVER = "127.0.0.1:9876"
_CLIENT = {"nameservers": SERVER, "group": "billing"}
_KINDS: dict[str, dict[str, Any]] = {
    "ClientOptions": {},
    "Producer": _CLIENT,
    "TransactionalProducer": {**_CLIENT, "check": lambda message: None},
    "Consumer": _CLIENT,
    "PullConsumer": _CLIENT,
    "ScheduledPull": _CLIENT,
    "Flow": {},
    "Retry": {},
    "Rebalance": {},
    "Offsets": {},
    "Tls": {},
    "Sql": {"text": "a = 1"},
}


_ARGUMENTS = [
    pytest.param(kind, needed, parameter, id=f"{module.__name__}.{name}-{parameter}")
    for module in (eruca, sync)
    for name, needed in _KINDS.items()
    for kind in [getattr(module, name)]
    for parameter in signature(kind).parameters
]


class Odd:
    """What no argument takes."""

    def __repr__(self) -> str:
        return "<odd>"


@pytest.mark.parametrize(("kind", "needed", "argument"), _ARGUMENTS)
def test_a_value_of_a_wrong_type_is_refused_by_name(kind: Any, needed: dict[str, Any], argument: str) -> None:
    with pytest.raises(ErucaError, match=argument):
        kind(**{**needed, argument: Odd()})


@pytest.mark.parametrize("secret", [{"security_token": b"oops"}, {"access_key": "shop", "secret_key": b"oops"}])
def test_a_secret_of_a_wrong_type_is_not_shown(secret: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^(security_token|secret_key): expected str, not bytes$"):
        eruca.ClientOptions(**secret)


def test_a_password_of_a_wrong_type_is_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"^Tls\(key_password=...\): expected str, not bytes$"):
        eruca.Tls(certificate="a.pem", key_password=b"oops")  # type: ignore[arg-type]


class Half:
    """A hook without one of the methods."""

    def before_send(self, parcel: object, queue: object) -> None: ...

    def before_consume(self, messages: object) -> None: ...


@pytest.mark.parametrize("kind", [eruca.Producer, eruca.Consumer, sync.Producer, sync.Consumer])
def test_a_hook_without_a_method_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match=r"hooks: <.*Half.*> has no method after_(send|consume)"):
        kind(SERVER, group="billing", hooks=[Half()])


def test_hooks_are_read_once() -> None:
    hooks = iter([Half()])
    assert len(check_hooks(hooks, "before_send")) == 1
