"""The sandbox: WebAssembly modules of clients, each call limited in instructions, memory, stack and time.

The complete interface of a module (a module that imports anything is rejected):

- it exports its memory as `memory`;
- it exports `alloc(size: i32) -> i32`, which returns the address of that many bytes for the next message. It is called
  once per message, so a module may return the same address every time;
- it exports a function with the name of the filter class, `(address: i32, size: i32) -> i32`, which returns non-zero if
  the message matches.

A message has this layout, with little-endian numbers as in WebAssembly:

    u32 bytes of the properties | properties | body

Properties are in the stored format, `name 0x01 value 0x02 name 0x01 value`; the body is decompressed. A message larger
than half of a module's memory limit is not passed to it, and counts as a match: what a producer sends must not make a
module fail. A module that traps, or exceeds its limits, fails; others are not affected, because each pull has its own
instance.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eruca._ground import limits
from eruca._wire.record import Record, user_body
from eruca.errors import ConfigError, ErucaError, FilterFailed

if TYPE_CHECKING:
    import wasmtime

_PROPERTIES = struct.Struct("<I")
_TICK_S = 0.01
_TABLE_ELEMENTS_MAX = 10_000
_ADDRESSES = 2**32
_REASON_CHARS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """The limits of a module."""

    fuel: int = limits.FILTER_FUEL
    memory_bytes: int = limits.FILTER_MEMORY_BYTES_MAX
    stack_bytes: int = limits.FILTER_STACK_BYTES_MAX
    time_ms: int = limits.FILTER_TIME_MS_MAX
    module_bytes: int = limits.FILTER_MODULE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which of the first `done` messages match; the others were not checked within the time limit."""

    wanted: list[int]
    done: int


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Module:
    """A module that was checked and compiled."""

    name: str
    compiled: wasmtime.Module
    # Of the uploaded code.
    size: int


