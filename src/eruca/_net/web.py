"""A small HTTP port for machines: it answers GET and HEAD, one request per connection, within strict limits.

For metrics and health, which monitoring systems and load balancers ask for over HTTP. It does not serve
files, forms or sessions: it reads only the first line and the headers of a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, cast

from eruca._ground.limits import (
    WEB_ANSWER_SECONDS_MAX,
    WEB_CONNECTIONS_MAX,
    WEB_HEAD_BYTES_MAX,
    WEB_HEAD_SECONDS_MAX,
)
from eruca._net.guards import Reporter
from eruca._net.listening import Listener
from eruca._net.meters import count_refused
from eruca._net.tls import ServerTls
from eruca._net.waiting import choose_to_go

log = logging.getLogger(__name__)

_END: Final = b"\r\n\r\n"
_WORDS: Final = 3
_METHODS: Final = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class WebRequest:
    """What a client asks for. The names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Page:
    """An answer. A long body is a list of pieces, which are written while the client reads them."""

    body: Sequence[bytes]
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_text(cls, text: str, status: HTTPStatus = HTTPStatus.OK, **headers: str) -> Page:
        """Return a page of one line."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls([f"{text}\n".encode()], status=status, headers=named)


@dataclass(frozen=True, slots=True)
class WebLimits:
    """What clients may use."""

    head_bytes_max: int = WEB_HEAD_BYTES_MAX
    head_seconds_max: float = WEB_HEAD_SECONDS_MAX
    answer_seconds_max: float = WEB_ANSWER_SECONDS_MAX
    connections_max: int = WEB_CONNECTIONS_MAX


class WebPort:
    """Listens, and answers every request with a page."""

    def __init__(
        self,
        answer: Callable[[WebRequest], Awaitable[Page]],
        *,
        option: str,
        tls: ServerTls | None = None,
        limits: WebLimits | None = None,
    ) -> None:
        """`option` is the option that opens the port, by which refused connections are counted."""
        self.answer = answer
        self.option = option
        self.limits = limits or WebLimits()
        #: Open connections, in order of arrival.
        self.visits: dict[_Visit, None] = {}
        self._reporter = Reporter(log)
        self._listener = Listener(
            lambda: _Visit(self),
            tls,
            self._reporter,
            room=lambda: self.limits.connections_max - len(self.visits),
            first_byte_s=self.limits.head_seconds_max,
        )

    @property
    def port(self) -> int:
        """The listening port; 0 if it is not open."""
        return self._listener.port

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises ConnectFailed."""
        await self._listener.start(host, port)

    async def stop(self) -> None:
        """Close the port and all connections."""
        await self._listener.stop()
        tasks = [visit.abort() for visit in list(self.visits)]
        await asyncio.gather(*[task for task in tasks if task is not None], return_exceptions=True)

    def make_room(self, host: str) -> bool:
        """Return whether one more connection is accepted; of too many, one without a request makes room for it.

        A monitoring system sends its request at once and reads the answer; connections that send nothing, or do not
        close when they have their answer, must not keep it out.
        """
        if len(self.visits) < self.limits.connections_max:
            return True
        count_refused(self.option)
        for may_go in (lambda visit: not visit.is_asked, lambda visit: visit.is_answered):
            chosen = choose_to_go(((visit, visit.host) for visit in self.visits if may_go(visit)), host)
            if chosen is not None:
                self.visits.pop(chosen)
                chosen.abort()
                return True
        return False

    def report(self, visit: _Visit, reason: str) -> None:
        """Log the misbehaviour of a client, with a rate limit."""
        self._reporter.report_peer(visit.host, f"{visit.host} asked over HTTP and was refused: {reason}")


class _Visit(asyncio.Protocol):
    """One connection: a request, its answer, the end."""

    def __init__(self, port: WebPort) -> None:
        self._port = port
        self._limits = port.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._head = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        # Set while the client reads more slowly than we write.
        self._paused: asyncio.Future[None] | None = None
        #: Its request has arrived.
        self.is_asked = False
        #: All of the answer is written, but the client has not read or closed it yet.
        self.is_answered = False
        self.host = ""

    # -- called by the loop ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request for a short time."""
        self._transport = cast(asyncio.Transport, transport)
        self.host = str((transport.get_extra_info("peername") or ("",))[0])
        has_room = self._port.make_room(self.host)
        self._port.visits[self] = None
        self._limit_time(self._limits.head_seconds_max)
        if not has_room:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections to this port")

    def data_received(self, data: bytes) -> None:
        """Collect the head of the request."""
        if self.is_asked or self._transport is None:
            return
        self._head += data
        end = self._head.find(_END)
        if max(end, len(self._head) if end < 0 else 0) > self._limits.head_bytes_max:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too large")
        elif end >= 0:
            self._take(bytes(self._head[:end]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._port.visits.pop(self, None)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self.resume_writing()

    def pause_writing(self) -> None:
        """The client does not read."""
        self._paused = self._loop.create_future()

    def resume_writing(self) -> None:
        """The client reads again."""
        paused, self._paused = self._paused, None
        if paused is not None and not paused.done():
            paused.set_result(None)

    # -- the request -------------------------------------------------------------------------------------------------

    def _limit_time(self, seconds: float) -> None:
        """Cut the connection off after a time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self.abort)

    def _take(self, head: bytes) -> None:
        try:
            request = _read_head(head)
        except ValueError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
            return
        if request.method not in _METHODS:
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method}: only GET and HEAD", Allow="GET, HEAD")
            return
        self._begin_answer()
        self._task = self._loop.create_task(self._answer(request))

    def _begin_answer(self) -> None:
        assert self._transport is not None
        self.is_asked = True
        self._head.clear()
        # Whatever else it sends is not read; a client that waits for us to read it is cut off in time.
        self._transport.pause_reading()
        self._limit_time(self._limits.answer_seconds_max)

    def _refuse(self, status: HTTPStatus, reason: str, **headers: str) -> None:
        self._port.report(self, reason)
        self._begin_answer()
        self._task = self._loop.create_task(self._write(Page.of_text(reason, status, **headers), with_body=True))

    async def _answer(self, request: WebRequest) -> None:
        try:
            page = await self._port.answer(request)
        except Exception:
            log.exception("GET %s failed", request.path)
            page = Page.of_text("internal error, see the log of the server", HTTPStatus.INTERNAL_SERVER_ERROR)
        await self._write(page, with_body=request.method == "GET")

    async def _write(self, page: Page, *, with_body: bool) -> None:
        """Write a page and close the connection when the client has read it."""
        head = [
            f"HTTP/1.1 {page.status.value} {page.status.phrase}",
            f"Content-Type: {page.content_type}",
            f"Content-Length: {sum(map(len, page.body))}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
            *[f"{name}: {value}" for name, value in page.headers.items()],
        ]
        for piece in ("\r\n".join([*head, "", ""]).encode(), *(page.body if with_body else ())):
            if self._paused is not None:
                await self._paused
            if self._transport is None:
                return
            self._transport.write(piece)
        self.is_answered = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> asyncio.Task[None] | None:
        """Cut the connection off at once; return the task that was answering, which ends soon."""
        if self._transport is not None:
            self._transport.abort()
        if self._task is not None:
            self._task.cancel()
        return self._task


def _read_head(head: bytes) -> WebRequest:
    """Parse the first line and the headers. Raises ValueError."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != _WORDS or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise ValueError("not an HTTP/1.1 request")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise ValueError("a header is not valid")
        headers[name.lower()] = value.strip()
    return WebRequest(words[0], words[1].partition("?")[0], headers)
