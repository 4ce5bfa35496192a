"""Memory goes back to the system after a peak, and only then."""

from __future__ import annotations

import pytest

from eruca._net.heap import HeapWatch, find_trim

MIB = 1024 * 1024


async def test_memory_is_given_back_when_a_peak_is_over() -> None:
    calls: list[int] = []

    def trim(pad: int) -> int:
        calls.append(pad)
        return 1

    heap = HeapWatch()
    heap._trim = trim
    for used in (0, MIB, 0, 100 * MIB, 200 * MIB, 51 * MIB):
        await heap.look(used)
    assert heap.count == 0
    await heap.look(50 * MIB)
    assert (heap.count, calls) == (1, [0])
    await heap.look(40 * MIB)  # what is left is the new peak
    assert heap.count == 1
    await heap.look(0)
    await heap.look(0)
    assert heap.count == 2


async def test_a_c_library_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eruca._net.heap.find_trim", lambda: None)
    heap = HeapWatch()
    await heap.look(100 * MIB)
    await heap.look(0)
    assert heap.count == 0


async def test_the_real_one_can_be_called() -> None:
    if find_trim() is None:
        pytest.skip("not glibc")
    heap = HeapWatch()
    await heap.look(100 * MIB)
    await heap.look(0)
    assert heap.count == 1
