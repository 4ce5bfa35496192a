"""Who may do what: roles, and other roles by prefix."""

from __future__ import annotations

import pytest

from eruca._console.identity.rights import (
    GRANT_ROLES,
    Grant,
    Kind,
    Need,
    Role,
    User,
    check_user_name,
    read_grants,
    read_role,
    write_grants,
)
from eruca._ground import limits
from eruca.errors import ConfigError, InvalidName

ALL = (Need.PUBLIC, Need.LOGGED_IN, Need.VIEW, Need.OPERATE, Need.ADMIN)


def list_allowed(user: User, **names: str) -> list[Need]:
    return [need for need in ALL if user.may(need, **names)]


@pytest.mark.parametrize(("role", "count"), [(Role.VIEWER, 3), (Role.OPERATOR, 4), (Role.ADMIN, 5)])
def test_a_role_includes_the_weaker_ones(role: Role, count: int) -> None:
    assert list_allowed(User("u", role)) == list(ALL[:count])
    assert list_allowed(User("u", role), topic="orders", group="billing") == list(ALL[:count])


def test_who_has_to_choose_a_password_may_do_nothing_else() -> None:
    assert list_allowed(User("u", Role.ADMIN, must_change=True)) == [Need.PUBLIC, Need.LOGGED_IN]


def test_the_longest_prefix_decides() -> None:
    user = User("u", Role.VIEWER, read_grants("topic * none\ntopic shop- operator\ntopic shop-secret viewer"))
    assert not user.may(Need.VIEW, topic="bank")
    assert user.may(Need.OPERATE, topic="shop-orders")
    assert user.may(Need.VIEW, topic="shop-secrets") and not user.may(Need.OPERATE, topic="shop-secrets")
    # Prefixes of topics are not those of groups.
    assert user.may(Need.VIEW, group="bank") and not user.may(Need.OPERATE, group="shop-orders")
    # What names no topic needs the role in general.
    assert list_allowed(user) == [Need.PUBLIC, Need.LOGGED_IN, Need.VIEW]


def test_each_of_several_names_needs_the_right() -> None:
    user = User("u", Role.VIEWER, read_grants("topic shop operator\ngroup shop operator"))
    assert user.may(Need.OPERATE, topic="shop", group="shop")
    assert not user.may(Need.OPERATE, topic="shop", group="bank")
    assert not user.may(Need.OPERATE, topic="bank", group="shop")


def test_retries_and_dead_letters_belong_to_their_group() -> None:
    user = User("u", Role.VIEWER, read_grants("group bank none\ngroup shop operator\ntopic * operator"))
    for prefix in ("%RETRY%", "%DLQ%"):
        assert not user.may(Need.VIEW, topic=f"{prefix}bank")
        assert user.may(Need.OPERATE, topic=f"{prefix}shop")
        assert user.may(Need.VIEW, topic=f"{prefix}other") and not user.may(Need.OPERATE, topic=f"{prefix}other")


@pytest.mark.parametrize(
    "topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "RMQ_SYS_TRACE_TOPIC"]
)
def test_topics_with_the_messages_of_others_need_the_right_to_all(topic: str) -> None:
    assert User("u", Role.VIEWER).may(Need.VIEW, topic=topic)
    hidden = User("u", Role.OPERATOR, read_grants(f"topic bank none\ntopic {topic} operator"))
    assert not hidden.may(Need.VIEW, topic=topic)
    assert not hidden.sees_all and User("u", Role.VIEWER, read_grants("topic a viewer")).sees_all


def test_prefixes_do_not_restrict_an_admin() -> None:
    user = User("u", Role.ADMIN, read_grants("topic * none\ngroup * none"))
    assert list_allowed(user, topic="bank", group="bank") == list(ALL) and user.sees_all


def test_grants_are_read_as_they_are_written() -> None:
    grants = tuple(Grant(kind, prefix, role) for kind in Kind for prefix in ("", "a-b_c") for role in GRANT_ROLES[:1])
    assert read_grants(write_grants(grants)) == grants
    assert read_grants("  topic   %RETRY%x   viewer \n\n") == (Grant(Kind.TOPIC, "%RETRY%x", Role.VIEWER),)


@pytest.mark.parametrize(
    "text",
    [
        "topic",
        "topic a",
        "queue a viewer",
        "topic a admin",
        "topic a owner",
        "topic a viewer b",
        "topic a none\ntopic a viewer",
    ],
)
def test_a_grant_that_is_not_valid_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        read_grants(text)


def test_grants_are_bounded_and_their_prefixes_are_names() -> None:
    with pytest.raises(InvalidName):
        read_grants("topic ../x viewer")
    with pytest.raises(ConfigError, match="more than"):
        read_grants("\n".join(f"topic t{number} viewer" for number in range(limits.CONSOLE_GRANTS_MAX + 1)))


@pytest.mark.parametrize("name", ["", "a b", "a\n", "<b>", "a" * 129, "a:b", "ä", "../x", "a'b"])
def test_names_of_users_are_plain(name: str) -> None:
    with pytest.raises(ConfigError):
        check_user_name(name)


def test_names_of_users_may_be_mail_addresses() -> None:
    assert check_user_name("ann.o+neil@example.org") == "ann.o+neil@example.org"


@pytest.mark.parametrize("text", ["", "none", "root", "Admin"])
def test_a_role_that_a_user_cannot_have_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        read_role(text)
