"""HPACK, compiled and as plain Python: the examples of RFC 7541, and blocks that cannot be decoded."""

from __future__ import annotations

from types import ModuleType

import pytest

from eruca._net.http2.answers import encode_field
from eruca._net.http2.hpacktables import STATIC_FIELDS, CompressionError
from tests.kernels import load_twins

Fields = dict[str, str]

TWINS = load_twins("eruca._net.http2.kernel.hpack")
BYTES_MAX = 16_384


@pytest.fixture(params=sorted(TWINS))
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return TWINS[request.param]


FIRST = {":method": "GET", ":scheme": "http", ":path": "/", ":authority": "www.example.com"}
THIRD = {":method": "GET", ":scheme": "https", ":path": "/index.html", ":authority": "www.example.com"}
REQUESTS = (FIRST, FIRST | {"cache-control": "no-cache"}, THIRD | {"custom-key": "custom-value"})

# Appendix C.3: three requests on one connection, without Huffman codes.
PLAIN = (
    "828684410f7777772e6578616d706c652e636f6d",
    "828684be58086e6f2d6361636865",
    "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
)
# Appendix C.4: the same with Huffman codes.
CODED = (
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
)
# Appendix C.5 and C.6: responses, with a table of 256 bytes, which the first two fill.
DATE, LATER = "Mon, 21 Oct 2013 20:13:21 GMT", "Mon, 21 Oct 2013 20:13:22 GMT"
COOKIE = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
MOVED = {":status": "302", "cache-control": "private", "date": DATE, "location": "https://www.example.com"}
RESPONSES = (
    MOVED,
    MOVED | {":status": "307"},
    MOVED | {":status": "200", "date": LATER, "content-encoding": "gzip", "set-cookie": COOKIE},
)
RESPONSES_PLAIN = (
    "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768747470733a2f2f77"
    "77772e6578616d706c652e636f6d",
    "4803333037c1c0bf",
    "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b48514b425a"
    "584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
)
RESPONSES_CODED = (
    "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
    "4883640effc1c0bf",
    "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f36"
    "72c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
)


@pytest.mark.parametrize(
    ("blocks", "expected", "before"),
    [
        (PLAIN, REQUESTS, ""),
        (CODED, REQUESTS, ""),
        (RESPONSES_PLAIN, RESPONSES, "3fe101"),
        (RESPONSES_CODED, RESPONSES, "3fe101"),
    ],
)
def test_the_examples_of_the_specification(
    kernel: ModuleType, blocks: tuple[str, ...], expected: tuple[Fields, ...], before: str
) -> None:
    decoder = kernel.HeaderDecoder()
    for number, (block, fields) in enumerate(zip(blocks, expected, strict=True)):
        resize = before if number == 0 else ""
        assert decoder.decode(bytes.fromhex(resize + block), BYTES_MAX)[0] == fields


@pytest.mark.parametrize(
    ("block", "fields", "kept"),
    [
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", {"custom-key": "custom-header"}, 1),
        ("040c2f73616d706c652f70617468", {":path": "/sample/path"}, 0),
        ("100870617373776f726406736563726574", {"password": "secret"}, 0),
        ("82", {":method": "GET"}, 0),
    ],
)
def test_the_kinds_of_fields(kernel: ModuleType, block: str, fields: Fields, kept: int) -> None:
    """Appendix C.2."""
    decoder = kernel.HeaderDecoder()
    assert decoder.decode(bytes.fromhex(block), BYTES_MAX) == (fields, "")
    assert decoder.count() == kept


def test_the_static_table_is_that_of_the_specification(kernel: ModuleType) -> None:
    assert len(STATIC_FIELDS) == 61
    for index, name, value in (
        (1, ":authority", ""),
        (16, "accept-encoding", "gzip, deflate"),
        (61, "www-authenticate", ""),
    ):
        assert kernel.HeaderDecoder().decode(bytes((0x80 | index,)), BYTES_MAX)[0] == {name: value}


