"""What a handler gets, a visit, and what it returns, a `Shown`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote, urlencode

from starlette.datastructures import FormData, ImmutableMultiDict, QueryParams
from starlette.requests import Request

from eruca._admin.admin import Admin
from eruca._admin.plans import Plans
from eruca._admin.results import Problem, Undo
from eruca._console.brokers.reading import OptionMeaning
from eruca._console.clusters import Cluster, Clusters
from eruca._console.identity.gate import find_address
from eruca._console.identity.identity import Identity
from eruca._console.identity.rights import Need, User
from eruca._console.identity.sessions import Session
from eruca._console.messages.parts import MessageParts
from eruca._console.options import ConsoleOptions
from eruca._console.pages.live import Streams
from eruca._console.pages.routing import Route
from eruca._console.pages.texts import Texts
from eruca._console.state import State
from eruca._console.topics.favourites import Favourites
from eruca._console.watching.watching import Watching
from eruca._ground.commandlines import write_command

_NO_FORM: ImmutableMultiDict[str, Any] = FormData()


@dataclass(frozen=True, slots=True)
class Parts:
    """All that the handlers of a console share. `app.py` builds it; a new subject adds its field."""

    options: ConsoleOptions
    state: State
    clusters: Clusters
    identity: Identity
    plans: Plans
    streams: Streams
    watching: Watching
    # The words of the commands that undo a change; the command line knows its commands.
    list_undo: Callable[[Sequence[Undo]], list[list[str]]]
    favourites: Favourites
    # What the options of brokers mean, by their names.
    meanings: Mapping[str, OptionMeaning]
    # All routes, for the pages that list them.
    routes: Sequence[Route]
    messages: MessageParts


@dataclass(frozen=True, slots=True)
class Shown:
    """What a handler returns: a template with its context, and the value that the API returns.

    The frame renders it as a whole page, as a fragment (the block `content` of the template, for htmx), or as JSON.
    """

    template: str
    value: Any = None
    context: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    # Lists that are exported when `?format=csv` or `?format=json` asks for it.
    table: Any = None
    problems: Sequence[Problem] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a user, after all checks."""

    request: Request
    route: Route
    parts: Parts
    session: Session | None
    texts: Texts
    # Whether JSON is wanted: a path under `/api`.
    is_api: bool = False
    form: ImmutableMultiDict[str, Any] = field(default_factory=lambda: _NO_FORM)
    # What was wrong with the form that was posted, by field; "" is for the form as a whole. The handler shows it again.
    errors: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""
    _cluster: Cluster | None = None

    # -- who and where -----------------------------------------------------------------------------------------------

    @property
    def user(self) -> User:
        """The user; only routes with `Need.PUBLIC` have none, and they must not ask."""
        assert self.session is not None
        return self.session.user

    @property
    def needs(self) -> type[Need]:
        """The kinds of rights, for templates: `visit.user.may(visit.needs.OPERATE)`."""
        return Need

    @property
    def cluster(self) -> Cluster:
        """The cluster of the path; only for paths with `{cluster}`."""
        assert self._cluster is not None
        return self._cluster

    @property
    def has_cluster(self) -> bool:
        """Whether the path belongs to a cluster."""
        return self._cluster is not None

    @property
    def admin(self) -> Admin:
        """The admin of the cluster of the path."""
        return self.cluster.admin

    @property
    def query(self) -> QueryParams:
        """The parameters after the `?`."""
        return self.request.query_params

    @property
    def path(self) -> Mapping[str, str]:
        """The parameters of the path: `visit.path["topic"]`."""
        return cast("Mapping[str, str]", self.request.path_params)

    @property
    def method(self) -> str:
        """GET or POST; GET also for HEAD, and for a form that was refused and is shown again."""
        return "POST" if self.request.method == "POST" and not self.errors else "GET"

    @property
    def is_htmx(self) -> bool:
        """Whether htmx asks for a part of a page."""
        return self.request.headers.get("hx-request") == "true" and "hx-boosted" not in self.request.headers

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return time.time()

    # -- writing -----------------------------------------------------------------------------------------------------

    def text(self, key: str, /, **values: object) -> str:
        """Return a text in the language of the user."""
        return self.texts(key, **values)

    def url(self, *parts: str, **query: object) -> str:
        """Return the path of a page of this cluster: `visit.url("topics", name, sort="lag")`."""
        return make_url("c", self.cluster.name, *parts, **query)

    def command(self, *words: object) -> str:
        """Return the command line that does the same: `visit.command("topic", "show", name)`."""
        return write_command(*words, *(self._cluster.words if self._cluster else ()))

    def show(self, template: str, value: Any = None, *, status: int = 200, **context: Any) -> Shown:
        """Return a page. `value` is what the API returns; the template finds it as `value`."""
        return Shown(template, value, context, status)

    # -- changing ----------------------------------------------------------------------------------------------------

    async def audit(
        self,
        *,
        action: str,
        target: str,
        outcome: str,
        command: str = "",
        before: Any = None,
        after: Any = None,
        reason: str = "",
    ) -> None:
        """Note a change that is not one of `forms.change`."""
        await self.parts.identity.audit.add(
            user=self.user.name,
            cluster=self._cluster.name if self._cluster else "",
            action=action,
            target=target,
            command=command,
            before=before,
            after=after,
            outcome=outcome,
            reason=reason,
            address=find_address(self.request),
        )


def make_url(*parts: str, **query: object) -> str:
    """Return a path of escaped parts, with a query of those values that are not None."""
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    given = {name: value for name, value in query.items() if value is not None and value != ""}
    return f"{path}?{urlencode(given)}" if given else path
