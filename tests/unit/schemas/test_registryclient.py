"""The client of a registry, with a server that answers as Confluent's, or wrongly, slowly or not at all."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eruca import Tls
from eruca._ground.limits import SCHEMA_BYTES_MAX
from eruca._schemas.bodies import BadBody
from eruca._schemas.registry import Registered, SchemaRegistry
from eruca._schemas.registryclient import RegistryClient, read_login
from eruca.errors import CallTimeout, ConfigError, ConnectFailed
from tests.authority import Authority
from tests.schemaregistry import RegistryServer, measure

TEXT = '{"type": "string"}'


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as started:
        started.registry.register("orders-value", {"schema": TEXT}, 7)
        yield started


def connect(server: RegistryServer, **how: Any) -> RegistryClient:
    """A client that does not pause between tries."""
    return RegistryClient(SchemaRegistry(server.address, **how), sleep=lambda _: None)


def test_a_schema_by_id_and_by_subject(server: RegistryServer) -> None:
    client = connect(server)
    assert client.find(7) == Registered("AVRO", TEXT)
    server.registry.register("orders-value", {"schema": '{"type": "bytes"}'}, 9)
    assert client.find_latest("orders-value").text == '{"type": "bytes"}'
    with pytest.raises(BadBody, match="the registry has no schema 8"):
        client.find(8)
    with pytest.raises(ConfigError, match=r"subject shop/x of the registry http://.*has no version latest of it"):
        client.find_latest("shop/x")
    assert server.registry.asked[-1] == "/subjects/shop%2Fx/versions/latest"


def test_a_path_before_those_of_the_api(server: RegistryServer) -> None:
    client = RegistryClient(SchemaRegistry(server.address + "/apis/ccompat/v7/"))
    # A wrong address is not a missing schema: every body would be bad.
    with pytest.raises(ConfigError, match=r"answers 404: HTTP 404 Not Found.*is this the address of a registry"):
        client.find(7)
    assert server.registry.asked == ["/apis/ccompat/v7/schemas/ids/7"]


def test_references_are_resolved_and_counted(server: RegistryServer) -> None:
    registry = server.registry
    registry.register("line", {"schema": "LINE"})
    registry.register(
        "order", {"schema": "ORDER", "references": [{"name": "shop.Line", "subject": "line", "version": 1}]}, 20
    )
    assert connect(server).find(20).references == (("shop.Line", Registered("AVRO", "LINE")),)
    registry.register("loop", {"schema": "X", "references": [{"name": "x", "subject": "loop", "version": 1}]}, 21)
    with pytest.raises(BadBody, match="schema 21 refers to more than 100 others"):
        connect(server).find(21)
    registry.register("lost", {"schema": "X", "references": [{"name": "x", "subject": "gone", "version": 1}]}, 22)
    with pytest.raises(BadBody, match="has no version 1 of it"):
        connect(server).find(22)
    registry.register("odd", {"schema": "X", "references": [{"name": "x"}]}, 23)
    with pytest.raises(ConfigError, match="a reference without name, subject and version"):
        connect(server).find(23)


def test_a_protobuf_file_comes_compiled_where_the_registry_can(server: RegistryServer) -> None:
    server.registry.register("p", {"schema": "TEXT", "schemaType": "PROTOBUF"}, 30)
    assert connect(server).find(30).text == "TEXT"
    server.registry.compiled[30] = b"compiled"
    assert connect(server).find(30).text == connect(server).find_latest("p").text == "Y29tcGlsZWQ="
    # Others answer with an error.
    server.registry.asked.clear()
    client = connect(server)
    server.registry.compiled.clear()
    assert client.find(30).text == "TEXT"
    assert server.registry.asked == ["/schemas/ids/30", "/schemas/ids/30?format=serialized"]


@pytest.mark.parametrize(
    "fault", [500, 503, 429, b"", b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{}", b"junk\r\n\r\n"]
)
def test_a_registry_that_is_away_for_a_moment_is_asked_again(server: RegistryServer, fault: int | bytes) -> None:
    server.registry.faults += [fault, fault]
    assert connect(server, retries=2).find(7).text == TEXT
    assert len(server.registry.asked) == 3
    server.registry.faults += [fault] * 2
    with pytest.raises(ConnectFailed, match=f"the schema registry {server.address}"):
        connect(server, retries=1).find(7)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (400, "answers 400: as the test wants it"),
        (403, "answers 403.*ERUCA_REGISTRY_USER"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "answers 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "its answer is not a JSON object"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "its answer has no schema"),
    ],
)
def test_an_answer_that_no_try_would_change(server: RegistryServer, fault: int | bytes, said: str) -> None:
    server.registry.faults.append(fault)
    with pytest.raises(ConfigError, match=said):
        connect(server).find(7)
    assert len(server.registry.asked) == 1


def test_an_answer_without_end_and_one_too_large(server: RegistryServer) -> None:
    server.registry.drip_s = 0.05
    client = connect(server, timeout=0.2, retries=0)

    def ask() -> None:
        with pytest.raises(CallTimeout, match=r"did not answer within 0\.2 s"):
            client.find(7)

    assert measure(ask) < 5
    server.registry.drip_s = 0
    server.registry.register("large", {"schema": "x" * (SCHEMA_BYTES_MAX + 1)}, 40)
    with pytest.raises(BadBody, match=f"more than {SCHEMA_BYTES_MAX} bytes"):
        connect(server).find(40)


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = RegistryClient(SchemaRegistry(f"http://127.0.0.1:{taken.getsockname()[1]}", retries=0))
        with pytest.raises(ConnectFailed, match=r"cannot be reached: .*refused"):
            client.find(7)


def test_user_and_password_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    tls = Tls(ca=authority.ca)
    with RegistryServer(tls=authority.issue("registry"), login=("ann", "hush")) as server:
        server.registry.register("orders-value", {"schema": TEXT}, 7)
        with pytest.raises(ConfigError, match="answers 401: Unauthorized"):
            connect(server, tls=tls).find(7)
        login = tmp_path / "login.yml"
        login.write_text("user: ann\npassword: hush\n")
        assert connect(server, tls=tls, login_file=login).find(7).text == TEXT
        monkeypatch.setenv("ERUCA_REGISTRY_USER", "ann")
        monkeypatch.setenv("ERUCA_REGISTRY_PASSWORD", "hush")
        assert connect(server, tls=tls).find(7).text == TEXT
        with pytest.raises(ConnectFailed, match="the certificate is not accepted"):
            connect(server, retries=0).find(7)
    with (
        RegistryServer(tls=authority.issue("other", ("elsewhere",))) as server,
        pytest.raises(ConnectFailed, match="the certificate is not accepted"),
    ):
        connect(server, tls=tls, retries=0).find(7)


def test_the_file_of_a_login(tmp_path: Path) -> None:
    login = tmp_path / "login.json"
    login.write_text(json.dumps({"user": "ann", "password": "hush"}))
    assert read_login(login) == ("ann", "hush")
    login.write_text("user: ann\npasswort: hush\n")
    with pytest.raises(ConfigError, match="user or password is missing") as caught:
        read_login(login)
    assert "hush" not in str(caught.value)


def test_a_password_without_tls_is_warned_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("ERUCA_REGISTRY_USER", "ann")
    monkeypatch.setenv("ERUCA_REGISTRY_PASSWORD", "hush")
    with caplog.at_level(logging.WARNING):
        RegistryClient(SchemaRegistry("http://127.0.0.1:8081"))
        assert not caplog.records
        RegistryClient(SchemaRegistry("http://registry.example:8081"))
    assert "the password of registry user ann is sent without TLS" in caplog.text and "hush" not in caplog.text
