"""Self-signed certificates, and the fingerprints of certificates."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import socket
import ssl
from asyncio import BaseTransport
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eruca.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509

# Nobody renews a self-signed certificate in time, so it lasts. Clocks of clients may be behind.
_VALID: Final = timedelta(days=3650)
_CLOCKS_DIFFER: Final = timedelta(days=1)
# X.509 allows no longer common name.
_COMMON_NAME_CHARS_MAX: Final = 64
_KEY_MODE: Final = 0o600
_CERTIFICATE_MODE: Final = 0o644


def list_own_names(*further: str) -> list[str]:
    """Return the names by which clients may reach this machine: loopback, its host name, and the given ones."""
    names = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *(name.strip("[]") for name in further)]
    # A wildcard is an address to listen on, never one to connect to.
    return [name for name in dict.fromkeys(names) if name and name not in ("0.0.0.0", "::")]


def make_self_signed(names: Iterable[str], *, valid: timedelta = _VALID) -> tuple[bytes, bytes]:
    """Make a certificate for host names and addresses; return it and its private key as PEM.

    Its key is ECDSA P-256, which every client since Java 8 supports; a handshake takes the server a tenth of the time
    that RSA needs. Blocks for some milliseconds.
    """
    # Imported here: it takes longer than the rest of the start, and few servers need it.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    listed = list(names)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, listed[0][:_COMMON_NAME_CHARS_MAX])])
    now = datetime.now(UTC)
    usages = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + valid) - _CLOCKS_DIFFER)
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectAlternativeName([_make_name(name) for name in listed]), critical=False)
        # It can be used as its own CA, but not to sign other certificates.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), secret


def _make_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name.encode("idna").decode())


def write_self_signed(certificate: Path, key: Path, names: Iterable[str]) -> None:
    """Write a new certificate and its private key to two PEM files, the key readable only by this user.

    Clients that verify can use the certificate file as their CA. Raises ConfigError if a file exists already: replacing
    the key of a server by mistake would lock out its clients.
    """
    made = make_self_signed(names)
    for path, data, mode in ((key, made[1], _KEY_MODE), (certificate, made[0], _CERTIFICATE_MODE)):
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(data)
        except FileExistsError:
            raise ConfigError(f"{path} exists already", hint="remove it first, or choose another path") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}", hint="is it writable?") from error


def read_fingerprint(transport: BaseTransport) -> str | None:
    """Return the SHA-256 fingerprint of the peer's certificate, in lower-case hex.

    None without TLS, and if the peer presented no certificate.
    """
    connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if connection is None:
        return None
    certificate = connection.getpeercert(binary_form=True)
    return hashlib.sha256(certificate).hexdigest() if certificate else None
