"""Filter modules in WebAssembly text: good ones, and those that must be stopped."""

from __future__ import annotations

import wasmtime

NAME = "Wanted"
_HEAD = """
(memory (export "memory") 2)
(func (export "alloc") (param $size i32) (result i32)
  ;; One place for all messages, grown when one is larger than what is there.
  (local $missing i32)
  (local.set $missing (i32.sub (i32.add (local.get $size) (i32.const 1024)) (i32.mul (memory.size) (i32.const 65536))))
  (if (i32.gt_s (local.get $missing) (i32.const 0))
    (then (drop (memory.grow (i32.add (i32.div_u (local.get $missing) (i32.const 65536)) (i32.const 1))))))
  (i32.const 1024))
"""
_BODY_AT = "(i32.add (i32.add (local.get $at) (i32.const 4)) (i32.load (local.get $at)))"


def make_module(function: str, head: str = _HEAD, name: str = NAME) -> bytes:
    """A module whose filter function has this code; `$at` and `$size` are the address and size of the message."""
    text = f'(module {head} (func $self (export "{name}") (param $at i32) (param $size i32) (result i32) {function}))'
    return bytes(wasmtime.wat2wasm(text))


def want_first(letter: str) -> bytes:
    """Messages whose body begins with a letter."""
    return make_module(f"(i32.eq (i32.load8_u {_BODY_AT}) (i32.const {ord(letter)}))")


def want_first_property(letter: str) -> bytes:
    """Messages whose properties begin with a letter."""
    return make_module(f"(i32.eq (i32.load8_u offset=4 (local.get $at)) (i32.const {ord(letter)}))")


EVERYTHING = make_module("(i32.const 1)")
NOTHING = make_module("(i32.const 0)")
COUNTING = make_module(
    # Every second message of an instance: its memory does not outlive a pull.
    "(global.set $seen (i32.add (global.get $seen) (i32.const 1))) (i32.and (global.get $seen) (i32.const 1))",
    f"{_HEAD} (global $seen (mut i32) (i32.const 0))",
)
ENDLESS = make_module("(loop (br 0)) (i32.const 1)")
# Grows by a page until it has 4 GiB, and touches every page.
GREEDY = make_module(
    "(loop (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))"
    " (i32.store (i32.mul (i32.sub (memory.size) (i32.const 1)) (i32.const 65536)) (i32.const 7)) (br 0)) (i32.const 1)"
)
RECURSIVE = make_module("(i32.add (i32.const 1) (call $self (local.get $at) (local.get $size)))")
_PLAIN_ALLOC = '(func (export "alloc") (param i32) (result i32) (i32.const 1024))'
# These are stopped when they are uploaded: 4 GiB from the start, and an endless loop in the start function.
BORN_LARGE = make_module("(i32.const 1)", f'(memory (export "memory") 65536) {_PLAIN_ALLOC}')
ENDLESS_START = make_module("(i32.const 1)", f"{_HEAD} (func $s (loop (br 0))) (start $s)")
IMPORTING = make_module("(i32.const 1)", f'(import "wasi_snapshot_preview1" "fd_write" (func)) {_HEAD}')
OUTSIDE = make_module(
    "(i32.const 1)", '(memory (export "memory") 1) (func (export "alloc") (param i32) (result i32) (i32.const -8))'
)
TABLE_EATER = make_module(
    "(if (i32.eq (table.grow (ref.null func) (i32.const 100000000)) (i32.const -1)) (then unreachable)) (i32.const 1)",
    f"{_HEAD} (table 1 funcref)",
)
NO_MEMORY = make_module("(i32.const 1)", _PLAIN_ALLOC)
NO_ALLOC = make_module("(i32.const 1)", '(memory (export "memory") 1)')
OTHER_NAME = make_module("(i32.const 1)", name="Other")
WRONG_SHAPE = bytes(
    wasmtime.wat2wasm(f'(module (memory (export "memory") 1) {_PLAIN_ALLOC} (func (export "{NAME}") (param i64)))')
)
