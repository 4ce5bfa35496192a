"""Filter classes in Python, which an operator installs beside a filter server (`eruca filterserver --help`).

>>> class OnlyLarge(FilterClass):
...     def matches(self, message: FilterMessage) -> bool:
...         return len(message.body) > 1000
"""

from __future__ import annotations

from eruca._filterserver.plugins import FilterClass, FilterMessage

__all__ = ["FilterClass", "FilterMessage"]
