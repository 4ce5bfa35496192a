"""The first words of a consumer: where its topics are, whether brokers can read its expressions, who it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from eruca._client.group.subscriptions import SQL92, Subscription
from eruca._client.session.routes import Route
from eruca._client.session.session import Session
from eruca._wire.names import RETRY_PREFIX
from eruca.errors import ErucaError, NetError

log = logging.getLogger(__name__)


async def introduce(
    session: Session, group: str, subscriptions: Mapping[str, Subscription], *, broadcast: bool
) -> None:
    """Find the brokers, let them read the expressions, and tell them of the group. Raises RequestRefused."""
    for topic, subscription in subscriptions.items():
        session.routes.watch(topic)
        try:
            route = await session.routes.get(topic)
        except ErucaError as error:
            if not topic.startswith(RETRY_PREFIX):
                log.warning("nothing can be consumed of %s yet: %s", topic, error)
            continue
        if subscription.kind == SQL92:
            await _check_expression(session, group, route, subscription)
    await session.heartbeat()
    if not broadcast:
        # The brokers made the retry topic when they heard of us.
        await session.routes.refresh_all()


async def _check_expression(session: Session, group: str, route: Route, subscription: Subscription) -> None:
    """Let every broker of a topic read an expression; one that is not there now learns it by the heartbeat."""
    addresses = {next(iter(by_id.values())) for by_id in route.brokers.values()}
    checks = [
        session.calls.check_subscription(address, session.client_id, group, subscription.data) for address in addresses
    ]
    for error in await asyncio.gather(*checks, return_exceptions=True):
        if isinstance(error, NetError):
            log.warning("the expression for %s could not be checked: %s", route.topic, error)
        elif error is not None:
            raise error
