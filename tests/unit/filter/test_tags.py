"""Tag expressions: what the broker compares by hash and the client by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._filter.tags import ExpressionError, parse_tags
from eruca._wire.javahash import tags_code


@pytest.mark.parametrize("text", [None, "", "*"])
def test_everything_is_wanted(text: str | None) -> None:
    expression = parse_tags(text)
    assert (expression.text, expression.tags, expression.codes) == ("*", frozenset(), frozenset())


def test_the_codes_are_java_s() -> None:
    expression = parse_tags("TagA || TagB")
    assert expression.tags == {"TagA", "TagB"}
    assert expression.codes == {2598919, 2598920}
    assert expression.text == "TagA || TagB"
    assert parse_tags("中文").codes == {646394}


def test_a_message_needs_one_of_the_tags() -> None:
    expression = parse_tags("TagA||TagB|| ")
    assert expression.tags == {"TagA", "TagB"}
    assert expression.codes == {tags_code("TagA"), tags_code("TagB")}


def test_tags_with_equal_hashes_are_told_apart_by_name() -> None:
    expression = parse_tags("Aa")
    assert tags_code("Aa") == tags_code("BB")
    assert tags_code("BB") in expression.codes
    assert "BB" not in expression.tags


@pytest.mark.parametrize("text", ["||", " || ", "||||", " "])
def test_only_separators_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match="contains no tag"):
        parse_tags(text)


@given(st.lists(st.text(st.characters(exclude_characters="| \t\n", categories=("L", "N")), min_size=1), min_size=1))
def test_every_named_tag_is_wanted(tags: list[str]) -> None:
    expression = parse_tags(" || ".join(tags))
    assert expression.tags == set(tags)
    assert expression.codes == set(map(tags_code, tags))
