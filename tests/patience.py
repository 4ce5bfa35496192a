"""How long tests wait for what must happen."""

from __future__ import annotations

from typing import Final

# A test that waits for a condition fails after this. It is no measure of speed: what is waited for takes a fraction of
# a second on a machine that does nothing else, and a machine that does must not turn a test red.
PATIENCE_S: Final = 300
