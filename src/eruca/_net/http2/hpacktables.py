"""The fixed tables of HPACK (RFC 7541, appendices A and B), and which names headers of a request may have."""

from __future__ import annotations

import struct
from typing import Final

# The dynamic table of a connection: the default of HTTP/2, which all clients use.
TABLE_BYTES_MAX: Final = 4096

#: Name, value, bytes in a table, what is wrong with the name, and what is wrong with the field.
Field = tuple[str, str, int, str, str]


class CompressionError(ValueError):
    """A header block cannot be decoded."""


# --- names ------------------------------------------------------------------------------------------------------------

_PSEUDO: Final = frozenset({":method", ":scheme", ":authority", ":path"})
_FORBIDDEN: Final = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})
_NAME_CHARACTERS: Final = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
#: For each byte, whether names may contain it.
NAME_BYTES: Final = bytes(byte in _NAME_CHARACTERS for byte in range(256))


def judge_name(name: str, is_name: bool) -> str:
    """Return what is wrong with a header name of a request, "" for nothing; `is_name` is about its characters."""
    if name in _PSEUDO:
        return ""
    if not is_name:
        return f"{name!r:.80} is not the name of a header"
    return f"{name} is not a header of HTTP/2" if name in _FORBIDDEN else ""


# --- the static table -------------------------------------------------------------------------------------------------

_STATIC: Final = """\
:authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate
"""


def _make_static(line: str) -> Field:
    name, _, value = line.partition(" ")
    wrong = judge_name(name, not name.startswith(":"))
    return name, value, len(name) + len(value) + 32, wrong, wrong


STATIC_FIELDS: Final = tuple(map(_make_static, _STATIC.splitlines()))


# --- the Huffman code -------------------------------------------------------------------------------------------------

# The length of the code of each byte. The codes follow from them, because the code is canonical: codes of a length are
# successive numbers in the order of the bytes. EOS, the last code of 30 bits, is an error where it occurs.
_CODE_BITS: Final = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b08060606"
    "050505060606060606060708 0f060c0a0d06070707070707070707070707070707070707070707070807080d130d0e060f"
    "05060506050606060507070606060506070605050607070707070f0b0e0d1c1416141416161617161717171717181718"
    "18161718171717171516171617171816151416161717151716161815161717151516151716171714161616171616171a"
    "1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b1418141516151517161619191818"
    "1a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a"
)
_BITS: Final = range(31)
_CODES: Final = [_CODE_BITS.count(bits) for bits in _BITS]


def _list_begins() -> list[int]:
    """Return the first code of each length."""
    begins, code = [0], 0
    for bits in _BITS[1:]:
        code = (code + _CODES[bits - 1]) << 1
        begins.append(code)
    return begins


_BEGINS: Final = _list_begins()
_WORDS: Final = struct.Struct(f">{len(_BITS)}I")
#: For each number of bits, the first code with it, and the end of those codes in the highest bits of 32.
CODES_BEGIN: Final = _WORDS.pack(*_BEGINS)
CODES_END: Final = _WORDS.pack(*[(_BEGINS[bits] + _CODES[bits]) << (32 - bits) & 0xFFFFFFFF for bits in _BITS])
#: The bytes in the order of their codes, and for each number of bits where those begin.
SYMBOLS: Final = bytes(sorted(range(256), key=lambda byte: (_CODE_BITS[byte], byte)))
SYMBOLS_BEGIN: Final = bytes(min(sum(_CODES[:bits]), 255) for bits in _BITS)
