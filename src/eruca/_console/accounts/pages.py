"""Accounts of a cluster: list, create, change, delete; addresses that need no account."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from eruca._admin.accounts import Account
from eruca._admin.results import Changed
from eruca._console.identity.rights import Need
from eruca._console.pages.commands import write_flags
from eruca._console.pages.forms import Field, change, read_fields
from eruca._console.pages.outcomes import Outcomes, read_outcomes
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import Column, make_table, show_table
from eruca._console.pages.visit import Shown, Visit
from eruca._ground import limits
from eruca.errors import ConfigError

_PERMISSIONS = ("DENY", "PUB", "SUB", "PUB|SUB")
_SECRET_BYTES = 32


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A change that may make a secret; it is shown once."""

    changed: Changed[Account]
    secret: str = ""


COLUMNS: tuple[Column[Account], ...] = (
    Column(
        "account", "accounts.name", lambda row: row.access_key,
        link=lambda visit, row: visit.url("accounts", row.access_key),
    ),
    Column("broker", "accounts.broker", lambda row: row.broker),
    Column("admin", "accounts.admin", lambda row: row.admin, kind="flag"),
    Column("default_topic", "accounts.default_topic", lambda row: row.default_topic, kind="code"),
    Column("default_group", "accounts.default_group", lambda row: row.default_group, kind="code"),
    Column("topics", "accounts.topics", lambda row: _write_rights(row.topics), kind="code"),
    Column("groups", "accounts.groups", lambda row: _write_rights(row.groups), kind="code"),
    Column("addresses", "accounts.addresses", lambda row: row.white_addresses, kind="code", is_minor=True),
)  # fmt: skip
_RIGHTS = (
    Field("admin", "accounts.admin", "check", hint="accounts.admin.hint"),
    Field(
        "default_topic", "accounts.default_topic", "choice", default="DENY", required=True, choices=_PERMISSIONS
    ),
    Field(
        "default_group", "accounts.default_group", "choice", default="DENY", required=True, choices=_PERMISSIONS
    ),
    Field("topics", "accounts.topics", "area", hint="accounts.topics.hint"),
    Field("groups", "accounts.groups", "area", hint="accounts.groups.hint"),
    Field("addresses", "accounts.addresses", hint="accounts.addresses.hint", chars_max=limits.ACL_PATTERN_CHARS_MAX),
)  # fmt: skip
_NEW = (
    Field("account", "accounts.name", required=True, hint="accounts.name.hint", chars_max=limits.ACL_KEY_CHARS_MAX),
    *_RIGHTS,
)
_EDIT = (*_RIGHTS, Field("new_secret", "accounts.new_secret", "check", hint="accounts.new_secret.hint"))
_WHITE = (Field("addresses", "accounts.white", "area", hint="accounts.white.hint"),)


async def list_accounts(visit: Visit) -> Shown | Response:
    """Show the accounts of each broker."""
    listed = await visit.admin.accounts.list()
    white = await visit.admin.accounts.white_addresses()
    table = make_table(visit, "accounts", COLUMNS, listed.items, cut=listed.cut, sort="account")
    return show_table(
        visit,
        "accounts/list.html",
        table,
        problems=listed.problems,
        white=white.items,
        command=visit.command("acl", "list"),
    )


async def create_account(visit: Visit) -> Shown:
    """Create an account on all brokers, with a random secret that is shown once."""
    if visit.method == "GET":
        return visit.show("accounts/create.html", fields=_NEW)
    form = read_fields(visit, _NEW)
    name, rights = form["account"], _read_rights(form)

    async def deed(dry_run: bool) -> Made:
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        changed = await visit.admin.accounts.create(name, secret, **rights, dry_run=dry_run)
        return Made(changed=changed, secret="" if dry_run else secret)

    words = ["acl", "create", name, "--new-secret", "account.yml", *_write_flags(rights)]
    return await _change(visit, "account.create", name, words, deed, template="accounts/secret.html")


