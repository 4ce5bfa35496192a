"""Resolves the data sources that Spark discovers: the source itself, or a stand-in that reports why it is unusable.

Spark imports every package named `pyspark_*` and takes its `DefaultSource`. A package that raises hides the sources of
all others, so a missing requirement is reported only when a query uses the source.
"""

from __future__ import annotations

import importlib
from typing import Any

from pyspark.sql.datasource import DataSource

from eruca._schemas.bodies import require
from eruca.errors import ConfigError


def find_source(format_name: str, module: str, name: str) -> type[DataSource]:
    """Return a data source, or a stand-in of the same name whose use raises ImportError."""
    who = f'format("{format_name}")'
    try:
        for package in ("numpy", "pyarrow"):
            require(package, who, "spark")
        source: type[DataSource] = getattr(importlib.import_module(module), name)
    except ConfigError as error:
        return _make_unusable(format_name, str(error))
    except ImportError as error:
        return _make_unusable(format_name, f"{who} cannot be loaded: {error}")
    return source


def _make_unusable(format_name: str, problem: str) -> type[DataSource]:
    class UnusableSource(DataSource):
        """Raises ImportError, which names what is missing, as soon as a query uses it."""

        def __init__(self, options: Any) -> None:
            raise ImportError(problem)

        @classmethod
        def name(cls) -> str:
            """Return the name that users write in `format(...)`."""
            return format_name

    return UnusableSource
