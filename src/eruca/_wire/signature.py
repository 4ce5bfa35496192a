"""Signatures for access control: HMAC-SHA1 over the header's extra fields and the body.

The text is the values (only the values) of all extra fields in the order of their names, without `Signature`,
followed by the body.
"""

from __future__ import annotations

import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from eruca._wire.command import Command
from eruca._wire.ext import Header, encode_ext

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
# Marks a query by unique key. Servers since 4.7 leave it out of the signed text while Java's own client includes it.
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"

_LEFT_OUT: Final = (SIGNATURE, UNIQUE_KEY_QUERY)


def build_content(ext: Mapping[str, str | None], body: bytes | None, *, with_unique_key_query: bool = False) -> bytes:
    """Build the bytes to sign from the extra fields (without `Signature`) and the body."""
    # Java orders strings by UTF-16 code units, which for ASCII is Python's order too.
    names = sorted(ext) if "".join(ext).isascii() else sorted(ext, key=_order_like_java)
    left_out = (SIGNATURE,) if with_unique_key_query else _LEFT_OUT
    values = [ext[name] for name in names if name not in left_out]
    if None in values:
        values = ["null" if value is None else value for value in values]
    text = "".join(cast(list[str], values))
    # Java replaces lone surrogates by "?"; that is never intended, but it must not raise here.
    return text.encode("utf-8", "replace") + (body or b"")


def _order_like_java(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def sign_content(content: bytes, secret_key: str) -> str:
    """Sign bytes: Base64 of their HMAC-SHA1."""
    return _sign(content, secret_key).decode("ascii")


def _sign(content: bytes, secret_key: str) -> bytes:
    return binascii.b2a_base64(hmac.digest(secret_key.encode(), content, "sha1"), newline=False)


def sign(ext: Mapping[str, str | None], body: bytes | None, secret_key: str) -> str:
    """Compute the `Signature` of a request; `ext` must already hold `AccessKey` (and `SecurityToken`)."""
    return sign_content(build_content(ext, body), secret_key)


def verify(ext: Mapping[str, str | None], body: bytes | None, secret_key: str) -> bool:
    """Check the `Signature` in `ext`, with `_UNIQUE_KEY_QUERY` in the text or left out of it."""
    given = (ext.get(SIGNATURE) or "").encode("utf-8", "replace")
    matches = _matches(build_content(ext, body), secret_key, given)
    if UNIQUE_KEY_QUERY in ext:
        matches |= _matches(build_content(ext, body, with_unique_key_query=True), secret_key, given)
    return matches


def drop_signature(ext: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a request that is passed on: whoever gets them could send its signature as their own."""
    return {name: text for name, text in ext.items() if name not in (ACCESS_KEY, SIGNATURE, SECURITY_TOKEN)}


def _matches(content: bytes, secret_key: str, given: bytes) -> bool:
    return hmac.compare_digest(_sign(content, secret_key), given)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Signs requests."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def sign(self, command: Command) -> None:
        """Add the account and the signature to a request."""
        extra = {ACCESS_KEY: self.access_key}
        if self.security_token:
            extra[SECURITY_TOKEN] = self.security_token
        header = command.ext
        ext = encode_ext(header, extra=extra) if isinstance(header, Header) else {**command.ext_dict(), **extra}
        # Servers do not include this mark in the signature.
        signed = {name: text for name, text in ext.items() if name != UNIQUE_KEY_QUERY}
        ext[SIGNATURE] = sign(signed, command.body, self.secret_key)
        command.ext = ext
