"""Where the tests keep the data and the scripts that several suites use."""

from __future__ import annotations

import tarfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# Bytes that the Java broker and client wrote.
GOLDEN = REPOSITORY / "tests" / "golden" / "data"
# Scripts that fetch and start the official Java servers.
PEER = REPOSITORY / "tests" / "peer"


def unpack(archive: Path, where: Path) -> None:
    """Unpack an archive of this repository. File times are kept, because lookups by time use them."""
    with tarfile.open(archive) as opened:
        # Python before 3.11.4 has no filters; later ones want one to be named.
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        opened.extractall(where)


def unpack_golden(name: str, where: Path) -> Path:
    """Unpack one of Java's stores ("clean", "killed", "torn", "rebuild") and return its root."""
    unpack(GOLDEN / f"store-{name}.tar.gz", where)
    return where / f"store-{name}"
