"""Eruca as the broker of other frameworks. Each module needs an extra: `eruca[celery]` or `eruca[taskiq]`."""

from __future__ import annotations

__all__: list[str] = []
