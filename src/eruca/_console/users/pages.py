"""The users of the console: list, create, change, delete, a new one-time password."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from eruca._admin.results import Change, Changed, name_outcome
from eruca._console.identity.rights import USER_ROLES, Need, check_user_name, read_grants, read_role, write_grants
from eruca._console.identity.users import Account
from eruca._console.pages.forms import Field, change, read_fields
from eruca._console.pages.outcomes import Outcomes, read_outcomes
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import Column, make_table, show_table
from eruca._console.pages.visit import Shown, Visit, make_url
from eruca._ground import limits
from eruca.errors import ConfigError

WHERE = "console"
_ROLES = tuple(role.value for role in USER_ROLES)


class UserFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the audit log keeps of a user."""

    role: str
    rights: list[str]
    disabled: bool


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A change that makes a password; it is shown once."""

    changed: Changed[UserFacts]
    password: str = ""


COLUMNS: tuple[Column[Account], ...] = (
    Column("name", "users.name", lambda row: row.user.name, link=lambda _, row: make_url("users", row.user.name)),
    Column("role", "users.role", lambda row: row.user.role.value, kind="tag", texts="users.role"),
    Column("rights", "users.grants", lambda row: len(row.user.grants), kind="number"),
    Column(
        "state",
        "users.state",
        lambda row: "disabled" if row.disabled else "new" if row.user.must_change else "active",
        kind="tag",
        texts="users.state",
        tone=lambda row: "error" if row.disabled else "warning" if row.user.must_change else "ok",
    ),
    Column("issuer", "users.kind", lambda row: row.issuer, is_minor=True),
    Column("made_at", "users.made", lambda row: row.made_at, kind="time", is_minor=True),
    Column("seen_at", "users.seen", lambda row: row.seen_at, kind="time"),
)
_RIGHTS = (
    Field("role", "users.role", "choice", default="viewer", required=True, choices=_ROLES, choice_texts="users.role"),
    Field("grants", "users.grants", "area", hint="users.grants.hint"),
)
_NEW = (
    Field("name", "users.name", required=True, hint="users.name.hint", chars_max=limits.CONSOLE_USER_CHARS_MAX),
    *_RIGHTS,
)
_EDIT = (*_RIGHTS, Field("disabled", "users.disabled", "check", hint="users.disabled.hint"))


async def list_users(visit: Visit) -> Shown | Response:
    """Show all users."""
    table = make_table(visit, "users", COLUMNS, await visit.parts.identity.users.list(), sort="name")
    return show_table(visit, "users/list.html", table)


async def create_user(visit: Visit) -> Shown:
    """Create a user, who gets a one-time password."""
    if visit.method == "GET":
        return visit.show("users/create.html", fields=_NEW)
    form = read_fields(visit, _NEW)
    name, role, grants = check_user_name(form["name"]), read_role(form["role"]), read_grants(form["grants"])
    users = visit.parts.identity.users

    async def deed(dry_run: bool) -> Made:
        if await users.find(name) is not None:
            raise ConfigError(visit.text("users.exists", name=name))
        after = UserFacts(role=role.value, rights=write_grants(grants).splitlines(), disabled=False)
        password = "" if dry_run else (await users.create(name, role, grants))[1]
        return Made(changed=_describe(name, None, after, dry_run=dry_run), password=password)

    words = ["user", "create", name, role.value, *write_grants(grants).splitlines()]
    return await _change(visit, "user.create", name, words, deed, template="users/password.html")


async def show_user(visit: Visit) -> Shown:
    """Show a user, and change role, rights, or whether the user may log in."""
    account = await find_account(visit)
    if visit.method == "GET":
        values = {
            "role": account.user.role.value,
            "grants": write_grants(account.user.grants),
            "disabled": account.disabled,
        }
        sessions = await visit.parts.identity.sessions.list(account.user.name)
        return visit.show("users/show.html", account=account, fields=_EDIT, values=values, sessions=sessions)
    form = read_fields(visit, _EDIT)
    name, disabled = account.user.name, form["disabled"]
    role, grants = read_role(form["role"]), read_grants(form["grants"])
    users = visit.parts.identity.users

    async def deed(dry_run: bool) -> Made:
        before = _list_facts(await users.show(name))
        after = UserFacts(role=role.value, rights=write_grants(grants).splitlines(), disabled=disabled)
        if not dry_run:
            await users.update(name, role, grants, disabled=disabled)
        return Made(changed=_describe(name, before, after, dry_run=dry_run))

    words = ["user", "update", name, role.value, disabled, *write_grants(grants).splitlines()]
    return await _change(visit, "user.update", name, words, deed)


async def delete_user(visit: Visit) -> Shown:
    """Delete a user and end the user's sessions."""
    name = (await find_account(visit)).user.name
    users = visit.parts.identity.users

    async def deed(dry_run: bool) -> Made:
        before = _list_facts(await users.show(name))
        if not dry_run:
            await users.delete(name)
        return Made(changed=_describe(name, before, None, dry_run=dry_run))

    return await _change(visit, "user.delete", name, ["user", "delete", name], deed, is_dangerous=True)


async def renew_password(visit: Visit) -> Shown:
    """Replace the password of a user by a one-time password."""
    account = await find_account(visit)
    name, users = account.user.name, visit.parts.identity.users
    if not account.user.is_local:
        raise ConfigError(visit.text("login.not_here"), hint=visit.text("login.not_here.hint"))

    async def deed(dry_run: bool) -> Made:
        facts = _list_facts(await users.show(name))
        password = "" if dry_run else await users.renew(name)
        rows = [Change(where=WHERE, before=facts, after=facts, outcome="planned" if dry_run else "done")]
        return Made(changed=Changed(name=name, changes=rows), password=password)

    words = ["user", "renew", name]
    return await _change(visit, "user.renew", name, words, deed, template="users/password.html")


async def find_account(visit: Visit) -> Account:
    """Return the user that the path names. Raises HTTPException (404)."""
    found = await visit.parts.identity.users.find(visit.path["user"])
    if found is None:
        raise HTTPException(404, visit.text("users.none", name=visit.path["user"][:100]))
    return found


async def _change(visit: Visit, action: str, name: str, words: list[Any], deed: Any, **more: Any) -> Shown:
    return await change(
        visit,
        action=action,
        target=name,
        words=words,
        deed=deed,
        then="/users",
        read=_read_made,
        has_command=False,
        **more,
    )


def _read_made(made: Made) -> Outcomes:
    return read_outcomes(made.changed)


def _list_facts(account: Account) -> UserFacts:
    rights = write_grants(account.user.grants).splitlines()
    return UserFacts(role=account.user.role.value, rights=rights, disabled=account.disabled)


def _describe(name: str, before: UserFacts | None, after: UserFacts | None, *, dry_run: bool) -> Changed[UserFacts]:
    outcome = name_outcome(before, after, dry_run=dry_run)
    return Changed(name=name, changes=[Change(where=WHERE, before=before, after=after, outcome=outcome)])


ROUTES = (
    Route("/users", list_users, Need.ADMIN, nav=Nav("console", 10, "nav.users", "users", "u"), in_api=False),
    Route("/users/new", create_user, Need.ADMIN, ("GET", "POST"), in_api=False),
    Route("/users/{user}", show_user, Need.ADMIN, ("GET", "POST"), in_api=False),
    Route("/users/{user}/delete", delete_user, Need.ADMIN, ("POST",), in_api=False),
    Route("/users/{user}/password", renew_password, Need.ADMIN, ("POST",), in_api=False),
)