async def show_account(visit: Visit) -> Shown:
    """Show an account on each broker, and change it on all of them."""
    name = visit.path["account"]
    listed = await visit.admin.accounts.list()
    found = [account for account in listed.items if account.access_key == name]
    if not found:
        raise HTTPException(404, visit.text("accounts.none", name=name[:100]))
    if visit.method == "GET":
        return visit.show("accounts/show.html", name=name, found=found, fields=_EDIT, values=_list_values(found[0]))
    form = read_fields(visit, _EDIT)
    rights = _read_rights(form)

    async def deed(dry_run: bool) -> Made:
        secret = secrets.token_urlsafe(_SECRET_BYTES) if form["new_secret"] else None
        changed = await visit.admin.accounts.update(name, secret_key=secret, **rights, dry_run=dry_run)
        return Made(changed=changed, secret="" if dry_run or secret is None else secret)

    words = ["acl", "update", name, *(["--new-secret", "account.yml"] if form["new_secret"] else [])]
    words += _write_flags(rights)
    return await _change(visit, "account.update", name, words, deed, template="accounts/secret.html")


async def delete_account(visit: Visit) -> Shown:
    """Delete an account on all brokers."""
    name = visit.path["account"]

    async def deed(dry_run: bool) -> Made:
        return Made(changed=await visit.admin.accounts.delete(name, dry_run=dry_run))

    return await _change(visit, "account.delete", name, ["acl", "delete", name, "--yes"], deed, is_dangerous=True)


async def set_addresses(visit: Visit) -> Shown:
    """Replace the addresses that need no account, on all brokers."""
    if visit.method == "GET":
        white = await visit.admin.accounts.white_addresses()
        known = "\n".join(dict.fromkeys(address for each in white.items for address in each.addresses))
        return visit.show("accounts/addresses.html", fields=_WHITE, values={"addresses": known})
    addresses = read_fields(visit, _WHITE)["addresses"].split()

    async def deed(dry_run: bool) -> Made:
        return Made(changed=await visit.admin.accounts.set_white_addresses(addresses, dry_run=dry_run))  # type: ignore[arg-type]

    words = ["acl", "addresses", "set", *addresses, "--yes"]
    return await _change(visit, "account.addresses", "addresses", words, deed, is_dangerous=True)


async def _change(visit: Visit, action: str, name: str, words: list[Any], deed: Any, **more: Any) -> Shown:
    return await change(
        visit, action=action, target=name, words=words, deed=deed, then=visit.url("accounts"), read=_read_made, **more
    )


def _read_made(made: Made) -> Outcomes:
    return read_outcomes(made.changed)


def _read_rights(form: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "admin": form["admin"],
        "default_topic": form["default_topic"],
        "default_group": form["default_group"],
        "topics": _read_lines(form["topics"]),
        "groups": _read_lines(form["groups"]),
        "white_addresses": form["addresses"] or "",
    }


def _read_lines(text: str) -> dict[str, str]:
    """Read `NAME=PERMISSION`, one per line. Raises ConfigError."""
    rights = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, sign, permission = line.rpartition("=")
        if not sign or not name or permission not in _PERMISSIONS:
            raise ConfigError(
                f"{line[:80]!r} is not NAME=PERMISSION", hint=f"for example orders=PUB|SUB; {', '.join(_PERMISSIONS)}"
            )
        rights[name.strip()] = permission
    return rights


def _write_flags(rights: Mapping[str, Any]) -> list[str]:
    named = {name: [f"{key}={bits}" for key, bits in rights[f"{name}s"].items()] for name in ("topic", "group")}
    return [
        "--admin" if rights["admin"] else "--no-admin",
        *write_flags(default_topic=rights["default_topic"], default_group=rights["default_group"], **named),
        *write_flags(addresses=rights["white_addresses"] or None),
    ]


def _list_values(account: Account) -> dict[str, Any]:
    return {
        "admin": account.admin,
        "default_topic": account.default_topic,
        "default_group": account.default_group,
        "topics": _write_rights(account.topics, "\n"),
        "groups": _write_rights(account.groups, "\n"),
        "addresses": account.white_addresses,
    }


def _write_rights(rights: Mapping[str, str], between: str = " ") -> str:
    return between.join(f"{name}={permission}" for name, permission in rights.items())


ROUTES = (
    Route(
        "/c/{cluster}/accounts",
        list_accounts,
        Need.ADMIN,
        nav=Nav("cluster", 80, "nav.accounts", "accounts"),
        in_api=False,
    ),
    Route("/c/{cluster}/new/account", create_account, Need.ADMIN, ("GET", "POST"), in_api=False),
    Route("/c/{cluster}/new/addresses", set_addresses, Need.ADMIN, ("GET", "POST"), in_api=False),
    Route("/c/{cluster}/accounts/{account}", show_account, Need.ADMIN, ("GET", "POST"), in_api=False),
    Route("/c/{cluster}/accounts/{account}/delete", delete_account, Need.ADMIN, ("POST",), in_api=False),
)
