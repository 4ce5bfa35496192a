"""Rows packed into batch bodies: what is packed decodes to what went in, built and as plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._wire.batch import BatchItem, decode_batch, encode_batch
from eruca._wire.javahash import java_hash
from eruca._wire.properties import parse_properties
from tests.kernels import load_twins

TWINS = load_twins("eruca._spark.kernel.packing")
each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())


def make_texts(twin: ModuleType, texts: Sequence[bytes | None]) -> Any:
    offsets = np.cumsum([0, *[len(text or b"") for text in texts]], dtype=np.int32)
    data = np.frombuffer(b"".join(text or b"" for text in texts) or b"\0", np.uint8)
    valid = np.array([text is not None for text in texts], np.uint8)
    return twin.Texts(offsets, data, valid if None in texts else None)


def make_lists(twin: ModuleType, lists: Sequence[Sequence[bytes | None]]) -> tuple[Any, Any]:
    ends = np.cumsum([0, *[len(each) for each in lists]], dtype=np.int32)
    return ends, make_texts(twin, [text for each in lists for text in each])


def pack(
    twin: ModuleType,
    bodies: list[bytes | None],
    fields: list[Any],
    *,
    order: list[int] | None = None,
    flags: list[int] | None = None,
    body_max: int = 1000,
    properties_max: int = 1000,
    room: int | None = None,
) -> tuple[bytes, list[int], list[int]]:
    texts = make_texts(twin, bodies)
    rows = np.array(range(len(bodies)) if order is None else order, np.int64)
    if room is None:
        room = sum(len(body or b"") + twin.ITEM_BYTES for body in bodies)
        room += sum(field.find_room(len(bodies)) for field in fields)
    out = np.zeros(max(1, room), np.uint8)
    ends, reasons = np.zeros(len(rows), np.int64), np.full(len(rows), 99, np.uint8)
    good = twin.pack_rows(
        rows, texts, np.array(flags or [], np.int32), fields, body_max, properties_max, out, ends, reasons
    )
    assert good == int((reasons == twin.GOOD).sum())
    size = int(ends[-1]) if len(ends) else 0
    return out[:size].tobytes(), ends.tolist(), reasons.tolist()


@each_twin
def test_rows_are_what_a_batch_has(twin: ModuleType) -> None:
    packed, ends, _ = pack(twin, [b"one", b"two!"], [twin.ConstantField(b"a\x01b\x02")], flags=[7, -1])
    items = [BatchItem(7, b"one", b"a\x01b"), BatchItem(-1, b"two!", b"a\x01b")]
    assert packed == encode_batch(items)
    assert ends == [28, 57]


@each_twin
def test_rows_are_packed_in_the_order_that_is_asked_for(twin: ModuleType) -> None:
    packed, _, _ = pack(twin, [b"0", b"1", b"2"], [twin.NumberField(b"n\x01", 40)], order=[2, 0])
    assert [(item.body, item.properties) for item in decode_batch(packed)] == [(b"2", b"n\x0142"), (b"0", b"n\x0140")]


@each_twin
def test_every_kind_of_field(twin: ModuleType) -> None:
    lists, words = make_lists(twin, [[b"k1", None, b"k2"], [], [b""]])
    maps, names = make_lists(twin, [[b"x", b"TAGS", b"Y"], [b""], [b"z"]])
    values = make_texts(twin, [b"1", b"2", b"3", b"4", None])
    fields = [
        twin.IdField(b"A" * 28, 0xFFFE),
        twin.TextField(b"TAGS", make_texts(twin, [b"red", None, b""])),
        twin.WordsField(b"KEYS", lists, words),
        twin.MapField(maps, names, values, frozenset({b"TAGS"})),
        twin.NumberField(b"ERUCA_ONCE\x01q:1:2:", 9),
    ]
    packed, _, reasons = pack(twin, [b"a", b"b", b"c"], fields)
    assert reasons == [0, 0, 0]
    found = [parse_properties(item.properties) for item in decode_batch(packed)]
    ids = ["A" * 28 + digits for digits in ("FFFE", "FFFF", "0000")]
    assert found == [
        {"UNIQ_KEY": ids[0], "TAGS": "red", "KEYS": "k1 k2", "x": "1", "Y": "3", "ERUCA_ONCE": "q:1:2:9"},
        {"UNIQ_KEY": ids[1], "ERUCA_ONCE": "q:1:2:10"},
        {"UNIQ_KEY": ids[2], "ERUCA_ONCE": "q:1:2:11"},
    ]


@each_twin
@pytest.mark.parametrize(
    ("body", "text", "reason"),
    [
        (None, b"x", "NO_BODY"),
        (b"", b"x", "NO_BODY"),
        (b"123456", b"x", "BODY_TOO_LARGE"),
        (b"1", b"a\x01", "HAS_SEPARATOR"),
        (b"1", b"\x02", "HAS_SEPARATOR"),
        (b"1", b"0123456789", "PROPERTIES_TOO_LARGE"),
    ],
)
def test_a_row_that_cannot_be_sent_takes_no_room(
    twin: ModuleType, body: bytes | None, text: bytes, reason: str
) -> None:
    fields = [twin.TextField(b"t", make_texts(twin, [b"good", text, b"good"]))]
    packed, ends, reasons = pack(twin, [b"1", body, b"3"], fields, body_max=5, properties_max=10)
    assert reasons == [twin.GOOD, getattr(twin, reason), twin.GOOD]
    assert ends[0] == ends[1] < ends[2]
    assert [item.body for item in decode_batch(packed)] == [b"1", b"3"]


@each_twin
def test_a_key_with_a_blank_and_separators_in_lists_and_maps(twin: ModuleType) -> None:
    for words, reason in (([b"a b"], twin.HAS_BLANK), ([b"a", b"\x01"], twin.HAS_SEPARATOR)):
        assert pack(twin, [b"1"], [twin.WordsField(b"KEYS", *make_lists(twin, [words]))])[2] == [reason]
    for name, value in ((b"a\x02", b"b"), (b"a", b"\x01b")):
        lists, names = make_lists(twin, [[name]])
        field = twin.MapField(lists, names, make_texts(twin, [value]), frozenset())
        assert pack(twin, [b"1"], [field])[2] == [twin.HAS_SEPARATOR]


@each_twin
def test_a_buffer_that_is_too_small_is_an_error_and_not_overrun(twin: ModuleType) -> None:
    lists, words = make_lists(twin, [[b"w"]])
    for field in (
        twin.ConstantField(b"abc"),
        twin.TextField(b"t", make_texts(twin, [b"text"])),
        twin.WordsField(b"k", lists, words),
        twin.MapField(lists, words, make_texts(twin, [b"v"]), frozenset()),
        twin.IdField(b"p", 0),
        twin.NumberField(b"n", 0),
    ):
        enough = 1 + twin.ITEM_BYTES + field.find_room(1)
        pack(twin, [b"1"], [field], room=enough)
        for room in (5, 1 + twin.ITEM_BYTES + 1):
            with pytest.raises(ValueError, match="not enough"):
                pack(twin, [b"1"], [field], room=room)


_bodies = st.lists(st.one_of(st.none(), st.binary(max_size=20)), min_size=1, max_size=12)
_text = st.text(st.characters(codec="utf-8"), max_size=8).map(str.encode)


@given(_bodies, st.data())
def test_built_and_plain_agree(bodies: list[bytes | None], data: st.DataObject) -> None:
    count = len(bodies)
    tags = data.draw(st.lists(st.one_of(st.none(), _text), min_size=count, max_size=count))
    keys = data.draw(st.lists(st.lists(st.one_of(st.none(), _text), max_size=3), min_size=count, max_size=count))
    order = data.draw(st.permutations(range(count)))
    found = []
    for twin in TWINS.values():
        fields = [
            twin.TextField(b"TAGS", make_texts(twin, tags)),
            twin.WordsField(b"KEYS", *make_lists(twin, keys)),
            twin.MapField(*make_lists(twin, keys), make_lists(twin, keys)[1], frozenset({b"A"})),
        ]
        found.append(pack(twin, bodies, fields, order=list(order)))
    assert all(each == found[0] for each in found)
    assert len(decode_batch(found[0][0])) == found[0][2].count(0)


@given(st.lists(st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=30)), max_size=10))
def test_hashes_are_javas(texts: list[str | None]) -> None:
    for twin in TWINS.values():
        out = np.zeros(max(1, len(texts)), np.int64)
        twin.hash_texts(make_texts(twin, [None if each is None else each.encode() for each in texts]), len(texts), out)
        assert out[: len(texts)].tolist() == [java_hash(each or "") for each in texts]
