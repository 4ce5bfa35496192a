"""The options in force, which an operator may change while the name server runs; a change is kept in a file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from eruca.nameserver.options import NameServerOptions, change_options, set_lines
from eruca.store.filesystem import FileSystem

log = logging.getLogger(__name__)


class RunningOptions:
    """The options in force and where changes of them are kept."""

    def __init__(
        self,
        options: NameServerOptions,
        disk: FileSystem,
        on_change: Callable[[NameServerOptions], None] | None = None,
    ) -> None:
        self.current = options
        self._disk = disk
        self._path = Path(options.config_store_path)
        self._on_change = on_change
        self._changing = asyncio.Lock()

    async def change(self, changes: Mapping[str, str]) -> None:
        """Change options by their Java keys: all of them or, when one is refused or cannot be kept, none."""
        async with self._changing:
            changed = change_options(self.current, changes)
            if not changes:
                return
            await asyncio.to_thread(self._keep, changes)
            self.current = changed
            log.info("options changed: %s", ", ".join(f"{key}={value}" for key, value in changes.items()))
            if self._on_change is not None:
                self._on_change(changed)

    def _keep(self, changes: Mapping[str, str]) -> None:
        disk, path = self._disk, self._path
        text = disk.read_file(path).decode("utf-8", "replace") if disk.exists(path) else ""
        staging = path.with_name(path.name + ".tmp")
        disk.make_directory(path.parent)
        disk.write_file(staging, set_lines(text, changes).encode())
        disk.rename(staging, path)
