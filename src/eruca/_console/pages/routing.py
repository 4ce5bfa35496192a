"""Routes are declared: the path, the handler, what a visitor needs, and which parameters are names of topics or groups.

`Frame` (page.py) checks all of it before a handler runs: the log-in, the right, the rights of the user to the named
topic or group, and for a POST the CSRF token. The navigation and the OpenAPI document are made from the same list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from starlette.responses import Response

from eruca._console.identity.rights import Need
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from eruca._console.pages.forms import Field
    from eruca._console.pages.visit import Shown, Visit

Handler: TypeAlias = "Callable[[Visit], Awaitable[Shown | Response]]"

#: What a parameter may be the name of.
KINDS = ("topic", "group")


@dataclass(frozen=True, slots=True)
class Nav:
    """An entry of the navigation: the section, the place in it, the key of its text, its icon and its shortcut."""

    section: str
    order: int
    text: str
    icon: str
    # The letter after `g`.
    key: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """One route. Paths with `{cluster}` belong to a cluster: the handler finds it as `visit.cluster`.

    `names` says which parameters of the path, or else fields of the form, or else of the query, are names of topics
    and groups: `{"topic": "topic", "to_topic": "topic"}`. A route under `/c/` has a twin under `/api/c/` that answers
    JSON, unless `in_api` is False.
    """

    path: str
    handler: Handler
    need: Need
    methods: tuple[str, ...] = ("GET",)
    names: Mapping[str, str] = field(default_factory=dict)
    nav: Nav | None = None
    # One sentence, for the OpenAPI document.
    summary: str = ""
    # What the query may have, with what it means, and the fields of the form, for the OpenAPI document.
    fields: Mapping[str, str] = field(default_factory=dict)
    form: Sequence[Field] = ()
    in_api: bool = True
    # The largest body of a request, in bytes; uploads need more than a form.
    body_max: int = 256 * 1024

    def __post_init__(self) -> None:
        unknown = set(self.names.values()) - set(KINDS)
        if unknown or not isinstance(self.need, Need):
            raise ConfigError(f"route {self.path}: need={self.need!r}, names of {sorted(unknown)}")
