"""A connection as guards see it: what counts it, limits it and closes it, whatever protocol it speaks."""

from __future__ import annotations

from typing import Protocol


class Peer(Protocol):
    """A connection of a server: a `net.link.Link`, or one of another protocol."""

    #: Its address, `host:port`.
    peer: str
    peer_host: tuple[str, int]
    is_open: bool
    #: The account of the last request that was accepted; None: none was, or there are no accounts.
    account: str | None

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that this connection holds now."""

    @property
    def unsent_bytes(self) -> int:
        """Those of responses that the system has not accepted yet."""

    @property
    def unfinished_bytes(self) -> int:
        """Those of requests that have not arrived completely."""

    def complain(self, reason: str) -> None:
        """Log the misbehaviour of the peer."""

    def pause_for(self, seconds: float) -> None:
        """Handle no more requests, and read nothing, for a time."""

    def dismiss(self, reason: str) -> None:
        """Tell the peer why there is no place for it, and close the connection."""

    def abort(self) -> None:
        """Close the connection at once."""
