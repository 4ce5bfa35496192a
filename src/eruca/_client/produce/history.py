"""The history of one delivery: what its tries found, and the error that reports them."""

from __future__ import annotations

from eruca._client.produce.choosing import Selector
from eruca._client.produce.outgoing import Receipt
from eruca._client.session.route import Route
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import ResponseCode
from eruca.errors import CallTimeout, ErucaError, RequestRefused, SendFailed

# Refusals that do not change within seconds.
_LASTING_CODES = frozenset(
    {
        int(ResponseCode.NO_PERMISSION),
        int(ResponseCode.NO_BUYER_ID),
        int(ResponseCode.NOT_IN_CURRENT_UNIT),
    }
)
# An error lists at most this many failed tries.
_TOLD_MAX = 20


class History:
    """The outcome of the tries to deliver one parcel."""

    # These are class attributes: nearly every parcel is stored on its first try, and then none of them is set.
    tries = 0
    # Tries that were stored, but not on every disk or slave the broker requires.
    copies = 0
    # How often it waited for a master. A message that was not accepted meanwhile does not count as a try.
    pauses = 0
    # Tries that a broker did not answer. Each may have stored the message.
    silences = 0
    failure: ErucaError | None = None
    # Descriptions of the last tries.
    told: tuple[str, ...] = ()
    # The last failure that was not a timeout. It explains more: the final try often has hardly any time left.
    reason = ""
    # Brokers that would refuse the message again.
    refused_by: frozenset[str] = frozenset()

    def add(self, queue: MessageQueue, error: ErucaError) -> None:
        """Record a failed try."""
        self.tries += 1
        self.failure = error
        self._tell(describe_try(queue, error))
        if isinstance(error, CallTimeout):
            self.silences += 1
        else:
            self.reason = self.told[-1]
        if isinstance(error, RequestRefused) and error.code in _LASTING_CODES:
            self.refused_by |= {queue.broker_name}

    def add_copy(self, queue: MessageQueue, receipt: Receipt) -> None:
        """Record a try that was stored, but not synced as the broker's mode requires."""
        self.tries += 1
        self.copies += 1
        self.failure = None
        self._tell(f"{queue.broker_name}: {receipt.status.value}")

    def add_pause(self, why: str, error: ErucaError | None = None) -> None:
        """Record a wait for a master."""
        self.failure = error or self.failure
        if self.pauses:
            self.told = self.told[:-1]  # the previous pause of the same outage
        self._tell(why)

    def _tell(self, text: str) -> None:
        self.told = (*self.told[1 - _TOLD_MAX :], text)

    def is_refused_everywhere(self, route: Route, choose: Selector | None) -> bool:
        """Return whether every broker that may store the message refused it for a lasting reason."""
        if not self.refused_by:
            return False
        return choose is not None or all(queue.broker_name in self.refused_by for queue in route.write_queues)

    def explain(self, topic: str, timeout_ms: float) -> SendFailed:
        """Return the error for a message that was not stored."""
        tries = f"{self.tries} {'try' if self.tries == 1 else 'tries'}"
        told = list(self.told) or [f"the timeout of {timeout_ms / 1000:.3g} s was over before the first try"]
        error = SendFailed(
            f"the message for {topic} was not stored after {tries}: {self.reason or told[-1]}",
            told,
            retryable=self.failure is None or self.failure.retryable,
        )
        error.__cause__ = self.failure
        return error


def describe_try(queue: MessageQueue, error: ErucaError) -> str:
    """Return what happened to a failed try, with the name of the broker."""
    # A refusal already names the broker; a network error names only the address.
    return str(error) if isinstance(error, RequestRefused) else f"{queue.broker_name}: {error}"
