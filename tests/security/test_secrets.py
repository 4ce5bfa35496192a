"""Secrets stay where they belong: a run with everything that has one, at the highest log level, and then a search.

Each secret is a text of its own. No log line, answer, error, repr, metric, span or file contains one, except the file
of accounts itself.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import importlib
import inspect
import json
import logging
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from blockbuster import BlockBuster
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import eruca
from eruca import ClientOptions, Consumer, Producer, metrics
from eruca._access.accountfiles import read_book
from eruca._broker.options import BrokerOptions
from eruca._cli.optionlist import Role, list_options
from eruca._cli.settings import describe_settings, gather_settings
from eruca._ground.config import HIDDEN, info_of, option
from eruca._nameserver.options import NameServerOptions
from eruca._spark.cluster import Access, make_client_options
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import FrameBuffer, encode_command, make_request
from eruca._wire.headers import UpdateAccountHeader
from eruca.errors import ConfigError, ErucaError
from tests.integration.broker.conftest import excuse_new_files
from tests.integration.broker.serving import Serving
from tests.integration.cli.upprocess import run_eruca
from tests.patience import PATIENCE_S
from tests.security.attackers import open_attacker, run_victims

# The mark that all secrets here have.
MARK = "hunter2"
CLIENT, TOKEN, ADMIN, BROKER, NEW = (
    f"{MARK}-{who}-0123456789" for who in ("client", "token", "admin", "broker", "new")
)


@pytest.fixture(autouse=True)
def allow_new_files(forbid_blocking_calls: BlockBuster) -> None:
    """Let the stores of this test make files."""
    excuse_new_files(forbid_blocking_calls)


def make_secrets(role: Role) -> dict[str, str]:
    """Environment variables that set every secret option of a server, and what belongs to one."""
    secrets = {
        facts.environment: f"{MARK}-{facts.key}"
        for facts in list_options()
        if facts.role in (role, Role.SERVER) and facts.info.secret
    }
    assert len(secrets) >= 3
    return {**secrets, "ERUCA_BROKER_ACCESS_KEY": "brokers"}


def find_marks(where: str, text: str | bytes) -> list[str]:
    """The lines that contain a secret."""
    data = text.encode() if isinstance(text, str) else text
    return [f"{where}: {line!r}" for line in data.splitlines() if MARK.encode() in line]


# --- a run with all of it -------------------------------------------------------------------------------------------


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What clients trace."""
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: tracers)
    yield exporter
    tracers.shutdown()


def list_reprs() -> list[str]:
    """The repr of every object of ours that exists now."""
    found = []
    for thing in gc.get_objects():
        if str(type(thing).__module__).startswith("eruca"):
            try:
                found.append(repr(thing))
            except Exception:  # half-made or closed objects
                continue
    return found


async def test_nothing_in_a_process_shows_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spans: InMemorySpanExporter
) -> None:
    caplog.set_level(logging.DEBUG)
    of_broker = {name: f"{MARK}-{name}" for name, info in info_of(BrokerOptions).items() if info.secret}
    of_nameserver = {name: f"{MARK}-{name}" for name, info in info_of(NameServerOptions).items() if info.secret}
    keys: dict[str, Any] = {"access_key": "shop", "secret_key": CLIENT, "security_token": TOKEN}
    errors: list[str] = []
    async with run_victims(tmp_path, of_nameserver, **of_broker) as victims:
        options = ClientOptions(nameservers=victims.nameserver.address, **keys)
        async with (
            Producer(group="p", options=options, trace=True) as producer,
            Consumer(group="g", options=options, subscribe={"orders": "*"}, start="earliest", trace=True) as consumer,
            asyncio.timeout(PATIENCE_S),
        ):
            await producer.send("orders", b"x")
            await (await anext(consumer)).ack()
            try:
                await producer.send("no/such topic", b"x")
            except ErucaError as error:
                errors.append(f"{error!r} {error}")
            reprs = list_reprs()
        answers = []
        for address, handlers, probe in (
            (victims.broker.standing.address, victims.broker.ports.handlers, RequestCode.GET_BROKER_RUNTIME_INFO),
            (victims.nameserver.address, victims.nameserver.server.handlers, RequestCode.GET_NAMESRV_CONFIG),
        ):
            async with open_attacker(address) as attacker:
                account = {"accessKey": "someone", "secretKey": NEW, "admin": "false"}
                heard = await attacker.ask_blindly(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, account, b"", probe)
                answers += [heard] if heard is not None else []
                for code in sorted(handlers):
                    heard = await attacker.ask_blindly(code, {}, b"", probe)
                    answers += [heard] if heard is not None else []
    assert len(reprs) > 100 and len(answers) > 40 and len(caplog.records) > 10 and errors
    marks = [mark for text in reprs for mark in find_marks("repr", text)]
    marks += [mark for heard in answers for mark in find_marks(f"answer {heard.code}", heard.everything)]
    marks += find_marks("log", caplog.text)
    marks += [mark for text in errors for mark in find_marks("error", text)]
    for registry in (metrics.CLIENT, metrics.BROKER, metrics.SERVER):
        marks += find_marks("metric", json.dumps(registry.snapshot()))
    assert spans.get_finished_spans()
    marks += [mark for span in spans.get_finished_spans() for mark in find_marks("span", span.to_json())]
    for path, data in (await asyncio.to_thread(read_all, tmp_path)).items():
        marks += find_marks(path, data)
    assert marks == []


