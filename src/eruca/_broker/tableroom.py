"""The room in a table that clients can add entries to: a number of entries and of bytes, each set by an option."""

from __future__ import annotations

import logging
from collections.abc import Callable

from eruca._broker.options import LiveOptions
from eruca._ground.config import info_of
from eruca._net.guards import Reporter
from eruca._net.meters import count_refused, show
from eruca.errors import TableFull


class TableRoom:
    """Refuses entries of one table beyond its limits."""

    def __init__(
        self, what: str, options: LiveOptions, limit: str, measure: Callable[[], tuple[int, int]], log: logging.Logger
    ) -> None:
        """`what` names the entries, `limit` the field with their maximum number; `measure` returns number and bytes."""
        self._what = what
        self._options = options
        self._limit = limit
        self._measure = measure
        self._reporter = Reporter(log)
        show(what, f"Number of {what}.", self, lambda it: it._measure()[0])
        show(f"{what}_bytes", f"Size of the table of {what}.", self, lambda it: it._measure()[1])

    def check(self, doing: str, count: int, size: int) -> None:
        """Raise TableFull if this many more entries and bytes are too many; `doing` says what cannot be done."""
        options = self._options.now
        entries, used = self._measure()
        for field, needed in ((self._limit, entries + count), ("table_bytes_max", used + size)):
            most = getattr(options, field)
            if needed > most:
                key = info_of(options)[field].java
                count_refused(key)
                text = f"{doing}: the limit is reached with {entries} {self._what} ({key}={most})"
                self._reporter.report("full", text)
                raise TableFull(
                    text,
                    hint=f"delete unused ones (eruca topic list --unused, eruca group list), or raise {key}",
                )
