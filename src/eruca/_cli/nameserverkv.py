"""`eruca nameserver kv`: keys and values that name servers keep for operators."""

from __future__ import annotations

from collections.abc import Sequence

import click

from eruca._cli.changing import Changing, add_change_options
from eruca._cli.grouping import CommandGroup
from eruca._cli.viewing import View, Viewing, add_limit_option, add_view_options, view_list
from eruca.admin import Admin, KeyValue, Listed


@click.group(cls=CommandGroup)
def kv() -> None:
    """Keys and values by namespace, which name servers keep.

    Every name server of the list is asked, and every one is changed. The order configuration of topics is in the
    namespace ORDER_TOPIC_CONFIG; `eruca topic order` is for it.

    \b
    Examples:
      eruca nameserver kv set limits orders 1000
      eruca nameserver kv get limits orders
      eruca nameserver kv list ORDER_TOPIC_CONFIG
      eruca nameserver kv delete limits orders
    """


def view_key_values(rows: Listed[KeyValue] | Sequence[KeyValue], empty: str, *, empty_is_wrong: bool = False) -> View:
    """Return the view of values: one row if the name servers agree, otherwise one for each."""
    found = rows if isinstance(rows, Listed) else Listed(items=list(rows))
    lines: list[tuple[str, ...]] = []
    for row in found.items:
        if row.agreed:
            lines.append((row.key, row.value or "", "all"))
        else:
            lines += [(row.key, "-" if value is None else value, at) for at, value in row.values.items()]
    shown = view_list(lines, ["key", "value", "name server"], lambda line: line, empty=empty)
    odd = [row.key for row in found.items if not row.agreed]
    return View(
        value=found.items,
        draw=shown.draw,
        is_list=True,
        problems=found.problems,
        cut=found.cut,
        empty=empty,
        warnings=[f"the name servers have different values of {key}" for key in odd],
        is_wrong=empty_is_wrong and not found.items,
    )


@kv.command("list")
@click.argument("namespace")
@add_limit_option
@add_view_options
def list_(view: Viewing, namespace: str, limit: int | None) -> None:
    """List the keys and values of NAMESPACE.

    \b
    Examples:
      eruca nameserver kv list ORDER_TOPIC_CONFIG
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.nameservers.kv_list(namespace, limit=view.choose_limit(limit))
        return view_key_values(listed, f"namespace {namespace} is empty; `eruca nameserver kv set` adds a key")

    view.show(ask)


@kv.command("get")
@click.argument("namespace")
@click.argument("key")
@add_view_options
def get_(view: Viewing, namespace: str, key: str) -> None:
    """Show the value of KEY. The exit status is 3 if there is none, or if name servers have different values.

    \b
    Examples:
      eruca nameserver kv get limits orders
      eruca nameserver kv get limits orders -o json | jq -r '.values[]'
    """

    async def ask(admin: Admin) -> View:
        found = await admin.nameservers.kv_get(namespace, key)
        empty = f"there is no key {key} in namespace {namespace}; `eruca nameserver kv list {namespace}` lists them"
        return view_key_values([found] if found.value is not None else [], empty, empty_is_wrong=True)

    view.show(ask)


@kv.command("set")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@add_change_options()
def set_(change: Changing, namespace: str, key: str, value: str) -> None:
    """Set the value of KEY on every name server.

    \b
    Examples:
      eruca nameserver kv set limits orders 1000
    """
    change.apply(lambda admin, dry_run: admin.nameservers.kv_put(namespace, key, value, dry_run=dry_run))


@kv.command()
@click.argument("namespace")
@click.argument("key")
@add_change_options(asks=True)
def delete(change: Changing, namespace: str, key: str) -> None:
    """Delete KEY on every name server.

    \b
    Examples:
      eruca nameserver kv delete limits orders
    """
    change.apply(
        lambda admin, dry_run: admin.nameservers.kv_delete(namespace, key, dry_run=dry_run),
        f"Delete key {key} of namespace {namespace}?",
    )
