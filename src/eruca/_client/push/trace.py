"""What a consumer tells the message trace."""

from __future__ import annotations

from eruca._client.message import Message, Outcome
from eruca._client.namespaces import unwrap
from eruca._client.produce.trace import open_trace
from eruca._client.session.session import Session
from eruca._wire.properties import KEYS, MSG_REGION, TRACE_ON
from eruca._wire.trace import SubAfterTrace, SubBeforeTrace, TracedOutcome

_OUTCOMES = {Outcome.LATER: TracedOutcome.FAILED, Outcome.DEAD: TracedOutcome.FAILED}


class ConsumeTrace:
    """A hook of a consumer that writes down each message before and after its handler."""

    def __init__(self, session: Session, group: str, topic: bool | str) -> None:
        self._dispatcher = open_trace(session, group, "CONSUME", topic)
        self._session = session
        self._group = unwrap(session.options.namespace, group)

    def before_consume(self, messages: list[Message]) -> object:
        """Write that a handler begins; returns the id all records of this call share."""
        request_id = self._session.unique_ids.create()
        now_ms = self._session.clock.now_ms()
        for message in self._list_traced(messages):
            self._dispatcher.add(
                SubBeforeTrace(
                    time_ms=now_ms,
                    region=message.all_properties.get(MSG_REGION),
                    group=self._group,
                    request_id=request_id,
                    message_id=message.message_id,
                    retries=message.delivery - 1,
                    keys=message.all_properties.get(KEYS, ""),
                )
            )
        return request_id

    def after_consume(self, messages: list[Message], outcome: Outcome, spent_ms: int, begun: object) -> None:
        """Write how it ended."""
        now_ms = self._session.clock.now_ms()
        for message in self._list_traced(messages):
            self._dispatcher.add(
                SubAfterTrace(
                    request_id=str(begun),
                    message_id=message.message_id,
                    cost_ms=spent_ms // len(messages),
                    success=outcome not in _OUTCOMES,
                    keys=message.all_properties.get(KEYS, ""),
                    outcome=_OUTCOMES.get(outcome, TracedOutcome.SUCCESS),
                    time_ms=now_ms,
                    group=self._group,
                )
            )

    def _list_traced(self, messages: list[Message]) -> list[Message]:
        # A message that was sent to a broker without trace is not traced by its readers either.
        return [message for message in messages if message.all_properties.get(TRACE_ON) != "false"]

    async def close(self) -> None:
        """Send what is left."""
        await self._dispatcher.close()
