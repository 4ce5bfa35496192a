"""`eruca acl`: accounts and their permissions, without their secrets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from eruca._cli.aclsecrets import find_secret
from eruca._cli.changing import Changing, add_change_options
from eruca._cli.choosing import add_one_place_options, add_place_options
from eruca._cli.completing import suggest_brokers
from eruca._cli.grouping import CommandGroup
from eruca._cli.output import format_time
from eruca._cli.viewing import View, Viewing, add_limit_option, add_view_options, view_list
from eruca._ground.limits import ACL_KEY_CHARS_MAX, ACL_KEY_CHARS_MIN
from eruca.admin import Account, AccountVersion, Admin, Changed

Function = TypeVar("Function", bound=Callable[..., Any])

_PERMISSIONS = click.Choice(["DENY", "PUB", "SUB", "PUB|SUB"])
_PERMISSION_NAMES = '[DENY|PUB|SUB|"PUB|SUB"]'


@click.group(cls=CommandGroup)
def acl() -> None:
    """Accounts of access control: who may do what. Secrets are never shown.

    Brokers keep accounts in plain_acl.yml. A change is sent to all brokers, or to some. `eruca init` makes the first
    accounts.

    \b
    Examples:
      eruca acl list
      eruca acl create webshop --new-secret webshop.yml --topic "orders=PUB|SUB"
      eruca acl update webshop --group billing=SUB
      eruca acl delete webshop
      eruca acl addresses list         addresses that need no account
    """


# --- looking ----------------------------------------------------------------------------------------------------------


@acl.command("list")
@click.argument("access_key", metavar="[ACCOUNT]", required=False)
@click.option("-b", "--broker", metavar="NAME", shell_complete=suggest_brokers, help="Only those of this broker.")
@add_limit_option
@add_view_options
def list_(view: Viewing, access_key: str | None, broker: str | None, limit: int | None) -> None:
    """List the accounts of each broker, or those named ACCOUNT, with their permissions.

    \b
    Examples:
      eruca acl list
      eruca acl list webshop -o json | jq .topics
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.accounts.list(broker=broker, limit=view.choose_limit(limit))
        rows = [row for row in listed.items if access_key in (None, row.access_key)]
        columns = ["broker", "account", "admin", "default of topics, groups", "topics", "groups", "addresses"]
        shown = view_list(
            rows,
            columns,
            _draw_account,
            empty=f"there is no account {access_key}; `eruca acl create {access_key} --new-secret FILE` makes it"
            if access_key is not None
            else "no broker has accounts: `eruca acl create NAME --new-secret FILE` makes one where aclEnable=true",
            is_wrong=access_key is not None and not rows,
        )
        return View(
            value=shown.value,
            draw=shown.draw,
            is_list=True,
            problems=listed.problems,
            cut=listed.cut,
            empty=shown.empty,
            is_wrong=shown.is_wrong,
        )

    view.show(ask)


def _draw_account(row: Account) -> tuple[str, ...]:
    rights = ["\n".join(f"{name}={right}" for name, right in each.items()) for each in (row.topics, row.groups)]
    defaults = f"{row.default_topic}, {row.default_group}"
    return (row.broker, row.access_key, "yes" if row.admin else "no", defaults, *rights, row.white_addresses)


