"""What the pages about messages keep while the console runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from eruca._console.messages.decoding import Decoder
from eruca._console.messages.saved import SavedFilters
from eruca._console.messages.searching import Searching


@dataclass(frozen=True, slots=True)
class MessageParts:
    """What the pages about messages share."""

    saved: SavedFilters
    decoder: Decoder = field(default_factory=Decoder)
    searching: Searching = field(default_factory=Searching)
