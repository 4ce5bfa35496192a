"""The navigation, made from the routes that have an entry in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from eruca._console.pages.routing import Route
from eruca._console.pages.visit import Visit, make_url

#: The sections, in their order.
SECTIONS: Final = ("cluster", "data", "watch", "console")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: its text, its address, its icon and the letter after `g` that leads to it."""

    text: str
    url: str
    icon: str
    key: str
    is_current: bool


@dataclass(slots=True)
class Section:
    """Entries under one title."""

    title: str
    entries: list[Entry] = field(default_factory=list)


def list_navigation(visit: Visit, routes: Sequence[Route]) -> list[Section]:
    """Return the sections with the pages that the user may see."""
    if visit.session is None:
        return []
    cluster = visit.cluster.name if visit.has_cluster else visit.parts.clusters.first.name
    here = visit.request.scope["path"]
    sections = {name: Section(visit.text(f"nav.section.{name}")) for name in SECTIONS}
    found = [route for route in routes if route.nav is not None and visit.user.may(route.need)]
    for route in sorted(found, key=lambda each: each.nav.order if each.nav else 0):
        assert route.nav is not None
        path = route.path.replace("{cluster}", cluster)
        url = make_url(*path.strip("/").split("/"))
        is_first = route.path.endswith("{cluster}")
        is_current = here == path or (here.startswith(path + "/") and not is_first)
        sections[route.nav.section].entries.append(
            Entry(visit.text(route.nav.text), url, route.nav.icon, route.nav.key, is_current)
        )
    return [section for section in sections.values() if section.entries]