def read_all(top: Path) -> dict[str, bytes]:
    """All files. Blocks."""
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


# --- servers as a user runs them ------------------------------------------------------------------------------------


def write_accounts(path: Path) -> list[str]:
    """Write accounts; return the options that turn them on. Blocks."""
    path.write_text(
        "accounts:\n"
        f"- {{accessKey: administrator, secretKey: {ADMIN}, admin: true}}\n"
        f"- {{accessKey: brokers, secretKey: {BROKER}, admin: true, broker: true}}\n"
        f"- {{accessKey: shopkeeper, secretKey: {CLIENT}, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}}\n",
        encoding="utf-8",
    )
    return ["--option", "aclEnable=true", "--option", f"aclFile={path}"]


def test_servers_at_the_highest_log_level_show_no_secret(tmp_path: Path) -> None:
    secrets = make_secrets(Role.BROKER) | make_secrets(Role.NAMESERVER)
    secrets["ERUCA_BROKER_SECRET_KEY"] = BROKER
    accounts = tmp_path / "plain_acl.yml"
    serving = Serving(
        tmp_path, *write_accounts(accounts), "--log-json", "--log-level", "DEBUG", before=("-vv",), environment=secrets
    )
    keys = {"ERUCA_ACCESS_KEY": "shopkeeper", "ERUCA_SECRET_KEY": CLIENT}
    wrong = {"ERUCA_ACCESS_KEY": "shopkeeper", "ERUCA_SECRET_KEY": f"{MARK}-wrong"}
    said = []
    for environment in (keys, wrong):
        for command in (
            ["send", "orders", "hello"],
            ["tail", "orders"],
            ["offset", "show", "g"],
            ["send", "-n", "127.0.0.1:1", "orders", "hello"],
        ):
            servers = [] if "-n" in command else ["-n", serving.names]
            done = run_eruca("-vv", *command, *servers, cwd=tmp_path, environment=environment)
            said += [done.stdout, done.stderr]
    assert serving.end() == 0
    marks = [mark for text in said for mark in find_marks("command", text)]
    for path, data in read_all(tmp_path).items():
        if path != accounts.name:
            marks += find_marks(path, data)
    assert marks == []
    assert serving.log.stat().st_size > 0


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("broker", Role.BROKER),
        ("up", Role.BROKER),
        ("nameserver", Role.NAMESERVER),
        ("filterserver", Role.FILTERSERVER),
    ],
)
def test_printed_options_hide_secrets(tmp_path: Path, command: str, role: Role) -> None:
    secrets = make_secrets(role)
    for output in ("table", "json"):
        # Without accounts, a filter server with keys does not start otherwise.
        done = run_eruca(command, "-p", "--insecure", "--output", output, cwd=tmp_path, environment=secrets)
        assert done.returncode == 0, done.stderr
        assert find_marks(command, done.stdout + done.stderr) == []
        assert done.stdout.count(HIDDEN) == len(secrets) - 1


