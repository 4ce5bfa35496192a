"""The overview of a cluster, kept current while it is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response

from eruca._console.groups.listing import TONES
from eruca._console.identity.rights import Need
from eruca._console.overview.reading import SPANS, read_overview, read_rates
from eruca._console.pages.rendering import render_part
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.times import show_percent
from eruca._console.pages.visit import Shown, Visit

_POLL_S = 5.0


async def show_overview(visit: Visit) -> Shown:
    """Show the state of a cluster on one page."""
    span = _choose_span(visit)
    found, (rates, disks) = await asyncio.gather(read_overview(visit), read_rates(visit, SPANS[span]))
    return visit.show(
        "overview/page.html",
        found,
        span=span,
        spans=[(each, visit.text(f"overview.span.{each}"), visit.url(span=each)) for each in SPANS],
        rates=rates,
        disks=disks,
        show_percent=show_percent,
        command=visit.command("top"),
        tones=TONES,
    )


async def watch_overview(visit: Visit) -> Response:
    """Send the figures and charts of the overview as they change."""
    return visit.parts.streams.answer(visit, _list_changes(visit))


async def _list_changes(visit: Visit) -> AsyncIterator[tuple[str, str]]:
    span = _choose_span(visit)
    while True:
        await asyncio.sleep(_POLL_S)
        found, (rates, _) = await asyncio.gather(read_overview(visit), read_rates(visit, SPANS[span]))
        yield "overview-figures", render_part(visit, "overview/parts.html:figures", found)
        yield "overview-rates", render_part(visit, "overview/parts.html:rate_chart", rates)
        yield "overview-behind", render_part(visit, "overview/parts.html:behind", found, TONES)


def _choose_span(visit: Visit) -> str:
    span = visit.query.get("span", "1h")
    return span if span in SPANS else "1h"


ROUTES = (
    Route(
        "/c/{cluster}",
        show_overview,
        Need.VIEW,
        nav=Nav("cluster", 10, "nav.overview", "overview", "o"),
        summary="Show the state of a cluster: rates, backlog, disks, alarms, what was changed lately.",
    ),
    Route("/c/{cluster}/live/overview", watch_overview, Need.VIEW, in_api=False),
)
