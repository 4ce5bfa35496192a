"""`eruca topic order`: the order configuration of a topic, which name servers keep."""

from __future__ import annotations

import click

from eruca._admin.orders import check_order
from eruca._cli.changing import Changing, add_change_options
from eruca._cli.choosing import add_topic_argument
from eruca._cli.grouping import CommandGroup
from eruca._cli.nameserverkv import view_key_values
from eruca._cli.viewing import View, Viewing, add_view_options
from eruca.admin import Admin


@click.group(cls=CommandGroup)
def order() -> None:
    """The order configuration of a topic: `broker-a:4;broker-b:4`.

    Name servers report these queues even if a broker is away, so that the queue of a key stays the same, and
    producers wait for it. It is kept by the name servers and counts for all brokers.

    \b
    Examples:
      eruca topic order set orders "broker-a:4;broker-b:4"
      eruca topic order get orders
      eruca topic order delete orders
    """


@order.command("get")
@add_topic_argument
@add_view_options
def get_(view: Viewing, topic: str) -> None:
    """Show the order configuration of TOPIC on each name server.

    \b
    Examples:
      eruca topic order get orders
    """

    async def ask(admin: Admin) -> View:
        found = await admin.nameservers.order_get(topic)
        empty = f"topic {topic} has no order configuration; `eruca topic order set` makes one"
        return view_key_values([found] if found.value is not None else [], empty, empty_is_wrong=True)

    view.show(ask)


@order.command("set")
@add_topic_argument
@click.argument("order", callback=lambda _context, _parameter, text: check_order(text))
@add_change_options()
def set_(change: Changing, topic: str, order: str) -> None:
    """Set the order configuration of TOPIC: the number of queues of each broker.

    \b
    Examples:
      eruca topic order set orders "broker-a:4;broker-b:4"
    """
    change.apply(lambda admin, dry_run: admin.nameservers.order_put(topic, order, dry_run=dry_run))


@order.command()
@add_topic_argument
@add_change_options(asks=True)
def delete(change: Changing, topic: str) -> None:
    """Delete the order configuration of TOPIC; the topic itself stays.

    \b
    Examples:
      eruca topic order delete orders
    """
    change.apply(
        lambda admin, dry_run: admin.nameservers.order_delete(topic, dry_run=dry_run),
        f"Delete the order configuration of topic {topic}?",
    )
