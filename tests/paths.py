"""Where the tests keep the data and the scripts that several suites use."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# Bytes that the Java broker and client wrote.
GOLDEN = REPOSITORY / "tests" / "golden" / "data"
# Scripts that fetch and start the official Java servers.
PEER = REPOSITORY / "tests" / "peer"
