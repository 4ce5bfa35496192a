"""TLS contexts: which files are accepted, what wrong ones are called, and when they are read again."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eruca._ground.config import from_properties
from eruca._net.tls import OutgoingTls, ServerTls, Tls, make_client_context, open_outgoing, read_tls_environment
from eruca._net.tlsoptions import ClientAuth, TlsMode, TlsOptions
from eruca.errors import ConfigError
from tests.authority import Authority, Pair
from tests.patience import PATIENCE_S


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Signs certificates."""
    return Authority(tmp_path)


def make_options(pair: Pair, **more: Any) -> TlsOptions:
    """The options of a server with a certificate."""
    return TlsOptions(certificate=str(pair.certificate), key=str(pair.key), **more)


def load(tls: ServerTls) -> ssl.SSLContext:
    """The context of a server that has just started."""

    async def start() -> ssl.SSLContext:
        await tls.start()
        try:
            return await tls.get_context()
        finally:
            await tls.stop()

    return asyncio.run(start())


# --- options --------------------------------------------------------------------------------------------------------


def test_options_have_the_names_of_java() -> None:
    options = from_properties(
        TlsOptions,
        {
            "tls.server.mode": "enforcing",
            "tls.server.certPath": "c.pem",
            "tls.server.keyPath": "k.pem",
            "tls.server.keyPassword": "hidden",
            "tls.server.need.client.auth": "require",
            "tls.server.trustCertPath": "ca.pem",
            "tls.enable": "true",
            "tls.client.authServer": "false",
        },
    )
    assert (options.mode, options.client_auth) == (TlsMode.ENFORCING, ClientAuth.REQUIRE)
    assert (options.outgoing, options.outgoing_verify) == (True, False)
    assert "hidden" not in repr(options)
    assert TlsOptions().mode is TlsMode.PERMISSIVE and open_outgoing(TlsOptions()) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"certificate": "c.pem"}, "belong together.*set tls.server.keyPath too"),
        ({"key": "k.pem"}, "set tls.server.certPath too"),
        ({"outgoing_key": "k.pem"}, "set tls.client.certPath too"),
        ({"client_auth": ClientAuth.OPTIONAL}, "need.client.auth=optional needs.*set tls.server.trustCertPath"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TlsOptions(**given)


def test_a_wrong_word_is_refused_with_the_right_ones() -> None:
    with pytest.raises(ConfigError, match="expected one of disabled, permissive, enforcing"):
        from_properties(TlsOptions, {"tls.server.mode": "strict"})


# --- clients --------------------------------------------------------------------------------------------------------


def test_a_client_verifies_certificate_and_host_name_unless_told_otherwise() -> None:
    context = make_client_context(Tls())
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    careless = make_client_context(Tls(verify=False))
    assert (careless.verify_mode, careless.check_hostname) == (ssl.CERT_NONE, False)


def test_a_client_hides_its_password_and_takes_paths(tmp_path: Path) -> None:
    tls = Tls(ca=tmp_path / "ca.pem", certificate="c.pem", key_password="hidden")
    assert tls.ca == str(tmp_path / "ca.pem")
    assert "hidden" not in repr(tls)
    assert tls == Tls(ca=str(tmp_path / "ca.pem"), certificate="c.pem", key_password="hidden")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"ca": 7}, r"Tls\(ca=7\): expected the path"),
        ({"verify": "no"}, r"Tls\(verify='no'\): expected True or False"),
        ({"key": "k.pem"}, "needs a certificate"),
    ],
)
def test_wrong_arguments_of_a_client_are_named(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Tls(**given)


def test_the_environment_enables_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ERUCA_TLS", "ERUCA_TLS_CA", "ERUCA_TLS_CERT", "ERUCA_TLS_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert read_tls_environment() is None
    assert read_tls_environment(enabled=True) == Tls()
    assert read_tls_environment(verify=False) == Tls(verify=False)
    monkeypatch.setenv("ERUCA_TLS_CA", "ca.pem")
    monkeypatch.setenv("ERUCA_TLS_CERT", "c.pem")
    monkeypatch.setenv("ERUCA_TLS_KEY", "k.pem")
    assert read_tls_environment() == Tls(ca="ca.pem", certificate="c.pem", key="k.pem")
    assert read_tls_environment(ca="other.pem") == Tls(ca="other.pem", certificate="c.pem", key="k.pem")
    monkeypatch.setenv("ERUCA_TLS", "False")
    assert read_tls_environment() is None
    monkeypatch.setenv("ERUCA_TLS", "on")
    with pytest.raises(ConfigError, match="ERUCA_TLS=on: expected true or false"):
        read_tls_environment()


# --- wrong files ----------------------------------------------------------------------------------------------------


def _remove_certificate(authority: Authority, pair: Pair) -> None:
    pair.certificate.unlink()


def _remove_key(authority: Authority, pair: Pair) -> None:
    pair.key.unlink()


def _write_garbage(authority: Authority, pair: Pair) -> None:
    pair.certificate.write_text("not a certificate")


def _empty_key(authority: Authority, pair: Pair) -> None:
    pair.key.write_bytes(b"")


def _exchange_key(authority: Authority, pair: Pair) -> None:
    pair.key.write_bytes(authority.issue("other").key.read_bytes())


def _encrypt_key(authority: Authority, pair: Pair) -> None:
    authority.issue("server", password="secret")


Break = Callable[[Authority, Pair], None]


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (_remove_certificate, r"certificate .*server\.pem: No such file.*are path and permissions right"),
        (_remove_key, r"private key .*server\.key: No such file"),
        (_write_garbage, r"server\.pem with key .*: it is not a PEM file"),
        (_empty_key, r"server\.key: it is not a PEM file"),
        (_exchange_key, r"the key does not belong to the certificate"),
        (_encrypt_key, r"private key .*server\.key: its password is wrong or missing"),
    ],
)
def test_a_server_does_not_start_with_files_it_cannot_use(authority: Authority, break_it: Break, told: str) -> None:
    pair = authority.issue("server")
    break_it(authority, pair)
    with pytest.raises(ConfigError, match=f"TLS: .*{told}"):
        load(ServerTls(make_options(pair)))


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
def test_a_server_does_not_start_without_usable_ca_certificates(tmp_path: Path, mode: TlsMode) -> None:
    (tmp_path / "ca.pem").write_text("nothing in it")
    options = TlsOptions(mode, client_auth=ClientAuth.REQUIRE, trust=str(tmp_path / "ca.pem"))
    with pytest.raises(ConfigError, match=r"CA certificates .*ca\.pem: it contains no certificate"):
        load(ServerTls(options))


