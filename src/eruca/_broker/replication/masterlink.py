"""A slave's connection to its master: the socket, and the handshake that comes first where members authenticate."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from eruca._core.replication.handshake import Open, Send, SlaveHandshake
from eruca._ground.limits import HA_HANDSHAKE_SECONDS_MAX
from eruca._wire.handshake import HANDSHAKE_MAGIC
from eruca._wire.replication import HELLO_MAGIC, ChunkDecoder, FencedDecoder, FencedFrame, Hello, encode_fenced
from eruca.errors import ConnectFailed, WireError

if TYPE_CHECKING:
    from eruca._broker.replication.replica import Follower


class MasterLink(asyncio.Protocol):
    """One connection to a master."""

    def __init__(self, follower: Follower, *, fenced: bool, handshake: SlaveHandshake | None) -> None:
        """With a handshake, the link is fenced."""
        self._follower = follower
        self._handshake = handshake
        # A fenced link begins with it, unless the handshake did.
        self._opening = HELLO_MAGIC
        self._decoder: FencedDecoder | ChunkDecoder = FencedDecoder() if fenced else ChunkDecoder()
        self._transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()
        # Done when the master has authenticated, or the link has ended.
        self._proved: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport, and introduce this slave."""
        self._transport = cast(asyncio.Transport, transport)
        if self._handshake is not None:
            self.write(HANDSHAKE_MAGIC + encode_fenced(self._handshake.introduction))

    async def authenticate(self) -> None:
        """Wait until both sides have authenticated, if there is a handshake. Raises ConnectFailed."""
        if self._handshake is None:
            return
        try:
            first: set[asyncio.Future[Any]] = {self._proved, self.ended}
            await asyncio.wait(first, timeout=HA_HANDSHAKE_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.end("this broker no longer follows a master")
            raise
        if not self._proved.done():
            self.end(f"no answer within {HA_HANDSHAKE_SECONDS_MAX:g} s")
        if self.ended.done():
            raise ConnectFailed(f"authentication with the master failed: {self.ended.result()}")
        self._handshake, self._opening = None, b""

    def data_received(self, data: bytes) -> None:
        """Handle data from the master; there is one report, however many chunks the data has."""
        if self.ended.done():
            return
        try:
            frames = self._decoder.feed(data)
        except WireError as error:
            self.end(f"the master sent invalid data: {error}")
            return
        if self._handshake is not None:
            self._shake(cast(list[FencedFrame], frames))
        elif frames:
            self._follower.on_frames(frames)

    def _shake(self, frames: list[FencedFrame]) -> None:
        assert self._handshake is not None
        for frame in frames:
            for action in self._handshake.handle(frame):
                if isinstance(action, Send):
                    self.write(encode_fenced(action.frame))
                elif isinstance(action, Open):
                    self._proved.set_result(None)
                else:
                    self.end(action.reason)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the connection was lost."""
        if not self.ended.done():
            self.ended.set_result(str(exc) if exc else "the master closed the connection")

    def greet(self, hello: Hello) -> None:
        """Open a fenced link."""
        self.write(self._opening + encode_fenced(hello))

    def write(self, data: bytes) -> None:
        """Send data, unless the connection is closing."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def end(self, reason: str) -> None:
        """Close the connection from this side, for a reason."""
        if not self.ended.done():
            self.ended.set_result(reason)
        if self._transport is not None:
            self._transport.abort()