def test_every_byte_has_a_huffman_code(kernel: ModuleType) -> None:
    """The codes of some bytes with 5, 8, 13, 23, 28 and 30 bits, padded with ones: `0`, `&`, NUL, 0x01, 0x02, LF."""
    for code, byte in (("07", 48), ("f8", 38), ("ffc7", 0), ("ffffb1", 1), ("fffffe2f", 2), ("fffffff3", 10)):
        coded = bytes.fromhex(code)
        fields, problem = kernel.HeaderDecoder().decode(b"\x00\x01a" + bytes((0x80 | len(coded),)) + coded, BYTES_MAX)
        assert fields == {"a": chr(byte)}
        assert bool(problem) == (byte in (0, 10))


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("80", "beyond the end"),
        ("be", "beyond the end"),
        ("7f00", "beyond the end"),
        ("ff", "cut off"),
        ("ff808080808080", "too large"),
        ("ffffffffff7f", "too large"),
        ("40", "cut off"),
        ("0001", "cut off"),
        ("000161", "cut off"),
        ("00016105", "cut off"),
        ("0001617f", "cut off"),
        ("3fe21f", "larger than allowed"),
        ("8220", "middle of a block"),
        ("00016184ffffffff", "Huffman"),  # EOS
        ("00016182ffff", "Huffman"),  # more than seven bits of padding
        ("0001618100", "Huffman"),  # padding of zeros
    ],
)
def test_blocks_that_cannot_be_decoded(kernel: ModuleType, block: str, why: str) -> None:
    with pytest.raises(CompressionError, match=why):
        kernel.HeaderDecoder().decode(bytes.fromhex(block), BYTES_MAX)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([(":path", "/"), (":path", "/")], "twice or too late"),
        ([("a", "b"), (":path", "/")], "twice or too late"),
        ([(":status", "200")], "':status' is not the name"),
        ([("Upper", "case")], "'Upper' is not the name"),
        ([("", "nameless")], "'' is not the name"),
        ([("a b", "c")], "'a b' is not the name"),
        ([("connection", "close")], "connection is not a header of HTTP/2"),
        ([("transfer-encoding", "chunked")], "transfer-encoding is not"),
        ([("te", "gzip")], "te is not trailers"),
        ([("a", "b\r\nc: d")], "control character"),
    ],
)
def test_fields_that_a_request_must_not_have(kernel: ModuleType, fields: list[tuple[str, str]], why: str) -> None:
    """They also count when they come from the table."""
    block = b"".join(encode_field(name, value) for name, value in fields)
    assert why in kernel.HeaderDecoder().decode(block, BYTES_MAX)[1]
    decoder = kernel.HeaderDecoder()
    kept = b"".join(b"\x40" + encode_field(name, value)[1:] for name, value in fields)
    assert why in decoder.decode(kept, BYTES_MAX)[1]
    again = bytes(0xBE + decoder.count() - 1 - number for number in range(decoder.count()))
    assert why in decoder.decode(again, BYTES_MAX)[1]


def test_values_of_one_name_are_joined(kernel: ModuleType) -> None:
    block = encode_field("a", "1") + encode_field("b", "x") + encode_field("a", "2")
    assert kernel.HeaderDecoder().decode(block, BYTES_MAX) == ({"a": "1,2", "b": "x"}, "")
    utf8 = b"\x00\x01a\x03\xc3\xa4\xff"
    assert kernel.HeaderDecoder().decode(utf8, BYTES_MAX) == ({"a": "ä\ufffd"}, "")


def test_a_block_that_expands_is_cut_and_keeps_the_table(kernel: ModuleType) -> None:
    """A field of 4 KiB that is named by one byte a thousand times takes no memory."""
    decoder = kernel.HeaderDecoder()
    decoder.decode(b"\x40" + encode_field("bomb", "x" * 4000)[1:], BYTES_MAX)
    fields, problem = decoder.decode(b"\xbe" * 1000 + b"\x40" + encode_field("small", "y")[1:], BYTES_MAX)
    assert problem == kernel.TOO_LARGE
    assert sum(map(len, fields.values())) <= BYTES_MAX
    assert decoder.decode(b"\xbe", BYTES_MAX) == ({"small": "y"}, "")


def test_the_table_drops_the_oldest_fields(kernel: ModuleType) -> None:
    decoder = kernel.HeaderDecoder()
    for number in range(300):
        decoder.decode(b"\x40" + encode_field(f"n{number}", "v" * 50)[1:], BYTES_MAX)
    assert decoder.count() == 4096 // (len("n299") + 50 + 32)
    assert decoder.decode(b"\xbe", BYTES_MAX)[0] == {"n299": "v" * 50}
    decoder.decode(b"\x40" + encode_field("large", "v" * 5000)[1:], BYTES_MAX)
    assert decoder.count() == 0
    decoder.decode(b"\x40" + encode_field("a", "b")[1:], BYTES_MAX)
    assert decoder.decode(b"\x20", BYTES_MAX) == ({}, "")
    assert decoder.count() == 0
