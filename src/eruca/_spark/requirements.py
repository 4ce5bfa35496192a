"""The packages that Spark jobs need, and the error when one of them is not installed."""

from __future__ import annotations

import importlib
from typing import Any, Final

from eruca.errors import ConfigError

# What the extra `spark` installs, and py4j, which pyspark brings along.
_SPARK_PACKAGES: Final = frozenset({"numpy", "pyarrow", "pyspark", "py4j"})


def load_module(name: str, who: str) -> Any:
    """Import a module that needs the extra `spark`. Raises ConfigError, which names what is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        problem = explain_missing(error, who)
        if problem is None:
            raise
        text, hint = problem
        raise ConfigError(text, hint=hint) from None


def explain_missing(error: ImportError, who: str) -> tuple[str, str] | None:
    """Return what is missing and how to install it, or None if the error is not about a package of the extra."""
    package = (error.name or "").partition(".")[0]
    if package not in _SPARK_PACKAGES:
        return None
    return f"{who} needs {package}", 'pip install "eruca[spark]", on every node'