@acl.command()
@add_one_place_options
@add_view_options
def versions(view: Viewing, broker: str | None, cluster: str | None) -> None:
    """Show how new the account files of each broker are: a broker that missed a change has a lower count.

    \b
    Examples:
      eruca acl versions
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.accounts.versions(broker=broker, cluster=cluster)
        columns = ["cluster", "broker", "address", "file", ">changes", "changed"]
        return view_list(listed, columns, _draw_version, empty="no broker has accounts (aclEnable=false)")

    view.show(ask)


def _draw_version(row: AccountVersion) -> tuple[str, ...]:
    return (row.cluster, row.broker, row.address, row.file, str(row.counter), format_time(row.changed_at))


# --- changing ---------------------------------------------------------------------------------------------------------


def _parse_rights(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> dict[str, str] | None:
    """Read NAME=PERMISSION words."""
    rights = {}
    for word in words:
        name, equals, right = word.rpartition("=")
        if not equals or not name or right not in _PERMISSIONS.choices:
            raise click.BadParameter(
                f"{word!r}: expected NAME=PERMISSION, with {', '.join(_PERMISSIONS.choices)}", context, parameter
            )
        rights[name] = right
    return rights or None


def _add_rights(defaults: bool) -> Callable[[Function], Function]:
    """Add the permissions of an account to a command; without defaults, what is not given is None."""
    default = "DENY" if defaults else None

    def decorate(function: Function) -> Function:
        for add in reversed(
            [
                click.option(
                    "--admin/--no-admin", default=False if defaults else None, help="Whether it may do everything."
                ),
                click.option(
                    "--default-topic",
                    type=_PERMISSIONS,
                    metavar=_PERMISSION_NAMES,
                    default=default,
                    help="Its permission for other topics.",
                ),
                click.option(
                    "--default-group",
                    type=_PERMISSIONS,
                    metavar=_PERMISSION_NAMES,
                    default=default,
                    help="Its permission for other groups.",
                ),
                click.option(
                    "-t",
                    "--topic",
                    "topics",
                    metavar="NAME=PERMISSION",
                    multiple=True,
                    callback=_parse_rights,
                    help='Its permission for a topic, for example "orders=PUB|SUB"; may be repeated.',
                ),
                click.option(
                    "-g",
                    "--group",
                    "groups",
                    metavar="NAME=PERMISSION",
                    multiple=True,
                    callback=_parse_rights,
                    help="Its permission for a group, for example billing=SUB; may be repeated.",
                ),
                click.option(
                    "--addresses",
                    "white_addresses",
                    metavar="PATTERN",
                    default="" if defaults else None,
                    help="Addresses from which it needs no signature, for example 10.1.2.*",
                ),
            ]
        ):
            function = add(function)
        return function

    return decorate


def _add_secret_options(function: Function) -> Function:
    path = click.Path(path_type=Path, dir_okay=False)
    function = click.option(
        "--new-secret", "new_file", type=path, metavar="FILE", help="Make a random secret and write it to a new FILE."
    )(function)
    return click.option(
        "--secret-file",
        "file",
        type=path,
        metavar="FILE",
        help="A file with accessKey and secretKey, such as tools.yml; without one, the secret is asked for.",
    )(function)


def _check_new_name(text: str) -> str:
    if not ACL_KEY_CHARS_MIN <= len(text) <= ACL_KEY_CHARS_MAX:
        raise click.BadParameter(f"{text!r}: the name of an account has {ACL_KEY_CHARS_MIN} characters or more")
    return text


@acl.command()
@click.argument("access_key", metavar="ACCOUNT", callback=lambda _context, _parameter, text: _check_new_name(text))
@_add_secret_options
@_add_rights(defaults=True)
@add_place_options
@add_change_options()
def create(change: Changing, access_key: str, file: Path | None, new_file: Path | None, **rights: Any) -> None:
    """Create ACCOUNT on all brokers, or on some.

    The name has 7 characters or more. Its secret is read from a file, typed, or made at random and written to a file
    that only you can read, for --account of these commands.

    \b
    Examples:
      eruca acl create webshop --new-secret webshop.yml --topic "orders=PUB|SUB"
      eruca acl create reporting --secret-file reporting.yml --default-topic SUB
    """
    with find_secret(access_key, file, new_file, dry_run=change.dry_run) as secret:

        async def work(admin: Admin, dry_run: bool) -> Changed[Account]:
            return secret.note(await admin.accounts.create(access_key, secret.text, **rights, dry_run=dry_run))

        change.apply(work)


@acl.command()
@click.argument("access_key", metavar="ACCOUNT")
@_add_secret_options
@_add_rights(defaults=False)
@add_place_options
@add_change_options(asks=True)
def update(change: Changing, access_key: str, file: Path | None, new_file: Path | None, **rights: Any) -> None:
    """Change permissions or the secret of ACCOUNT; what is not given stays.

    --topic and --group replace all permissions of that kind. Java's brokers need the secret with every change.

    \b
    Examples:
      eruca acl update webshop --group billing=SUB --group audit=SUB
      eruca acl update webshop --new-secret webshop2.yml
    """
    given = {name for name, value in rights.items() if value is not None and name not in ("brokers", "cluster")}
    if not given and file is None and new_file is None:
        raise click.UsageError("nothing to change: pass a permission, for example --topic orders=SUB, or a secret")

    question = f"Change account {access_key}?"
    if file is None and new_file is None:
        change.apply(
            lambda admin, dry_run: admin.accounts.update(access_key, **rights, dry_run=dry_run), losing=question
        )
        return
    with find_secret(access_key, file, new_file, dry_run=change.dry_run) as secret:

        async def work(admin: Admin, dry_run: bool) -> Changed[Account]:
            key = secret.text
            return secret.note(await admin.accounts.update(access_key, secret_key=key, **rights, dry_run=dry_run))

        change.apply(work, losing=question)


@acl.command()
@click.argument("access_key", metavar="ACCOUNT")
@add_place_options
@add_change_options(asks=True)
def delete(change: Changing, access_key: str, **where: Any) -> None:
    """Delete ACCOUNT on all brokers, or on some. This cannot be undone: its secret is not kept anywhere.

    \b
    Examples:
      eruca acl delete webshop --dry-run
      eruca acl delete webshop --yes
    """
    change.apply(
        lambda admin, dry_run: admin.accounts.delete(access_key, **where, dry_run=dry_run),
        f"Delete account {access_key}?",
    )


# --- addresses --------------------------------------------------------------------------------------------------------


@acl.group(cls=CommandGroup)
def addresses() -> None:
    """Addresses that need no account.

    \b
    Examples:
      eruca acl addresses list
      eruca acl addresses set 10.1.2.* 10.1.3.7
    """


@addresses.command("list")
@click.option("-b", "--broker", metavar="NAME", shell_complete=suggest_brokers, help="Only those of this broker.")
@add_view_options
def list_addresses(view: Viewing, broker: str | None) -> None:
    """List the addresses that need no account, on each broker.

    \b
    Examples:
      eruca acl addresses list
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.accounts.white_addresses(broker=broker)
        return view_list(
            listed,
            ["broker", "addresses"],
            lambda row: (row.broker, "\n".join(row.addresses) or "none"),
            empty="no broker has accounts (aclEnable=false)",
        )

    view.show(ask)


@addresses.command("set")
@click.argument("addresses", metavar="[PATTERN]...", nargs=-1)
@click.option("--file", help="The account file to change, if a broker has several.")
@add_place_options
@add_change_options(asks=True)
def set_addresses(change: Changing, addresses: tuple[str, ...], file: str | None, **where: Any) -> None:
    """Replace the addresses that need no account; without PATTERN there are none.

    Whoever sends from such an address may do everything that accounts may.

    \b
    Examples:
      eruca acl addresses set 10.1.2.* --dry-run
      eruca acl addresses set
    """

    async def work(admin: Admin, dry_run: bool) -> Changed[Any]:
        return await admin.accounts.set_white_addresses(list(addresses), file=file, **where, dry_run=dry_run)

    change.apply(work, f"Let {', '.join(addresses) or 'no address'} in without an account?")
