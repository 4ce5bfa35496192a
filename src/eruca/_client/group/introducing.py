"""The start of a consumer: it finds its topics, has brokers check its expressions, and sends its first heartbeat."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from eruca._client.group.subscriptions import SQL92, Subscription
from eruca._client.session.route import Route
from eruca._client.session.session import Session
from eruca._wire.names import RETRY_PREFIX
from eruca.errors import ErucaError, NetError

log = logging.getLogger(__name__)


async def introduce(
    session: Session, group: str, subscriptions: Mapping[str, Subscription], *, broadcast: bool
) -> None:
    """Find the brokers, let them check the expressions, and send them a heartbeat. Raises RequestRefused."""
    for topic, subscription in subscriptions.items():
        session.routes.watch(topic)
        try:
            route = await session.routes.get(topic)
        except ErucaError as error:
            if not topic.startswith(RETRY_PREFIX):
                log.warning("nothing can be consumed from %s yet: %s", topic, error)
            continue
        if subscription.kind == SQL92:
            await _check_expression(session, group, route, subscription)
    await session.heartbeat()
    if not broadcast:
        # The brokers created the retry topic when they received our heartbeat.
        await session.routes.refresh_all()


async def _check_expression(session: Session, group: str, route: Route, subscription: Subscription) -> None:
    """Let every broker of a topic check an expression; one that is down now gets it with a later heartbeat."""
    addresses = {next(iter(by_id.values())) for by_id in route.brokers.values()}
    checks = [
        session.calls.check_subscription(address, session.client_id, group, subscription.data) for address in addresses
    ]
    for error in await asyncio.gather(*checks, return_exceptions=True):
        if isinstance(error, NetError):
            log.warning("the expression for %s could not be checked: %s", route.topic, error)
        elif error is not None:
            raise error
