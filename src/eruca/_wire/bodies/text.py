"""Options as text: one `name=value` a line (codes 25, 26, 318, 319)."""

from __future__ import annotations

from collections.abc import Mapping

from eruca._wire.bodies.shared import BodyError


def decode_options(data: bytes) -> dict[str, str]:
    """Read options; blank lines and comments are skipped. Raises BodyError."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"options are not UTF-8: {error.reason} at byte {error.start}") from None
    options: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        name, separator, value = stripped.partition("=")
        if not separator or not name.strip():
            raise BodyError(f"options line {number} is not name=value: {stripped[:80]!r}")
        options[name.strip()] = value.strip()
    return options


def encode_options(options: Mapping[str, str]) -> bytes:
    """Write options. Raises BodyError when a name or value would break out of its line and set another option."""
    lines = []
    for name, value in options.items():
        if not name or any(character in name for character in "=\r\n") or any(end in value for end in "\r\n"):
            raise BodyError(f"option {name!r} cannot be written as one line")
        lines.append(f"{name}={value}\n")
    return "".join(lines).encode()
