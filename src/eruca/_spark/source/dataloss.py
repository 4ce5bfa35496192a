"""What to do when messages that a query was to read are not there any more."""

from __future__ import annotations

import logging
from typing import Final

from eruca.errors import OffsetLost

log = logging.getLogger(__name__)

FAIL: Final = "true"
WARN: Final = "warn"
IGNORE: Final = "false"


def report_loss(policy: str, text: str) -> None:
    """Fail, say so in the log, or go on silently, as option failOnDataLoss wants. Raises OffsetLost."""
    if policy == FAIL:
        raise OffsetLost(
            text,
            hint="messages may have expired, or the topic was deleted; failOnDataLoss=warn goes on with what is there",
        )
    if policy == WARN:
        log.warning("data loss, going on with what is there: %s", text)