def test_what_was_set_is_not_in_a_repr_or_an_error() -> None:
    settings = gather_settings(Role.BROKER, environment=make_secrets(Role.BROKER), overrides=["listenPort=1"])
    assert find_marks("settings", repr(settings)) == []
    assert MARK in str([setting.text for setting in settings.found.values()])
    rows = describe_settings(settings, settings.build(BrokerOptions))
    assert find_marks("rows", str(rows)) == []
    with pytest.raises(ConfigError) as caught:
        gather_settings(Role.BROKER, environment={}, overrides=[f"etcdEndpoints:{MARK}"])
    assert find_marks("error", str(caught.value)) == []


# --- objects that hold one ------------------------------------------------------------------------------------------


def test_requests_that_carry_a_secret_hide_it() -> None:
    header = UpdateAccountHeader(access_key="someone", secret_key=NEW)
    sent = make_request(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)
    (received,) = FrameBuffer().feed(encode_command(sent))
    assert received.ext_dict()["secretKey"] == NEW
    received.ext = received.ext_dict()
    for thing in (header, sent, received, received.answer(ResponseCode.SUCCESS)):
        assert MARK not in repr(thing)
    assert "secretKey" in repr(received) and "accessKey" in repr(received)


@pytest.mark.parametrize(
    "text",
    [
        f"accessKey: spark\nsecretKey: {CLIENT}: [",
        f"accessKey: spark\nsecretKey: [{CLIENT}]",
        f"accessKey: spark\nsecretKey: *{CLIENT}",
        f"accessKey: spark\nsecretKey: !{CLIENT} x",
        f"accessKey: spark\nsecretKey: &a '{CLIENT}\n",
        f"secretKey: {CLIENT}",
        json.dumps({"accessKey": ["spark"], "secretKey": CLIENT}),
    ],
)
def test_a_bad_file_with_keys_is_refused_without_showing_them(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys.yml"
    file.write_text(text, encoding="utf-8")
    access = Access("127.0.0.1:9876", str(file))
    with pytest.raises(ConfigError) as caught:
        make_client_options(access)
    assert MARK not in f"{caught.value} {caught.value!r} {access!r}"
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts:\n- " + text.replace("\n", "\n  "), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_book(accounts)
    assert MARK not in f"{caught.value} {caught.value!r}"


def test_an_option_that_changes_while_a_server_runs_cannot_be_secret() -> None:
    with pytest.raises(ValueError, match="brokerKey is secret"):
        option("", "brokerKey", "a key", secret=True, mutable=True)


def list_fields() -> Iterator[tuple[str, bool]]:
    """Every field of every class of ours that holds data, and whether the repr shows it."""
    for module in pkgutil.walk_packages(eruca.__path__, "eruca."):
        for kind in vars(importlib.import_module(module.name)).values():
            if not inspect.isclass(kind) or kind.__module__ != module.name:
                continue
            if dataclasses.is_dataclass(kind):
                fields = [(field.name, field.repr) for field in dataclasses.fields(kind)]
            elif issubclass(kind, msgspec.Struct):
                shows = kind.__repr__ is msgspec.Struct.__repr__ and not hasattr(kind, "__rich_repr__")
                fields = [(name, shows) for name in kind.__struct_fields__]
            else:
                fields = [(name, True) for name in getattr(kind, "_fields", ())]
            for name, shows in fields:
                yield f"{module.name}.{kind.__qualname__}.{name}", shows


# Whether an option is one; the address at which a provider of log-ins gives tokens, and how it wants its secret.
NO_SECRETS = [
    "eruca._console.identity.openid._Provider.token",
    "eruca._console.identity.openid._Provider.posts_secret",
    "eruca._ground.config.OptionInfo.secret",
]


def test_no_class_shows_a_field_that_is_a_secret() -> None:
    """Also of objects that the search above does not find: the collector does not know all structs."""
    found = dict(list_fields())
    assert len(found) > 1000 and "eruca._access.accounts.Account.secret_key" in found
    words = ("secret", "password", "token")
    shown = [name for name, shows in found.items() if shows and any(word in name.rpartition(".")[2] for word in words)]
    assert shown == NO_SECRETS
