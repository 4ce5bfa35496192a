"""Listeners: whether a consumer is connected that could reply to a request.

Brokers know which groups consume a topic, and which consumers are connected. They are asked only about requests whose
reply takes long, so that requests that are answered soon cost nothing more.
"""

from __future__ import annotations

import asyncio
import logging

from eruca._client.message import Message
from eruca._client.namespaces import unwrap
from eruca._client.session.session import Session
from eruca._wire.names import MASTER_ID
from eruca.errors import ErucaError, NoListener

log = logging.getLogger(__name__)

# A reply that takes longer than this may not come at all. While nobody listens, this is also the time between looks.
_LOOK_S = 0.5
# While somebody listens, or while it cannot be known, brokers are asked this often.
_LOOK_AGAIN_S = 5.0
# How long the requests of one topic share an answer.
_SHARED_S = 0.25
# With more groups than this at a topic, somebody is assumed to listen.
_GROUPS_ASKED_MAX = 64


class Listeners:
    """Looks for consumers of the topics that one producer sends requests to."""

    def __init__(self) -> None:
        # The last look for each topic, and when it began.
        self._looks: dict[str, tuple[float, asyncio.Task[bool | None]]] = {}

    async def wait_for_reply(
        self, session: Session, reply: asyncio.Future[Message], topic: str, patience_s: float
    ) -> Message:
        """Wait for a reply as long as somebody may send it.

        Raises NoListener when no broker has had a consumer of the topic for `patience_s`.
        """
        loop = asyncio.get_running_loop()
        missing_since: float | None = loop.time()
        pause_s = min(_LOOK_S, patience_s)
        while True:
            await asyncio.wait((reply,), timeout=pause_s)
            if reply.done():
                return reply.result()
            look = self._look(session, topic)
            await asyncio.wait((reply, look), return_when=asyncio.FIRST_COMPLETED)
            if reply.done():
                return reply.result()
            if look.cancelled() or look.exception() is not None or look.result() is not False:
                missing_since, pause_s = None, _LOOK_AGAIN_S
                continue
            if missing_since is None:
                missing_since = loop.time()
            left_s = missing_since + patience_s - loop.time()
            if left_s <= 0:
                raise _explain(unwrap(session.options.namespace, topic))
            pause_s = min(_LOOK_S, left_s)

    def _look(self, session: Session, topic: str) -> asyncio.Task[bool | None]:
        now = asyncio.get_running_loop().time()
        looks = self._looks.items()
        self._looks = {name: (at, look) for name, (at, look) in looks if not look.done() or at > now - _SHARED_S}
        if topic not in self._looks:
            self._looks[topic] = now, session.spawn(has_listener(session, topic))
        return self._looks[topic][1]


def _explain(topic: str) -> NoListener:
    return NoListener(
        f"nobody listens to topic {topic}: no connected consumer subscribes to it",
        hint="start a consumer that replies; it also gets this request, which is stored. listener_timeout waits longer",
    )


async def has_listener(session: Session, topic: str) -> bool | None:
    """Return whether a connected consumer subscribes to a topic; None when that is not known."""
    route = session.routes.peek(topic)
    if route is None or route.is_template or not route.brokers:
        return None
    masters = [by_id.get(MASTER_ID) for by_id in route.brokers.values()]
    answers = await asyncio.gather(*[_ask(session, address, topic) for address in masters if address is not None])
    if True in answers:
        return True
    return None if None in answers or None in masters else False


async def _ask(session: Session, address: str, topic: str) -> bool | None:
    calls = session.calls
    try:
        groups = await calls.list_groups(address, topic)
        if len(groups) > _GROUPS_ASKED_MAX:
            return True
        return any(await asyncio.gather(*[calls.is_listening(address, group, topic) for group in groups]))
    except ErucaError as error:  # it is away, or the account may not ask
        log.debug("broker %s did not say who listens to %s: %s", address, topic, error)
        return None
