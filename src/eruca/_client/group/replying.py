"""Replies of a consumer to the requests it receives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eruca._client.message import Message
from eruca._client.produce.choosing import QueueChooser
from eruca._client.produce.delivery import TIMEOUT_S, TRY_TIMEOUT_S, Delivery
from eruca._client.produce.outgoing import Receipt
from eruca._client.produce.packing import Packer
from eruca._client.produce.requests import pack_reply
from eruca._client.produce.sending import Sender
from eruca._client.session.session import Session
from eruca._ground.durations import Duration, to_ms
from eruca._observe.telemetry import find_telemetry
from eruca._wire.names import INNER_PRODUCER_GROUP


class Replies:
    """Sends the replies of one started consumer."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._packer = Packer(session.options.namespace, group)
        self._packer.telemetry = find_telemetry()
        # Brokers know a consumer as a member of the inner producer group.
        sender = Sender(session, group, sent_group=INNER_PRODUCER_GROUP)
        self._delivery = Delivery(session, sender, QueueChooser(), try_timeout_ms=to_ms("try_timeout", TRY_TIMEOUT_S))

    async def send(
        self,
        request: Message,
        body: bytes,
        tags: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
        timeout: Duration | None,
    ) -> Receipt:
        """Reply to a message. Raises MessageIllegal if it is not a request, and SendFailed."""
        timeout_ms = to_ms("timeout", TIMEOUT_S if timeout is None else timeout)
        session, packer = self._session, self._packer
        session.check_loop()
        parcel, choose = pack_reply(packer, session, request, body, tags, keys, properties)
        try:
            if len(parcel.body) >= packer.compress_from:
                await packer.compress(parcel)
            receipt = await self._delivery.deliver(parcel, choose, timeout_ms)
        except BaseException as error:
            packer.end_span(session, parcel.operation, None, error)
            raise
        packer.end_span(session, parcel.operation, receipt, None)
        return receipt
