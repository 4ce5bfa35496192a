"""Where the data lives that the tests share with the project but that is not part of it."""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("ERUCA_SHARED", REPOSITORY.parent / "shared"))
GOLDEN = SHARED / "golden"
PEER = SHARED / "peer"
