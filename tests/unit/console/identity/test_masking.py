"""Fields that some roles may not read."""

from __future__ import annotations

import json

import pytest

from eruca._console.identity.identity import Identity
from eruca._console.identity.masking import MASK, Mask, read_rule
from eruca._console.identity.rights import Role, User
from eruca.errors import ConfigError, InvalidName

VIEWER, OPERATOR, ADMIN = (User("u", role) for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN))


async def make_mask(identity: Identity, fields: str, user: User = VIEWER, topic: str = "orders") -> Mask:
    await identity.masking.add(read_rule("", fields, "operator"))
    return identity.masking.look(user, topic)


async def test_fields_are_masked_by_path(identity: Identity) -> None:
    mask = await make_mask(identity, "card.number, *.email ssn")
    value = {
        "card": {"number": "4111", "type": "v"},
        "buyer": {"email": "a@b.c", "name": "n"},
        "SSN": 1,
        "email": "stays: the path has two names",
        "lines": [{"ssn": "also stays: it is below lines"}],
    }
    hidden = mask.hide_value(value)
    assert hidden["card"] == {"number": MASK, "type": "v"} and hidden["buyer"] == {"email": MASK, "name": "n"}
    assert hidden["SSN"] == MASK and hidden["email"] == value["email"] and hidden["lines"] == value["lines"]
    assert value["SSN"] == 1


async def test_lists_are_looked_into(identity: Identity) -> None:
    mask = await make_mask(identity, "cards.number")
    assert mask.hide_value({"cards": [{"number": 1}, [{"number": 2}], "x"]}) == {
        "cards": [{"number": MASK}, [{"number": MASK}], "x"]
    }
    assert mask.hide_value([{"cards": {"number": 1}}]) == [{"cards": {"number": MASK}}]


async def test_a_whole_object_is_masked(identity: Identity) -> None:
    mask = await make_mask(identity, "card")
    assert json.loads(mask.hide_body(b'{"card": {"number": 1}, "id": 2, "card": {"number": 3}}')) == {
        "card": MASK,
        "id": 2,
    }


@pytest.mark.parametrize("body", [b"", b"plain text", b"\xff\xfe", b'"4111"', b"4111", b"[" * 100_000, b"null"])
async def test_a_body_that_cannot_be_looked_into_is_hidden(identity: Identity, body: bytes) -> None:
    mask = await make_mask(identity, "card.number")
    hidden = mask.hide_body(body)
    assert hidden in (MASK.encode(), json.dumps(MASK).encode())


async def test_properties_are_masked(identity: Identity) -> None:
    mask = await make_mask(identity, "property:token")
    assert mask.hide_properties({"token": "x", "KEYS": "k"}) == {"token": MASK, "KEYS": "k"}
    # A rule for properties says nothing about bodies.
    assert mask.hide_body(b"plain") == b"plain" and not mask.is_empty


async def test_a_rule_is_for_a_prefix_and_for_roles(identity: Identity) -> None:
    await identity.masking.add(read_rule("bank-", "iban", "admin"))
    await identity.masking.add(read_rule("", "card", "operator"))

    def list_masked(user: User, topic: str) -> list[str]:
        return sorted(path[0] for path in identity.masking.look(user, topic).paths)

    assert list_masked(VIEWER, "bank-1") == ["card", "iban"] and list_masked(VIEWER, "shop") == ["card"]
    assert list_masked(OPERATOR, "bank-1") == ["iban"] and list_masked(OPERATOR, "shop") == []
    assert list_masked(ADMIN, "bank-1") == []
    # These may have messages of every topic.
    for topic in ("%DLQ%billing", "%RETRY%billing", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"):
        assert list_masked(VIEWER, topic) == ["card", "iban"]


async def test_rules_are_kept_and_deleted(identity: Identity) -> None:
    await identity.masking.add(read_rule("bank-", "iban", "admin"))
    await identity.masking.load()
    [(number, rule)] = identity.masking.rules
    assert (rule.prefix, rule.fields, rule.role) == ("bank-", ("iban",), Role.ADMIN)
    assert await identity.masking.delete(number) == rule and not identity.masking.rules
    with pytest.raises(ConfigError):
        await identity.masking.delete(number)


@pytest.mark.parametrize(
    ("prefix", "fields", "role"), [("", "", "admin"), ("", "a..b", "admin"), ("", "a", "viewer"), ("", ".", "admin")]
)
def test_a_rule_that_is_not_valid_is_refused(prefix: str, fields: str, role: str) -> None:
    with pytest.raises(ConfigError):
        read_rule(prefix, fields, role)


def test_the_prefix_of_a_rule_is_a_name() -> None:
    with pytest.raises(InvalidName):
        read_rule("../", "a", "admin")
