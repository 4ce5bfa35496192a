"""What is built once for all tests of a run: the wheels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.dist import build_compiled_wheel, build_plain_wheel, build_source


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive of this checkout."""
    return build_source(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def plain_wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel without compiled code."""
    return build_plain_wheel(source, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="session")
def compiled_wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with compiled kernels for this Python."""
    return build_compiled_wheel(source, tmp_path_factory.mktemp("compiled"), sys.executable)
