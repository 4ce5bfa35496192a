"""`eruca route`: where the queues of a topic are, as the name servers report it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from eruca._cli.choosing import add_topic_argument
from eruca._cli.grouping import CommandGroup
from eruca._cli.tables import make_table
from eruca._cli.viewing import View, Viewing, add_view_options
from eruca.admin import Admin, Listed, RouteBroker, ServerRoute, TopicRoute

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.group(cls=CommandGroup)
def route() -> None:
    """Routes: which brokers have the queues of a topic.

    \b
    Examples:
      eruca route show orders      what clients are told
      eruca route compare orders   whether all name servers agree
    """


@route.command()
@add_topic_argument
@add_view_options
def show(view: Viewing, topic: str) -> None:
    """Show the route of TOPIC: brokers, addresses, queues, permissions.

    \b
    Examples:
      eruca route show orders
      eruca route show orders -o json | jq '.brokers[].addresses'
    """

    async def ask(admin: Admin) -> View:
        found = await admin.routes.show(topic)
        return View(value=found, draw=lambda: _draw_route(found))

    view.show(ask)


def _draw_route(found: TopicRoute) -> Iterable[RenderableType]:
    columns = ["broker", "cluster", "addresses", ">read", ">write", "perm"]
    yield make_table(columns, map(_draw_broker, found.brokers))
    if found.order:
        yield make_table(["order across brokers", found.order], [])
    if found.filter_servers:
        yield make_table(
            ["filter servers of", ""], [(name, ", ".join(each)) for name, each in found.filter_servers.items()]
        )


def _draw_broker(row: RouteBroker) -> tuple[str, ...]:
    addresses = "\n".join(f"{number}: {address}" for number, address in sorted(row.addresses.items()))
    return (row.broker, row.cluster, addresses, str(row.read_queues), str(row.write_queues), row.permission)


@route.command()
@add_topic_argument
@add_view_options
def compare(view: Viewing, topic: str) -> None:
    """Show the route of TOPIC on each name server. The exit status is 3 if they differ.

    Right after a broker starts or stops they may differ for a moment.

    \b
    Examples:
      eruca route compare orders
    """

    async def ask(admin: Admin) -> View:
        found = await admin.routes.compare(topic)
        return View(
            value=found.items,
            draw=lambda: [make_table(["name server", "broker", ">read", ">write"], _list_rows(found))],
            is_list=True,
            problems=found.problems,
            warnings=_list_differences(found, topic),
        )

    view.show(ask)


def _list_rows(found: Listed[ServerRoute]) -> Iterable[tuple[str, ...]]:
    for row in found.items:
        if row.route is None:
            yield (row.server, "does not know the topic", "", "")
            continue
        for broker in row.route.brokers:
            yield (row.server, broker.broker, str(broker.read_queues), str(broker.write_queues))


def _list_differences(found: Listed[ServerRoute], topic: str) -> list[str]:
    if all(row.route == found.items[0].route for row in found.items):
        return []
    return [f"the name servers have different routes of {topic}; is a broker registered with only some of them?"]
