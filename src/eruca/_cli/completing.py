"""Shell completion: names of topics, groups and brokers from the cluster, if it answers quickly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from eruca._cli.connecting import DEFAULT_NAMESERVER, make_options
from eruca._cli.running import run_loop

# Imported when a shell asks: every command imports this module.
if TYPE_CHECKING:
    from eruca._client.options import ClientOptions
    from eruca.admin import Admin

# A shell waits for this; without an answer there are no suggestions.
_SECONDS_MAX = 1.0
_ITEMS_MAX = 200


def suggest_topics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Suggest topics."""

    async def ask(admin: Admin) -> list[str]:
        return [row.name for row in (await admin.topics.list(incomplete, limit=_ITEMS_MAX)).items]

    return _suggest(context, incomplete, ask)


def suggest_groups(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Suggest consumer groups."""

    async def ask(admin: Admin) -> list[str]:
        return [row.name for row in (await admin.groups.list(incomplete, limit=_ITEMS_MAX)).items]

    return _suggest(context, incomplete, ask)


def suggest_brokers(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Suggest names of brokers."""

    async def ask(admin: Admin) -> Iterable[str]:
        return {row.broker for row in (await admin.brokers.list()).items}

    return _suggest(context, incomplete, ask)


def suggest_clusters(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Suggest names of clusters."""

    async def ask(admin: Admin) -> Iterable[str]:
        return {row.cluster for row in (await admin.cluster.list()).items}

    return _suggest(context, incomplete, ask)


def suggest_members(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Suggest members of broker names, by name and id."""

    async def ask(admin: Admin) -> Iterable[str]:
        return {f"{row.broker}:{row.broker_id}" for row in (await admin.cluster.members()).items if row.broker_id >= 0}

    return _suggest(context, incomplete, ask)


def suggest_clients(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Suggest the members of the group that was named before."""

    async def ask(admin: Admin) -> list[str]:
        return [row.client_id for row in (await admin.groups.members(context.params["group"], limit=_ITEMS_MAX)).items]

    return _suggest(context, incomplete, ask)


def suggest_keys(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Suggest options of servers."""
    from eruca._cli.optionlist import list_options

    return _list_keys({facts.key for facts in list_options()}, incomplete)


def suggest_options(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Suggest options of servers that can be changed while they run."""
    from eruca._cli.optionlist import list_options

    return _list_keys({facts.key for facts in list_options() if facts.info.mutable}, incomplete)


def _list_keys(keys: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(key) for key in sorted(keys) if key.lower().startswith(incomplete.lower())]


def _suggest(
    context: click.Context, incomplete: str, ask: Callable[[Admin], Awaitable[Iterable[str]]]
) -> list[CompletionItem]:
    logging.getLogger("eruca").addHandler(logging.NullHandler())
    try:
        with context.scope(cleanup=False):
            nameservers = context.params.get("nameservers") or DEFAULT_NAMESERVER
            options = replace(make_options(nameservers), call_timeout=_SECONDS_MAX)
            names = run_loop(_ask_in_time(options, ask))
    except Exception:
        return []  # a shell has no place for an error
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


async def _ask_in_time(options: ClientOptions, ask: Callable[[Admin], Awaitable[Iterable[str]]]) -> Iterable[str]:
    from eruca.admin import Admin

    async with asyncio.timeout(_SECONDS_MAX), Admin(options=options) as admin:
        return await ask(admin)
