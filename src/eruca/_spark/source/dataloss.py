"""What to do when messages that a query should read are no longer available."""

from __future__ import annotations

import logging
from typing import Final

from eruca.errors import OffsetLost

log = logging.getLogger(__name__)

FAIL: Final = "true"
WARN: Final = "warn"
IGNORE: Final = "false"


def report_loss(policy: str, text: str) -> None:
    """Raise OffsetLost, log a warning, or continue silently, depending on the option failOnDataLoss."""
    if policy == FAIL:
        raise OffsetLost(
            text,
            hint="messages expired, or the topic was deleted; failOnDataLoss=warn continues with what is available",
        )
    if policy == WARN:
        log.warning("data loss, continuing with what is available: %s", text)
