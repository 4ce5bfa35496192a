"""Compressing and decompressing message bodies. Only clients do this: brokers store what they get.

Three formats, distinguished by the type bits of sysFlag: zlib (RFC 1950), LZ4 frames and zstd frames. The output is
bounded, because a few kilobytes from an untrusted peer can unpack to gigabytes.
"""

from __future__ import annotations

import zlib
from types import ModuleType
from typing import Final

from eruca._ground.limits import DECOMPRESSED_BYTES_MAX
from eruca._wire.sysflag import (
    COMPRESSION_LEGACY_ZLIB,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)
from eruca.errors import WireError

# Java's default for all three; LZ4 frames of Java have no level.
LEVEL_DEFAULT: Final = 5

_EXTRA_HINT = "pip install eruca[compression]"


def compress(body: bytes, kind: int = COMPRESSION_ZLIB, level: int = LEVEL_DEFAULT) -> bytes:
    """Compress a body; `kind` is one of sysflag's COMPRESSION_* types."""
    if kind in (COMPRESSION_ZLIB, COMPRESSION_LEGACY_ZLIB):
        return zlib.compress(body, level)
    if kind == COMPRESSION_LZ4:
        return bytes(_import_lz4().compress(body))
    if kind == COMPRESSION_ZSTD:
        return bytes(_import_zstd().ZstdCompressor(level=level).compress(body))
    raise WireError(f"compression type {kind:#x} is unknown")


def decompress(body: bytes, sys_flag: int, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Decompress a body by the type bits of `sys_flag`; raise WireError when it is damaged or grows past `limit`."""
    kind = sys_flag & COMPRESSION_MASK
    if kind in (COMPRESSION_ZLIB, COMPRESSION_LEGACY_ZLIB):
        return _decompress_zlib(body, limit)
    if kind == COMPRESSION_LZ4:
        return _decompress_lz4(body, limit)
    if kind == COMPRESSION_ZSTD:
        return _decompress_zstd(body, limit)
    raise WireError(f"compression type {kind:#x} is unknown")


def _decompress_zlib(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        # One byte more than allowed, to tell "exactly the limit" from "more".
        result = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise WireError(f"zlib body of {len(body)} bytes is damaged: {error}") from None
    return _check_stream(result, stream.eof, "zlib", len(body), limit)


def _decompress_lz4(body: bytes, limit: int) -> bytes:
    stream = _import_lz4().LZ4FrameDecompressor()
    try:
        result = bytes(stream.decompress(body, limit + 1))
    except (RuntimeError, ValueError, EOFError) as error:
        raise WireError(f"LZ4 body of {len(body)} bytes is damaged: {error}") from None
    return _check_stream(result, bool(stream.eof), "LZ4", len(body), limit)


def _decompress_zstd(body: bytes, limit: int) -> bytes:
    zstd = _import_zstd()
    try:
        announced = zstd.get_frame_parameters(body).content_size
        # The library trusts an announced size and allocates it, so it is checked here; 2**64 - 1 means not announced.
        if limit < announced < zstd.CONTENTSIZE_ERROR:
            raise WireError(f"zstd body of {len(body)} bytes announces {announced}: at most {limit}")
        return bytes(zstd.ZstdDecompressor().decompress(body, max_output_size=limit))
    except zstd.ZstdError as error:
        raise WireError(f"zstd body of {len(body)} bytes is damaged or unpacks to more than {limit}: {error}") from None


def _check_stream(result: bytes, whole: bool, name: str, size: int, limit: int) -> bytes:
    if len(result) > limit:
        raise WireError(f"{name} body of {size} bytes unpacks to more than {limit}")
    if not whole:
        raise WireError(f"{name} body of {size} bytes ends too early")
    return result


def _import_lz4() -> ModuleType:
    try:
        import lz4.frame
    except ImportError:
        raise WireError("an LZ4 body needs the lz4 package", hint=_EXTRA_HINT) from None
    return lz4.frame  # type: ignore[no-any-return]


def _import_zstd() -> ModuleType:
    try:
        import zstandard
    except ImportError:
        raise WireError("a zstd body needs the zstandard package", hint=_EXTRA_HINT) from None
    return zstandard
