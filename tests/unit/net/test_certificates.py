"""Self-signed certificates: for whom they are, and who may read their key."""

from __future__ import annotations

import socket
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from eruca._net.certificates import list_own_names, make_self_signed, write_self_signed
from eruca._net.tls import Tls, make_client_context
from eruca.errors import ConfigError


def test_own_names_are_those_of_this_machine_and_the_given_ones_without_wildcards() -> None:
    names = list_own_names("broker.example", "0.0.0.0", "", "[::1]", "10.0.0.5", "::")
    assert names == ["localhost", "127.0.0.1", "::1", socket.gethostname(), "broker.example", "10.0.0.5"]


def test_a_self_signed_certificate_is_for_its_names_and_cannot_sign_others() -> None:
    pem, key = make_self_signed(["broker.example", "127.0.0.1", "::1"])
    certificate = x509.load_pem_x509_certificate(pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker.example"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(hours=1)
    assert certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=3000)
    assert key.startswith(b"-----BEGIN PRIVATE KEY-----")


def test_a_long_first_name_fits_into_the_certificate() -> None:
    long = "a" * 60 + "." + "b" * 60
    certificate = x509.load_pem_x509_certificate(make_self_signed([long])[0])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [long]


def test_written_files_are_private_usable_and_never_overwritten(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    write_self_signed(certificate, key, ["localhost"])
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    context = make_client_context(Tls(ca=certificate, certificate=certificate, key=key))
    assert len(context.get_ca_certs()) == 0 and context.cert_store_stats()["x509"] == 1  # trusted, but not a CA
    before = certificate.read_bytes(), key.read_bytes()
    with pytest.raises(ConfigError, match=r"key\.pem exists already"):
        write_self_signed(certificate, key, ["localhost"])
    assert (certificate.read_bytes(), key.read_bytes()) == before
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        write_self_signed(tmp_path / "none" / "c.pem", tmp_path / "none" / "k.pem", ["localhost"])
