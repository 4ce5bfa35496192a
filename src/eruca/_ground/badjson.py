"""What reading JSON from outside may raise."""

from __future__ import annotations

from typing import Final

import msgspec

#: Raised for a document that is not JSON or does not have the expected fields, and for bytes that are not text.
BAD_JSON: Final = (msgspec.MsgspecError, UnicodeDecodeError)
