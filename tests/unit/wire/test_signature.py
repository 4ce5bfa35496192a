"""Signatures of the access control."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca._wire.signature import SIGNATURE, UNIQUE_KEY_QUERY, Credentials, build_content, sign, sign_content, verify

EXT = {"topic": "TopicX", "AccessKey": "rocketmq2", "queueId": "0"}


def test_the_captured_signature() -> None:
    assert build_content(EXT, None) == b"rocketmq20TopicX"
    assert sign(EXT, None, "12345678") == "uMY7h4MwSWPLKeQdzIi0ILvHYSw="
    assert verify({**EXT, SIGNATURE: "uMY7h4MwSWPLKeQdzIi0ILvHYSw="}, None, "12345678")


def test_the_body_follows_and_the_signature_is_left_out() -> None:
    assert build_content({**EXT, SIGNATURE: "x"}, b"\x00body") == b"rocketmq20TopicX\x00body"
    assert build_content({"b": None, "a": "1"}, b"") == b"1null"


def test_names_are_ordered_by_utf16_units() -> None:
    # U+FF5E sorts before U+1F600 by code point, after it by code unit.
    assert build_content({"\uff5e": "1", "😀": "2"}, None) == b"21"


def test_either_form_of_a_query_by_unique_key_is_accepted() -> None:
    query: dict[str, str | None] = {**EXT, UNIQUE_KEY_QUERY: "true"}
    without = sign(query, b"", "12345678")
    assert without == sign(EXT, b"", "12345678")
    java = sign_content(build_content(query, b"", with_unique_key_query=True), "12345678")
    assert java != without
    assert verify({**query, SIGNATURE: without}, b"", "12345678")
    assert verify({**query, SIGNATURE: java}, b"", "12345678")
    assert not verify({**EXT, SIGNATURE: java}, b"", "12345678")


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5)), st.binary(max_size=20), st.text(max_size=10))
def test_what_is_signed_verifies_and_nothing_else(ext: dict[str, str], body: bytes, secret: str) -> None:
    signed = {**ext, SIGNATURE: sign({**ext}, body, secret)}
    assert verify(signed, body, secret)
    assert not verify(signed, body + b"x", secret)
    assert not verify(signed, body, secret + "x")
    assert not verify({**signed, SIGNATURE: "é" + signed[SIGNATURE]}, body, secret)


def test_no_signature_does_not_verify() -> None:
    assert not verify({**EXT}, None, "12345678")
    assert not verify({**EXT, SIGNATURE: None}, None, "12345678")


def test_a_secret_does_not_show_in_the_repr_of_credentials() -> None:
    shown = repr(Credentials("shop", "hunter2", "token3"))
    assert ("shop" in shown, "hunter2" in shown, "token3" in shown) == (True, False, False)