def test_a_key_with_a_password_is_read(authority: Authority) -> None:
    pair = authority.issue("server", password="secret")
    assert load(ServerTls(make_options(pair, key_password="secret"))) is not None
    with pytest.raises(ConfigError, match="its password is wrong") as refused:
        load(ServerTls(make_options(pair, key_password="guess")))
    assert "guess" not in str(refused.value)


def test_files_of_a_server_without_tls_are_not_read() -> None:
    async def start() -> bool:
        tls = ServerTls(TlsOptions(TlsMode.DISABLED, certificate="none.pem", key="none.key"))
        await tls.start()
        assert tls.mode is TlsMode.DISABLED
        await tls.stop()
        return True

    assert asyncio.run(start())


def test_a_server_without_a_certificate_makes_one_when_it_is_needed() -> None:
    async def ask() -> tuple[ssl.SSLContext, ssl.SSLContext]:
        tls = ServerTls(TlsOptions(), "10.0.0.5")
        await tls.start()
        try:
            return await tls.get_context(), await tls.get_context()
        finally:
            await tls.stop()

    first, second = asyncio.run(ask())
    assert first is second
    assert first.minimum_version is ssl.TLSVersion.TLSv1_2
    names = {cipher["name"] for cipher in first.get_ciphers()}
    assert names and all("GCM" in name or "CHACHA20" in name for name in names), names


# --- files that change ----------------------------------------------------------------------------------------------


async def wait_for_change(tls: ServerTls, before: ssl.SSLContext) -> ssl.SSLContext:
    """Wait until a server has another context."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await tls.get_context()) is before:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return found


async def wait_for_line(caplog: pytest.LogCaptureFixture, part: str) -> None:
    """Wait until something was logged."""
    async with asyncio.timeout(PATIENCE_S):
        while part not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_new_files_replace_the_old_ones_and_bad_ones_do_not(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pair = await asyncio.to_thread(authority.issue, "server")
    tls = ServerTls(make_options(pair, reload_ms=5))
    await tls.start()
    try:
        first = await tls.get_context()
        await asyncio.to_thread(pair.certificate.write_text, "half a file")
        await wait_for_line(caplog, "it is not a PEM file; those read before stay in use")
        assert await tls.get_context() is first
        await asyncio.to_thread(authority.issue, "server")
        second = await wait_for_change(tls, first)
        await wait_for_line(caplog, "TLS certificates were read again")
        await asyncio.to_thread(pair.key.unlink)
        await wait_for_line(caplog, "server.key: No such file or directory; those read before stay in use")
        assert await tls.get_context() is second
    finally:
        await tls.stop()


async def test_a_server_looks_at_once_when_told_to(authority: Authority) -> None:
    pair = await asyncio.to_thread(authority.issue, "server")
    tls = ServerTls(make_options(pair, reload_ms=3_600_000))
    tls.look_again()  # not started: nothing happens
    await tls.start()
    try:
        before = await tls.get_context()
        await asyncio.to_thread(authority.issue, "server")
        tls.look_again()
        assert await wait_for_change(tls, before) is not before
    finally:
        await tls.stop()


async def test_a_client_reads_changed_files_for_its_next_connection(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    pair = await asyncio.to_thread(authority.issue, "client")
    tls = OutgoingTls(Tls(ca=authority.ca, certificate=pair.certificate, key=pair.key))
    first = await tls.get_context()
    assert await tls.get_context() is first
    await asyncio.to_thread(authority.issue, "client")
    second = await tls.get_context()
    assert second is not first
    await asyncio.to_thread(pair.key.unlink)
    for _ in range(3):
        assert await tls.get_context() is second
    assert caplog.text.count("the certificates read before stay in use") == 1


async def test_a_client_without_usable_files_fails_and_may_succeed_later(tmp_path: Path) -> None:
    tls = OutgoingTls(Tls(ca=tmp_path / "ca.pem"))
    with pytest.raises(ConfigError, match=r"CA certificates .*ca\.pem: No such file"):
        await tls.get_context()
    await asyncio.to_thread(Authority, tmp_path)
    assert isinstance(await tls.get_context(), ssl.SSLContext)


async def test_a_context_is_used_as_it_is() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls = OutgoingTls.choose(context)
    assert tls is not None and await tls.get_context() is context
    assert OutgoingTls.choose(None) is None and OutgoingTls.choose(False) is None
