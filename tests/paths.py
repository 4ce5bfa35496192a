"""Where the tests keep the data and the scripts that several suites use."""

from __future__ import annotations

import tarfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# Bytes that the Java broker and client wrote.
GOLDEN = REPOSITORY / "tests" / "golden" / "data"
# Scripts that fetch and start the official Java servers.
PEER = REPOSITORY / "tests" / "peer"


def unpack_golden(name: str, where: Path) -> Path:
    """Unpack one of Java's stores ("clean", "killed", "torn", "rebuild") and return its root.

    File times are kept, because lookups by time use them.
    """
    with tarfile.open(GOLDEN / f"store-{name}.tar.gz") as archive:
        # Python before 3.11.4 has no filters; later ones want one to be named.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(where)
    return where / f"store-{name}"
