"""Channels: where alarms are delivered; a test delivery, and the outcome of the last ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from eruca._console.alarms.showing import go_to
from eruca._console.identity.rights import Need
from eruca._console.pages.forms import Field, FormRefused, read_fields
from eruca._console.pages.routing import Route
from eruca._console.pages.tables import Column, export_table, make_table, show_table
from eruca._console.pages.visit import Shown, Visit
from eruca._console.watching.channels import Channel, ChannelKind, hide_target
from eruca._console.watching.delivery import DeliveryState
from eruca.errors import ConfigError, ErucaError

_DELIVERIES_MAX: Final = 1_000
_TONES: Final = {DeliveryState.DELIVERED: "ok", DeliveryState.WAITING: "warning", DeliveryState.FAILED: "error"}


class ChannelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One channel as it may be shown: without its secret and the path of its URL."""

    id: int
    name: str
    kind: str
    target: str
    is_signed: bool


class DeliveryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery."""

    id: int
    channel: str
    event: str
    state: DeliveryState
    tries: int
    error: str
    made_at: datetime | None


COLUMNS: Final[tuple[Column[DeliveryRow], ...]] = (
    Column("made_at", "alarms.delivery.made_at", lambda row: row.made_at, kind="time"),
    Column("channel", "alarms.channel.name", lambda row: row.channel),
    Column("event", "alarms.delivery.event", lambda row: row.event, kind="tag", texts="alarms.event"),
    Column(
        "state",
        "alarms.delivery.state",
        lambda row: row.state.value,
        kind="tag",
        texts="alarms.delivery.state",
        tone=lambda row: _TONES[row.state],
    ),
    Column("tries", "alarms.delivery.tries", lambda row: row.tries, kind="number"),
    Column("error", "alarms.delivery.error", lambda row: row.error),
)
#: Of exports: channels are shown as cards.
CHANNEL_COLUMNS: Final[Sequence[Column[ChannelRow]]] = (
    Column("name", "alarms.channel.name", lambda row: row.name),
    Column("kind", "alarms.channel.kind", lambda row: row.kind),
    Column("target", "alarms.channel.target", lambda row: row.target),
    Column("is_signed", "alarms.channel.signed", lambda row: row.is_signed),
)
FIELDS: Final = (
    Field("name", "alarms.channel.name", required=True, chars_max=100),
    Field("kind", "alarms.channel.kind", "choice", default="webhook", required=True,
          choices=tuple(kind.value for kind in ChannelKind), choice_texts="alarms.channel.kind"),
    Field("target", "alarms.channel.target", required=True, hint="alarms.channel.target.hint", chars_max=2000),
    Field("secret", "alarms.channel.secret", hint="alarms.channel.secret.hint", chars_max=200),
)  # fmt: skip


def make_row(channel: Channel) -> ChannelRow:
    """Return a channel as it may be shown."""
    return ChannelRow(
        id=channel.id,
        name=channel.name,
        kind=channel.kind.value,
        target=hide_target(channel),
        is_signed=bool(channel.secret),
    )


async def list_channels(visit: Visit) -> Shown | Response:
    """Show all channels, and what was delivered."""
    watching = visit.parts.watching
    channels = await watching.tables.list_channels()
    names = {channel.id: channel.name for channel in channels}
    deliveries = [
        DeliveryRow(
            id=each.id,
            channel=names.get(each.channel, str(each.channel)),
            event=each.event,
            state=each.state,
            tries=each.tries,
            error=each.error,
            made_at=each.made_at,
        )
        for each in await watching.deliveries.list(_DELIVERIES_MAX)
    ]
    rows = [make_row(channel) for channel in channels]
    table = make_table(visit, "deliveries", COLUMNS, deliveries, sort="-made_at", search=lambda row: row.channel)
    channel_table = make_table(visit, "channels", CHANNEL_COLUMNS, rows, prefix="channels.")
    if channel_table.format and visit.query.get("table") == "channels":
        return export_table(visit, channel_table)
    if visit.is_api:
        return Shown("alarms/channels.html", {"channels": rows, "deliveries": deliveries})
    return show_table(
        visit,
        "alarms/channels.html",
        table,
        channels=rows,
        channel_table=channel_table,
        has_mail=watching.deliveries.mailer.is_configured,
    )


async def create_channel(visit: Visit) -> Shown | Response:
    """Create a channel."""
    if visit.method == "GET":
        return visit.show(
            "alarms/channel.html", fields=FIELDS, has_mail=visit.parts.watching.deliveries.mailer.is_configured
        )
    form = read_fields(visit, FIELDS)
    kind = ChannelKind(form["kind"])
    try:
        channel = await visit.parts.watching.tables.add_channel(
            form["name"], kind, form["target"], (form["secret"] or "") if kind is ChannelKind.WEBHOOK else ""
        )
    except ConfigError as error:
        field = "name" if "name" in str(error) or "there is a channel" in str(error) else "target"
        raise FormRefused({field: str(error)}) from None
    await visit.audit(
        action="alarm.channel.create", target=channel.name, before=None, after=make_row(channel), outcome="done"
    )
    return Shown("alarms/channels.html", make_row(channel)) if visit.is_api else go_to(visit, "alarms", "channels")


async def delete_channel(visit: Visit) -> Shown | Response:
    """Delete a channel."""
    channel = await _find(visit)
    await visit.parts.watching.tables.delete_channel(channel.id)
    await visit.audit(
        action="alarm.channel.delete", target=channel.name, before=make_row(channel), after=None, outcome="done"
    )
    return Shown("alarms/channels.html", make_row(channel)) if visit.is_api else go_to(visit, "alarms", "channels")


async def try_channel(visit: Visit) -> Shown | Response:
    """Deliver a test now, and show how it went."""
    channel = await _find(visit)
    outcome, error = "done", ""
    try:
        await visit.parts.watching.test(channel)
    except ErucaError as failure:
        outcome, error = "failed", str(failure)
    await visit.audit(
        action="alarm.channel.test", target=channel.name, before=None, after=error or None, outcome=outcome
    )
    value = {"channel": make_row(channel), "outcome": outcome, "error": error}
    return Shown("alarms/tested.html", value, {"channel": make_row(channel), "error": error})


async def _find(visit: Visit) -> Channel:
    number = visit.path["channel"]
    channel = await visit.parts.watching.tables.find_channel(int(number)) if number.isdecimal() else None
    if channel is None:
        raise HTTPException(404, visit.text("alarms.no_channel"))
    return channel


_PATH: Final = "/c/{cluster}/alarms/channels"
ROUTES: Final = (
    Route(_PATH, list_channels, Need.VIEW, summary="List channels and the last deliveries."),
    Route(
        "/c/{cluster}/alarms/new/channel",
        create_channel,
        Need.ADMIN,
        ("GET", "POST"),
        summary="Create a channel: a webhook, or addresses for e-mail.",
        fields={"kind": "webhook or mail", "target": "a URL, or addresses", "secret": "signs the bodies of a webhook"},
    ),
    Route(_PATH + "/{channel}/delete", delete_channel, Need.ADMIN, ("POST",), summary="Delete a channel."),
    Route(_PATH + "/{channel}/test", try_channel, Need.ADMIN, ("POST",), summary="Deliver a test to a channel."),
)
