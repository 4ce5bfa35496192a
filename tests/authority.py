"""A certificate authority for tests: issues certificates as PEM files, also wrong ones."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: Path
    key: Path
    # SHA-256, in lower-case hex.
    fingerprint: str


class Authority:
    """Signs certificates. Its own one is `ca`."""

    def __init__(self, home: Path, name: str = "ca") -> None:
        self._home = home
        self._name = _make_subject(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + 30 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = home / f"{name}.pem"
        self.ca.write_bytes(_to_pem(self._certificate))

    def issue(
        self,
        name: str,
        names: tuple[str, ...] = LOOPBACK,
        *,
        expired: bool = False,
        password: str = "",
    ) -> Pair:
        """Write `name.pem` and `name.key`, replacing existing ones: a certificate for some hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        end = datetime.now(UTC) + (-_DAY if expired else 30 * _DAY)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_make_subject(name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - 60 * _DAY)
            .not_valid_after(end)
            .add_extension(x509.SubjectAlternativeName([_make_name(each) for each in names]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption(),
        )
        fingerprint = certificate.fingerprint(hashes.SHA256()).hex()
        pair = Pair(self._home / f"{name}.pem", self._home / f"{name}.key", fingerprint)
        # The key first: who reads in between finds two files that do not belong together, and reads again.
        for path, data in ((pair.key, secret), (pair.certificate, _to_pem(certificate))):
            staging = path.with_name(path.name + ".new")
            staging.write_bytes(data)
            staging.replace(path)
        return pair


def _make_subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _make_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _to_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
