"""TLS contexts, made from files and made again when the files change: for ports, and for outgoing connections."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from eruca._ground.repeating import Repeating
from eruca._net.certificates import list_own_names, make_self_signed
from eruca._net.tlsoptions import ClientAuth, TlsMode, TlsOptions
from eruca.errors import ConfigError

log = logging.getLogger(__name__)

# Only forward secrecy and authenticated encryption; every client with TLS 1.2 has one of them. TLS 1.3 has no others.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
_CLIENT_AUTH: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}
# What OpenSSL calls the usual mistakes.
_MISTAKES: Final = {
    "KEY_VALUES_MISMATCH": "the key does not belong to the certificate",
    "NO_START_LINE": "it is not a PEM file",
    "NO_CERTIFICATE_OR_CRL_FOUND": "it contains no certificate in PEM format",
    "CA_MD_TOO_WEAK": "its signature algorithm is too weak",
    "EE_KEY_TOO_SMALL": "its key is too short",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How a client uses TLS. The files are read when a connection is made, and again when they have changed.

    >>> options = ClientOptions(tls=Tls(ca="ca.pem"))
    >>> options = ClientOptions(tls=Tls(ca="ca.pem", certificate="client.pem", key="client.key"))
    """

    # PEM file with the CA certificates to trust; a self-signed certificate is its own CA. Empty: the system's CAs.
    ca: str | os.PathLike[str] = ""
    # PEM file with the certificate to present, followed by intermediate ones; empty: none.
    certificate: str | os.PathLike[str] = ""
    # PEM file with its private key; empty: it is in the file of the certificate.
    key: str | os.PathLike[str] = ""
    key_password: str = field(default="", repr=False)
    # False accepts any certificate, also that of an impostor.
    verify: bool = True

    def __post_init__(self) -> None:
        for name in ("ca", "certificate", "key"):
            value = getattr(self, name)
            if not isinstance(value, (str, os.PathLike)):
                raise ConfigError(f"Tls({name}={value!r:.80}): expected the path of a file")
            object.__setattr__(self, name, os.fspath(value))
        if not isinstance(self.key_password, str):
            raise ConfigError(f"Tls(key_password=...): expected str, not {type(self.key_password).__name__}")
        if not isinstance(self.verify, bool):
            raise ConfigError(f"Tls(verify={self.verify!r:.80}): expected True or False")
        if self.key and not self.certificate:
            raise ConfigError("Tls(key=...) needs a certificate", hint="pass certificate= too")


# What clients accept: a context is used as it is; True means TLS as the environment describes it.
#: Whether to use TLS: the files to use, a context, True for the CAs of the system, False or None for no TLS.
TlsChoice: TypeAlias = Tls | ssl.SSLContext | bool | None


def read_tls_environment(*, enabled: bool = False, **given: Any) -> Tls | None:
    """Return how clients use TLS by the environment: ERUCA_TLS, ERUCA_TLS_CA, ERUCA_TLS_CERT, ERUCA_TLS_KEY.

    A file alone enables it too. `enabled` and what is `given` take precedence.
    """
    switch = os.environ.get("ERUCA_TLS", "").strip().lower()
    if switch not in ("", "true", "false"):
        raise ConfigError(f"ERUCA_TLS={switch}: expected true or false")
    files = {
        "ca": os.environ.get("ERUCA_TLS_CA", ""),
        "certificate": os.environ.get("ERUCA_TLS_CERT", ""),
        "key": os.environ.get("ERUCA_TLS_KEY", ""),
    }
    is_on = switch == "true" or (not switch and any(files.values()))
    if not (enabled or given or is_on):
        return None
    return Tls(**{**files, **given})