class Sandbox:
    """Compiles and runs modules. Its methods block: they are for worker threads, which may use it concurrently."""

    def __init__(self, bounds: SandboxLimits | None = None) -> None:
        self.limits = bounds or SandboxLimits()
        self._wasmtime: Any = _import_wasmtime()
        self._engine: wasmtime.Engine = self._wasmtime.Engine(self._configure())
        # The engine's clock, for the time limit: it runs only while a module runs.
        self._running = 0
        self._changed = threading.Condition()
        self._closed = False
        self._clock = threading.Thread(target=self._tick, name="eruca-filter-clock", daemon=True)
        self._clock.start()

    def _configure(self) -> wasmtime.Config:
        config: wasmtime.Config = self._wasmtime.Config()
        config.consume_fuel = True
        config.epoch_interruption = True
        config.max_wasm_stack = self.limits.stack_bytes
        # Uploads are frequent and calls are short: a compiler that is fast and uses one core suits both.
        config.cranelift_opt_level = "none"
        config.parallel_compilation = False
        # Features that no filter needs are disabled: they could be attacked, or used to get around the limits.
        config.wasm_threads = False
        config.wasm_memory64 = False
        config.wasm_multi_memory = False
        config.wasm_gc = False
        config.wasm_function_references = False
        config.wasm_component_model = False
        config.wasm_tail_call = False
        config.wasm_exceptions = False
        return config

    def close(self) -> None:
        """Stop the clock; nothing may run after this."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._clock.join()

    # -- compiling ---------------------------------------------------------------------------------------------------

    def compile(self, name: str, code: bytes) -> Module:
        """Check and compile a module, and try to instantiate it. Raises FilterFailed."""
        if len(code) > self.limits.module_bytes:
            raise FilterFailed(f"the module has {len(code)} bytes, the maximum is {self.limits.module_bytes}")
        if not code.startswith(b"\0asm"):
            raise FilterFailed("this is not a WebAssembly module", hint="Java and Python source is never run here")
        try:
            compiled = self._wasmtime.Module(self._engine, code)
        except self._wasmtime.WasmtimeError as error:
            raise FilterFailed(f"the module cannot be compiled: {_shorten(error)}") from None
        self._check_interface(name, compiled)
        module = Module(name, compiled, len(code))
        self.run(module, ())
        return module

    def _check_interface(self, name: str, compiled: wasmtime.Module) -> None:
        if compiled.imports:
            first = compiled.imports[0]
            raise FilterFailed(f"the module imports {first.module}.{first.name}; a filter may import nothing")
        exported = {export.name: export.type for export in compiled.exports}
        if not isinstance(exported.get("memory"), self._wasmtime.MemoryType):
            raise FilterFailed("the module does not export a memory named memory")
        for function, count in (("alloc", 1), (name, 2)):
            kind = exported.get(function)
            if not isinstance(kind, self._wasmtime.FuncType):
                raise FilterFailed(f"the module does not export a function named {function}")
            if [str(value) for value in kind.params] != ["i32"] * count or [str(v) for v in kind.results] != ["i32"]:
                raise FilterFailed(f"{function} of the module must take {count} i32 arguments and return an i32")

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, module: Module, messages: Sequence[Record]) -> Verdict:
        """Ask a new instance of a module about messages. Raises FilterFailed if it traps or exceeds its limits.

        After half of the time limit no further message is started, so that slow but honest modules do not fail.
        """
        deadline = time.monotonic() + self.limits.time_ms / 2000
        wanted: list[int] = []
        done = 0
        with self._time_limit():
            try:
                ask = self._instantiate(module)
                for number, message in enumerate(messages):
                    if number and time.monotonic() > deadline:
                        break
                    encoded = encode_message(message)
                    if len(encoded) > self.limits.memory_bytes // 2 or ask(encoded):
                        wanted.append(number)
                    done = number + 1
            except (self._wasmtime.WasmtimeError, self._wasmtime.Trap) as error:
                raise FilterFailed(f"{module.name} was stopped: {self._explain(error)}") from None
        return Verdict(wanted, done)

    def _instantiate(self, module: Module) -> Any:
        bounds = self.limits
        store = self._wasmtime.Store(self._engine)
        store.set_limits(
            memory_size=bounds.memory_bytes, table_elements=_TABLE_ELEMENTS_MAX, instances=1, tables=4, memories=1
        )
        store.set_epoch_deadline(max(1, round(bounds.time_ms / 1000 / _TICK_S)))
        store.set_fuel(bounds.fuel)
        exports = self._wasmtime.Instance(store, module.compiled, []).exports(store)
        memory, allocate, matches = exports["memory"], exports["alloc"], exports[module.name]

        def ask(message: bytes) -> bool:
            store.set_fuel(bounds.fuel)
            address = allocate(store, len(message)) % _ADDRESSES
            if address + len(message) > memory.data_len(store):
                raise FilterFailed(f"alloc of {module.name} returned an address outside its memory")
            memory.write(store, message, address)
            return bool(matches(store, address, len(message)))

        return ask

    def _explain(self, error: Exception) -> str:
        text = _shorten(error)
        if "fuel" in text:
            return f"it used more than {self.limits.fuel} instructions for one message"
        if "interrupt" in text or "epoch" in text:
            return f"it took more than {self.limits.time_ms} ms"
        if "stack" in text:
            return f"its calls nest deeper than {self.limits.stack_bytes} bytes of stack"
        if "memory" in text and "limit" in text:
            return f"it needs more than {self.limits.memory_bytes} bytes of memory"
        return text

    # -- the clock ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _time_limit(self) -> Iterator[None]:
        with self._changed:
            self._running += 1
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1

    def _tick(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._running or self._closed)
                if self._closed:
                    return
            time.sleep(_TICK_S)
            self._engine.increment_epoch()


def encode_message(message: Record) -> bytes:
    """Encode a message for modules."""
    properties = message.properties
    return b"".join((_PROPERTIES.pack(len(properties)), properties, read_body(message)))


def read_body(message: Record) -> bytes:
    """Return the body as its sender wrote it, or as stored if it cannot be decompressed."""
    try:
        return user_body(message)
    except ErucaError:
        return message.body


def _shorten(error: Exception) -> str:
    """Return the last and most specific line of a runtime's error, without the addresses of its frames."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else "no reason given"
    return text[:_REASON_CHARS_MAX]


def _import_wasmtime() -> Any:
    try:
        import wasmtime
    except ImportError:
        raise ConfigError(
            "filter servers need the wasmtime library", hint="install it: pip install 'eruca[filterserver]'"
        ) from None
    return wasmtime
