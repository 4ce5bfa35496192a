"""The sandbox: good modules filter, and no module gets more than its limits."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Iterator

import pytest

from eruca._filterserver.sandbox import Sandbox, SandboxLimits, encode_message
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record
from eruca._wire.sysflag import COMPRESSED
from eruca.errors import FilterFailed
from tests.unit.filterserver import modules
from tests.unit.filterserver.modules import NAME

MESSAGES = [Record("t", body=body) for body in (b"Anna", b"Bob", b"Albert", b"Cleo")]
# Enough for a busy machine to get to the last message: after half of it none is started.
TIME_MS = 60_000


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox(SandboxLimits(time_ms=TIME_MS))
    yield made
    made.close()


def test_messages_are_chosen_by_body_and_by_properties(sandbox: Sandbox) -> None:
    by_body = sandbox.run(sandbox.compile(NAME, modules.want_first("A")), MESSAGES)
    assert (by_body.wanted, by_body.done) == ([0, 2], 4)
    named = [Record("t", properties=encode_properties({name: "1"})) for name in ("alpha", "beta")]
    assert sandbox.run(sandbox.compile(NAME, modules.want_first_property("b")), named).wanted == [1]


def test_a_compressed_body_is_shown_as_it_was_written(sandbox: Sandbox) -> None:
    packed = Record("t", body=zlib.compress(b"Anna" * 100), sys_flag=COMPRESSED)
    broken = Record("t", body=b"Anna", sys_flag=COMPRESSED)
    assert encode_message(packed) == b"\0\0\0\0" + b"Anna" * 100
    assert sandbox.run(sandbox.compile(NAME, modules.want_first("A")), [packed, broken]).wanted == [0, 1]


def test_a_large_message_does_not_make_a_good_module_fail(sandbox: Sandbox) -> None:
    limit = sandbox.limits.memory_bytes
    large, too_large = (Record("t", body=b"B" * size) for size in (limit // 2 - 8, limit))
    # What cannot be shown is left to the consumer.
    assert sandbox.run(sandbox.compile(NAME, modules.want_first("A")), [large, too_large]).wanted == [1]


def test_what_a_module_remembers_ends_with_the_pull(sandbox: Sandbox) -> None:
    module = sandbox.compile(NAME, modules.COUNTING)
    assert [sandbox.run(module, MESSAGES[:3]).wanted for _ in range(2)] == [[0, 2], [0, 2]]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (modules.ENDLESS, "instructions for one message"),
        (modules.GREEDY, "unreachable"),
        (modules.RECURSIVE, "calls nest deeper"),
        (modules.OUTSIDE, "outside its memory"),
        (modules.TABLE_EATER, "unreachable"),
    ],
    ids=["endless", "greedy", "recursive", "outside", "table"],
)
def test_a_hostile_module_is_stopped(sandbox: Sandbox, code: bytes, reason: str) -> None:
    module = sandbox.compile(NAME, code)
    with pytest.raises(FilterFailed, match=reason):
        sandbox.run(module, MESSAGES)
    # And the sandbox continues to work.
    assert sandbox.run(sandbox.compile(NAME, modules.want_first("A")), MESSAGES).wanted == [0, 2]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (modules.BORN_LARGE, "bytes of memory"),
        (modules.ENDLESS_START, "instructions"),
        (modules.IMPORTING, r"imports wasi_snapshot_preview1\.fd_write"),
        (modules.NO_MEMORY, "not export a memory"),
        (modules.NO_ALLOC, "not export a function named alloc"),
        (modules.OTHER_NAME, f"not export a function named {NAME}"),
        (modules.WRONG_SHAPE, "must take 2 i32"),
        (modules.EVERYTHING[:-3], "cannot be compiled"),
        (b"public class Wanted {}", "not a WebAssembly"),
        (b"\0asm" + bytes(300_000), "the maximum is 262144"),
    ],
    ids=["born-large", "start", "import", "memory", "alloc", "name", "shape", "cut", "java", "size"],
)
def test_a_module_that_cannot_be_one_is_refused_at_once(sandbox: Sandbox, code: bytes, reason: str) -> None:
    with pytest.raises(FilterFailed, match=reason):
        sandbox.compile(NAME, code)


def test_time_is_limited_where_instructions_are_not() -> None:
    sandbox = Sandbox(SandboxLimits(fuel=2**62, time_ms=100))
    try:
        began = time.monotonic()
        with pytest.raises(FilterFailed, match="more than 100 ms"):
            sandbox.run(sandbox.compile(NAME, modules.ENDLESS), MESSAGES)
        assert time.monotonic() - began < 10
    finally:
        sandbox.close()


def test_a_slow_module_is_asked_about_fewer_messages() -> None:
    # Two million turns a message: the time is over long before the last of them has its turn.
    slow = modules.make_module(
        "(local $n i32) (loop (local.set $n (i32.add (local.get $n) (i32.const 1)))"
        " (br_if 0 (i32.lt_u (local.get $n) (i32.const 2000000)))) (i32.const 1)"
    )
    sandbox = Sandbox(SandboxLimits(fuel=2**62, time_ms=1000))
    try:
        verdict = sandbox.run(sandbox.compile(NAME, slow), [Record("t")] * 100_000)
    finally:
        sandbox.close()
    assert 0 < verdict.done < 100_000
    assert verdict.wanted == list(range(verdict.done))


def test_threads_share_a_sandbox_and_a_hostile_one_harms_nobody(sandbox: Sandbox) -> None:
    good, bad = sandbox.compile(NAME, modules.want_first("A")), sandbox.compile(NAME, modules.RECURSIVE)
    answers: list[list[int]] = []
    stopped: list[str] = []

    def use_well() -> None:
        answers.extend(sandbox.run(good, MESSAGES).wanted for _ in range(50))

    def use_badly() -> None:
        for _ in range(20):
            try:
                sandbox.run(bad, MESSAGES)
            except FilterFailed as error:
                stopped.append(str(error))

    threads = [threading.Thread(target=work) for work in (use_well, use_badly, use_well, use_badly)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [[0, 2]] * 100
    assert len(stopped) == 40
