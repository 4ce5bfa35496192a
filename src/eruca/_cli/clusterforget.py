"""`eruca cluster forget`: a member that is gone for good."""

from __future__ import annotations

import click

from eruca._cli.changing import Changing, add_change_options
from eruca._cli.grouping import SectionedCommand
from eruca._net.addresses import is_address


def _parse_address(text: str) -> str:
    if not is_address(text):
        raise click.BadParameter(f"{text!r}: expected HOST:PORT; `eruca cluster list` shows the members")
    return text


@click.command(cls=SectionedCommand)
@click.argument("address", metavar="HOST:PORT", callback=lambda _context, _parameter, text: _parse_address(text))
@add_change_options(asks=True)
def forget(change: Changing, address: str) -> None:
    """Have the members of a broker name forget one that is gone for good, or that has a new address.

    Members remember all they have ever met, because a promotion has to know how many may have acknowledged something.
    One that was removed "does not answer" until it is forgotten, and promotions count it. It must be stopped, and no
    name server may know it any more. Messages that only it has are lost; it is a member again if it comes back.

    \b
    Examples:
      eruca cluster forget 10.0.0.3:10911 --dry-run
      eruca cluster forget 10.0.0.3:10911 --yes
    """
    change.apply(
        lambda admin, dry_run: admin.cluster.forget(address, dry_run=dry_run),
        f"Forget the member {address}? Messages that only it has are lost.",
        label="members",
    )
