"""`Routes` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.routes` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from eruca._admin.results import Listed
from eruca._admin.routes import Routes as AsyncRoutes
from eruca._admin.routes import ServerRoute, TopicRoute
from eruca._admin.sync.base import PlainPart


class Routes(PlainPart[AsyncRoutes]):
    """Shows where the queues of topics are: `admin.routes`."""

    def show(self, topic: str) -> TopicRoute:
        """Return the route of a topic. Raises NoRoute if there is none."""
        return self._run(self._twin.show(topic))

    def compare(self, topic: str) -> Listed[ServerRoute]:
        """Return the route that each name server has; they should be the same."""
        return self._run(self._twin.compare(topic))

    def clusters(self, topic: str) -> Listed[str]:
        """Return the clusters that have a topic. Raises NoRoute if there is none."""
        return self._run(self._twin.clusters(topic))
