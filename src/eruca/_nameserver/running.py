"""The options in force, which an operator can change at run time; changes are saved in a file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from eruca._ground.javaconf import write_conf
from eruca._nameserver.options import NameServerOptions, change_options
from eruca._observe.logs import set_log_level

log = logging.getLogger(__name__)


class RunningOptions:
    """The options in force, and the file of their changes."""

    def __init__(
        self,
        options: NameServerOptions,
        on_change: Callable[[NameServerOptions], None] | None = None,
    ) -> None:
        self.current = options
        self._path = Path(options.config_store_path)
        self._on_change = on_change
        self._changing = asyncio.Lock()

    async def change(self, changes: Mapping[str, str]) -> None:
        """Change options by their Java keys: all of them, or none if one is refused or cannot be saved."""
        async with self._changing:
            changed = change_options(self.current, changes)
            if not changes:
                return
            await asyncio.to_thread(write_conf, self._path, changes)
            if changed.log_level is not self.current.log_level:
                set_log_level(changed.log_level)
            self.current = changed
            log.info("options changed: %s", ", ".join(f"{key}={value}" for key, value in changes.items()))
            if self._on_change is not None:
                self._on_change(changed)