def make_client_context(tls: Tls) -> ssl.SSLContext:
    """Make the context of a client. Raises ConfigError for a file that cannot be used. Blocks."""
    ca, certificate = Path(tls.ca), Path(tls.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and host names
    _set_strength(context)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca:
        # A certificate in this file is trusted even if it is not that of a CA.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _load_trust(context, ca)
    else:
        context.load_default_certs()
    if tls.certificate:
        _load_pair(context, certificate, Path(tls.key or certificate), tls.key_password)
    return context


def explain_failure(error: Exception) -> str:
    """Say why a connection or a handshake failed, without the names that OpenSSL has for it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return str(error) or type(error).__name__


# --- files ----------------------------------------------------------------------------------------------------------


class KeptContext:
    """A context made from files. `refresh` makes a new one when a file has changed. For any thread."""

    def __init__(self, make: Callable[[], ssl.SSLContext], files: Sequence[str | os.PathLike[str]]) -> None:
        self._make = make
        self._files = [Path(file) for file in files if file]
        self._seen: list[tuple[int, int, int] | None] = []
        self._lock = threading.Lock()
        #: The context of the last files that could be used.
        self.context: ssl.SSLContext | None = None

    @property
    def is_final(self) -> bool:
        """Whether no change of a file can change the context."""
        return self.context is not None and not self._files

    def refresh(self) -> bool:
        """Make the context, or make it again if a file has changed; return whether there is a new one.

        Raises ConfigError if a file cannot be used; the old context stays. Blocks.
        """
        with self._lock:
            # Looked at before they are read: a change in between is found the next time.
            found = [_look_at(file) for file in self._files]
            if self.context is not None and found == self._seen:
                return False
            self.context = self._make()
            self._seen = found
            return True


def _look_at(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _set_strength(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION


def _load_trust(context: ssl.SSLContext, path: Path) -> None:
    _check_readable("CA certificates", path)
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise _explain_file("CA certificates", path, error) from error


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path, password: str) -> None:
    _check_readable("certificate", certificate)
    _check_readable("private key", key)
    is_asked = False

    def tell_password() -> str:
        nonlocal is_asked
        is_asked = True
        return password

    try:
        # A function, because without a password OpenSSL would ask the terminal.
        context.load_cert_chain(certificate, key, tell_password)
    except OSError as error:
        if is_asked:
            hint = "set the password of the key, or use a key without one"
            raise ConfigError(f"TLS: private key {key}: its password is wrong or missing", hint=hint) from error
        raise _explain_file("certificate", certificate, error, f" with key {key}") from error


def _check_readable(what: str, path: Path) -> None:
    try:
        with open(path, "rb"):
            return
    except OSError as error:
        raise ConfigError(f"TLS: {what} {path}: {error.strerror}", hint="are path and permissions right?") from error


def _explain_file(what: str, path: Path, error: OSError, more: str = "") -> ConfigError:
    reason = getattr(error, "reason", None) or ""
    # Without a reason it is the PEM parser of OpenSSL that failed.
    why = _MISTAKES.get(reason) or (reason.replace("_", " ").lower() or "it is not a PEM file")
    return ConfigError(f"TLS: {what} {path}{more}: {why}", hint="expected files in PEM format that belong together")


# --- ports ----------------------------------------------------------------------------------------------------------


class ServerTls:
    """What the ports of one server need for TLS.

    Without a certificate in the options, the first TLS client waits some milliseconds while one is made. It stays in
    memory: a client that verifies needs a certificate it can know before, and then there are files.
    """

    def __init__(self, options: TlsOptions, *names: str, protocols: Sequence[str] = ()) -> None:
        """`names` are the addresses by which clients know this server, besides those of this machine.

        `protocols` are what clients may choose by ALPN; those that choose nothing are accepted too.
        """
        self._options = options
        self._protocols = protocols
        self._names = names
        self._own: tuple[bytes, bytes] | None = None
        self._kept = KeptContext(self._make, (options.certificate, options.key, options.trust))
        self._reloading = Repeating(
            "reading the TLS certificates again",
            self._reload,
            lambda: options.reload_ms / 1000,
            level=logging.WARNING,
        )

    @property
    def mode(self) -> TlsMode:
        """Which connections are accepted."""
        return self._options.mode

    async def start(self) -> None:
        """Check the files and watch them. Raises ConfigError for one that cannot be used."""
        options = self._options
        if self.mode is TlsMode.DISABLED or not (options.certificate or options.trust):
            return
        await asyncio.to_thread(self._kept.refresh)
        self._reloading.start()

    async def stop(self) -> None:
        """Watch the files no more."""
        await self._reloading.stop()

    def look_again(self) -> None:
        """Check the files for changes now."""
        if self._reloading.is_running:
            self._reloading.wake()

    async def get_context(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        if self._kept.context is None:
            await asyncio.to_thread(self._kept.refresh)
        assert self._kept.context is not None
        return self._kept.context

    async def _reload(self) -> None:
        try:
            if await asyncio.to_thread(self._kept.refresh):
                log.info("TLS certificates were read again: %s", self._options.certificate or self._options.trust)
        except ConfigError as error:
            raise ConfigError(f"{error.args[0]}; those read before stay in use", hint=error.hint) from error

    def _make(self) -> ssl.SSLContext:
        options = self._options
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _set_strength(context)
        if self._protocols:
            context.set_alpn_protocols(list(self._protocols))
        if options.certificate:
            _load_pair(context, Path(options.certificate), Path(options.key), options.key_password)
        else:
            self._load_own(context)
        if options.client_auth is not ClientAuth.NONE:
            _load_trust(context, Path(options.trust))
            context.verify_mode = _CLIENT_AUTH[options.client_auth]
        return context

    def _load_own(self, context: ssl.SSLContext) -> None:
        """Load a self-signed certificate, the same for all contexts of this server."""
        if self._own is None:
            self._own = make_self_signed(list_own_names(*self._names))
        # A context reads only files; this one is private, and removed at once.
        with tempfile.NamedTemporaryFile(prefix="eruca-tls-") as file:
            file.write(b"".join(self._own))
            file.flush()
            context.load_cert_chain(file.name)


# --- outgoing connections -------------------------------------------------------------------------------------------


class OutgoingTls:
    """What the outgoing connections of one caller need for TLS."""

    def __init__(self, tls: Tls | ssl.SSLContext) -> None:
        self._given = tls if isinstance(tls, ssl.SSLContext) else None
        self._trouble = ""
        if isinstance(tls, Tls):
            chosen = tls
            self._kept = KeptContext(lambda: make_client_context(chosen), (tls.ca, tls.certificate, tls.key))

    @classmethod
    def choose(cls, tls: TlsChoice) -> Self | None:
        """Return what a client needs that was told to use TLS like this; None: without TLS."""
        return cls(tls) if isinstance(tls, Tls | ssl.SSLContext) else None

    async def get_context(self) -> ssl.SSLContext:
        """Return the context for a new connection. Raises ConfigError if there is none and a file cannot be used.

        A file that has changed is read again; if it cannot be used, the old context stays and it is logged once.
        """
        if self._given is not None:
            return self._given
        kept = self._kept
        if not kept.is_final:
            try:
                await asyncio.to_thread(kept.refresh)
                self._trouble = ""
            except ConfigError as error:
                if kept.context is None:
                    raise
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.warning("%s; the certificates read before stay in use", error)
        assert kept.context is not None
        return kept.context


def choose_outgoing(options: TlsOptions) -> Tls | None:
    """Return how a server connects to other servers; None: without TLS."""
    if not options.outgoing:
        return None
    return Tls(
        ca=options.outgoing_trust,
        certificate=options.outgoing_certificate,
        key=options.outgoing_key,
        key_password=options.outgoing_key_password,
        verify=options.outgoing_verify,
    )


def open_outgoing(options: TlsOptions) -> OutgoingTls | None:
    """Return what a server needs to connect to other servers; None: without TLS."""
    return OutgoingTls.choose(choose_outgoing(options))
