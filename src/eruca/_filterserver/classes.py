"""The filter class of each group and topic: uploaded, compiled once, and disabled when it fails."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakValueDictionary

from eruca._filterserver.plugins import FilterClass, run_plugin
from eruca._filterserver.sandbox import Module, Sandbox, Verdict
from eruca._ground.limits import (
    FILTER_CLASSES_MAX,
    FILTER_MODULES_BYTES_MAX,
    FILTER_NAME_CHARS_MAX,
    FILTER_UPLOADS_WAITING_MAX,
    RECORD_TOPIC_BYTES_MAX,
)
from eruca._net.handlers import HandlerTable, Reply, Request
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import RegisterFilterClassHeader
from eruca._wire.names import check_group, check_topic
from eruca._wire.record import Record, body_crc
from eruca.errors import FilterFailed, RequestRefused

log = logging.getLogger(__name__)


class GroupFilter:
    """The filter class of one group for one topic."""

    def __init__(self, name: str, digest: bytes, what: Module | FilterClass) -> None:
        self.name = name
        self.digest = digest
        self.what = what
        self.size = what.size if isinstance(what, Module) else 0
        # Why it is disabled; empty while it is not.
        self.failure = ""
        # One pull at a time, so that a class never uses more than one worker.
        self.turn = asyncio.Lock()


class FilterClasses:
    """Accepts uploads, and filters messages for groups."""

    def __init__(self, sandbox: Sandbox, plugins: Mapping[str, FilterClass], *, uploads: bool, workers: int) -> None:
        self._sandbox = sandbox
        self._plugins = plugins
        self._uploads = uploads
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="eruca-filter")
        # Compiling cannot be interrupted; in its own thread it delays other uploads but no pull.
        self._compiler = ThreadPoolExecutor(1, thread_name_prefix="eruca-filter-compiler")
        self._groups: OrderedDict[tuple[str, str], GroupFilter] = OrderedDict()
        # Compiled modules in use by groups, keyed by their digest, not by the CRC they came with: two modules with the
        # same CRC are easy to make.
        self._modules: WeakValueDictionary[tuple[str, bytes], Module] = WeakValueDictionary()
        self._compiling = 0

    def register(self, table: HandlerTable) -> None:
        """Register the upload handler."""
        table.add(RequestCode.REGISTER_MESSAGE_FILTER_CLASS, self._take)

    async def close(self) -> None:
        """Wait for running work; the limits make sure that this is soon."""
        await asyncio.to_thread(self._compiler.shutdown, cancel_futures=True)
        await asyncio.to_thread(self._workers.shutdown, cancel_futures=True)

    # -- uploads -----------------------------------------------------------------------------------------------------

    async def _take(self, request: Request) -> Reply:
        """Set the filter class of a group: an installed one of that name, or the module in the body."""
        header: RegisterFilterClassHeader = request.header
        # They are stored and logged, so they must be valid names.
        check_group(header.consumer_group)
        check_topic(header.topic, RECORD_TOPIC_BYTES_MAX)
        body = bytes(request.body or b"")
        key = header.consumer_group, header.topic
        try:
            found = self._find_plugin(header) or await self._read_module(header, body)
        except FilterFailed as error:
            log.warning("rejected filter class %.80r of %s: %s", header.class_name, header.consumer_group, error)
            remark = f"filter class {header.class_name[:FILTER_NAME_CHARS_MAX]}: {error}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark) from None
        known = self._groups.get(key)
        if known is not None and (known.name, known.digest) == (found.name, found.digest):
            # Clients upload repeatedly; that does not enable a class that failed.
            if known.failure:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, known.failure)
            self._groups.move_to_end(key)
            return Reply()
        self._groups[key] = found
        self._groups.move_to_end(key)
        self._make_room()
        log.info("group %s now uses filter class %r for %s", header.consumer_group, found.name, header.topic)
        return Reply()

    def _make_room(self) -> None:
        size = sum(known.size for known in self._groups.values())
        while len(self._groups) > FILTER_CLASSES_MAX or size > FILTER_MODULES_BYTES_MAX:
            (group, topic), oldest = self._groups.popitem(last=False)
            size -= oldest.size
            log.warning(
                "filter class %r of group %s for %s was dropped to make room for another", oldest.name, group, topic
            )

    def _find_plugin(self, header: RegisterFilterClassHeader) -> GroupFilter | None:
        plugin = self._plugins.get(header.class_name)
        return None if plugin is None else GroupFilter(header.class_name, b"", plugin)

    async def _read_module(self, header: RegisterFilterClassHeader, body: bytes) -> GroupFilter:
        name = header.class_name
        if not body:
            raise FilterFailed("no such class is installed here, and no module was sent")
        if not self._uploads:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, "this filter server accepts no uploads, only installed classes"
            )
        if not 0 < len(name) <= FILTER_NAME_CHARS_MAX:
            raise FilterFailed(f"the name has {len(name)} characters, the maximum is {FILTER_NAME_CHARS_MAX}")
        if len(body) > self._sandbox.limits.module_bytes * 4 // 3 + 4:
            raise FilterFailed(f"the module is larger than {self._sandbox.limits.module_bytes} bytes")
        if body_crc(body) != header.class_crc:
            raise FilterFailed(f"its CRC is {body_crc(body)}, not {header.class_crc}: it was corrupted in transit")
        try:
            code = base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError):
            raise FilterFailed(
                "the body is not the base64 of a WebAssembly module", hint="Java and Python source is never run here"
            ) from None
        digest = hashlib.sha256(code).digest()
        module = self._modules.get((name, digest))
        if module is None:
            module = await self._compile(name, code)
            self._modules[name, digest] = module
        return GroupFilter(name, digest, module)

    async def _compile(self, name: str, code: bytes) -> Module:
        if self._compiling >= FILTER_UPLOADS_WAITING_MAX:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY, f"{self._compiling} uploads are already waiting to be compiled"
            )
        self._compiling += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._compiler, self._sandbox.compile, name, code)
        finally:
            self._compiling -= 1

    # -- filtering ---------------------------------------------------------------------------------------------------

    def find(self, group: str, topic: str) -> GroupFilter:
        """Return the class of a group for a topic. Raises RequestRefused if it has none, or if it is disabled."""
        found = self._groups.get((group, topic))
        if found is None:
            raise RequestRefused(
                ResponseCode.FILTER_DATA_NOT_EXIST, f"group {group} has not uploaded a filter class for {topic}"
            )
        if found.failure:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, found.failure)
        self._groups.move_to_end((group, topic))
        return found

    async def filter(self, chosen: GroupFilter, messages: Sequence[Record]) -> Verdict:
        """Ask a class which messages match, without blocking the loop. Raises RequestRefused."""
        async with chosen.turn:
            if chosen.failure:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, chosen.failure)
            loop = asyncio.get_running_loop()
            what = chosen.what
            try:
                if isinstance(what, Module):
                    return await loop.run_in_executor(self._workers, self._sandbox.run, what, messages)
                return await loop.run_in_executor(self._workers, run_plugin, chosen.name, what, messages)
            except FilterFailed as error:
                if isinstance(what, Module):
                    chosen.failure = f"filter class {chosen.name} is disabled: {error}"
                    log.warning("%s", chosen.failure)
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, chosen.failure or str(error)) from None
