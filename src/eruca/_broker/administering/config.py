"""Showing and changing the options of a running broker: only mutable options, checked by type."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, get_type_hints

from eruca._broker.administering.javakeys import IGNORED
from eruca._broker.options import HA_PORT_ABOVE, BrokerOptions, LiveOptions
from eruca._broker.refusals import refuse
from eruca._broker.replication.acknowledging import Acknowledgement
from eruca._broker.standing import Standing
from eruca._broker.topics import Topics
from eruca._ground.clock import Clock
from eruca._ground.config import OptionInfo, StoreOptions, check_bounds, info_of, parse_value, show_value, write_value
from eruca._ground.javaconf import write_conf
from eruca._net.handlers import HandlerTable, Reply, Request
from eruca._observe.logs import set_log_level
from eruca._store.background import StoreBackground
from eruca._store.messagestore import MessageStore
from eruca._wire import fastjson
from eruca._wire.bodies import DataVersion
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import BrokerConfigAnswerHeader
from eruca.errors import ConfigError, RequestRefused

log = logging.getLogger(__name__)

# The store keeps this option itself.
_KEPT_ELSEWHERE = frozenset({"archivedPosition"})
# These decide when a message is acknowledged or readable, and some requests are waiting for that.
_SAFETY = frozenset({"read_confirmed", "in_sync_replicas", "behind_bytes_max"})


# Options by Java's key: attribute, metadata and type.
_Known: TypeAlias = dict[str, tuple[str, OptionInfo, Any]]


def _list_options(options: type[Any]) -> _Known:
    hints = get_type_hints(options)
    return {info.java: (name, info, hints[name]) for name, info in info_of(options).items()}


_BROKER = _list_options(BrokerOptions)
_STORE = _list_options(StoreOptions)


class ConfigHandlers:
    """Handles requests that show or change options."""

    def __init__(
        self,
        options: LiveOptions,
        standing: Standing,
        clock: Clock,
        started_ms: int,
        store: MessageStore,
        background: StoreBackground,
        topics: Topics,
        acknowledgement: Acknowledgement,
        path: Path | None,
        overridden: Mapping[str, str],
        *fixed: Any,
    ) -> None:
        """Save changes in the file `path`; without it they last until the broker stops.

        `overridden` maps each key that another source sets at the next start to the name of that source. `fixed` are
        further options, which are only shown.
        """
        self._options = options
        self._standing = standing
        self._clock = clock
        self._store = store
        self._background = background
        self._topics = topics
        self._acknowledgement = acknowledgement
        self._path = path
        self._overridden = overridden
        self._fixed = {
            key: (one, name, info) for one in fixed for key, (name, info, _) in _list_options(type(one)).items()
        }
        self._changing = asyncio.Lock()
        self.version = DataVersion(counter=0, timestamp=started_ms)

    def register(self, table: HandlerTable) -> None:
        """Register the handlers."""
        table.add(RequestCode.GET_BROKER_CONFIG, self.show)
        table.add(RequestCode.UPDATE_BROKER_CONFIG, self.change)

    def show(self, request: Request) -> Reply:
        """Return every option with its value, including the 4.9 options that have no effect here."""
        options, standing = self._options.now, self._standing
        # The current value rather than the configured one, as in Java.
        options = dataclasses.replace(options, role=standing.role, broker_id=standing.broker_id, port=standing.port)
        values = {key: default for key, (default, _) in IGNORED.items()}
        values["haListenPort"] = str(options.port + HA_PORT_ABOVE)
        for known, holder in ((_STORE, self._store.options), (_BROKER, options)):
            for key, (name, info, _) in known.items():
                values[key] = show_value(write_value(getattr(holder, name)), info)
        for key, (one, name, info) in self._fixed.items():
            values[key] = show_value(write_value(getattr(one, name)), info)
        header = BrokerConfigAnswerHeader(version=fastjson.write(self.version).decode())
        return Reply(header, dict(sorted(values.items())))

    async def change(self, request: Request) -> Reply:
        """Change all given options or none, and save them."""
        wanted: dict[str, str] = request.body or {}
        for_broker: dict[str, Any] = {}
        for_store: dict[str, Any] = {}
        for key, text in wanted.items():
            if key in self._fixed:
                _refuse_fixed(key)
            known, changes = (_BROKER, for_broker) if key in _BROKER else (_STORE, for_store)
            name, kind = _find_mutable(known, key)
            try:
                changes[name] = parse_value(key, text, kind)
            except ConfigError as error:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        async with self._changing:
            try:
                self._check(for_broker, for_store)
                await self._keep(wanted)
                self._apply(for_broker, for_store)
            except ConfigError as error:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        for key, text in wanted.items():
            log.info("%s=%s set by %s", key, text, request.link.peer)
        return Reply(remark=self._warn(wanted))

    def _check(self, for_broker: dict[str, Any], for_store: dict[str, Any]) -> None:
        check_bounds(dataclasses.replace(self._options.now, **for_broker))
        if for_store:
            self._store.check_options(dataclasses.replace(self._store.options, **for_store))

    async def _keep(self, wanted: Mapping[str, str]) -> None:
        """Write the changes to the file before they are reported as made."""
        kept = {key: text.strip() for key, text in wanted.items() if key not in _KEPT_ELSEWHERE}
        if self._path is not None and kept:
            await asyncio.to_thread(write_conf, self._path, kept)

    def _warn(self, wanted: Mapping[str, str]) -> str | None:
        """Warn about changes that the next start will override."""
        lost = [f"{key} is set by {self._overridden[key]}" for key in wanted if key in self._overridden]
        if not lost:
            return None
        text = f"{', '.join(lost)}, which overrides this change at the next start"
        log.warning("%s", text)
        return text

    def _apply(self, for_broker: dict[str, Any], for_store: dict[str, Any]) -> None:
        store = self._store
        if for_store:
            store.change_options(dataclasses.replace(store.options, **for_store))
            self._background.follow_options()
        self._options.change(**for_broker)
        if "log_level" in for_broker:
            set_log_level(for_broker["log_level"])
        if for_broker.keys() & _SAFETY:
            self._acknowledgement.follow_options()
        if for_broker or for_store:
            now_ms = self._clock.now_ms()
            self.version = DataVersion(counter=self.version.counter + 1, timestamp=now_ms)
        if "permission" in for_broker:
            # Name servers keep the permissions of each topic and accept only newer versions.
            self._topics.renew()


def _find_mutable(known: _Known, key: str) -> tuple[str, Any]:
    """Return the attribute and type of a mutable option, or refuse with an error that names the key."""
    found = known.get(key)
    if found is not None and found[1].mutable:
        return found[0], found[2]
    if found is not None:
        _refuse_fixed(key)
    reason = f"has no effect here: {IGNORED[key][1]}" if key in IGNORED else "is not an option"
    refuse(ResponseCode.NO_PERMISSION, f"{key} {reason}")


def _refuse_fixed(key: str) -> NoReturn:
    refuse(ResponseCode.NO_PERMISSION, f"{key} cannot be changed while the broker runs")
