"""How long tests wait for what must happen."""

from __future__ import annotations

from typing import Final

# A test that waits for a condition fails after this. It is not a measure of speed: on an idle machine the conditions
# take a fraction of a second, and a busy machine must not turn a test red.
PATIENCE_S: Final = 300
