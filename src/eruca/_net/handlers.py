"""Handler tables: from a request code to the typed function that handles it.

A typed handler gets a `Request` (typed header and body, as the catalog declares them) and returns a `Reply`, or None
for no response, or an awaitable. It refuses by raising RequestRefused. Codes so frequent that decoding their body by
the catalog is too slow are registered raw.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from eruca._ground.limits import BODY_BYTES_AT_ONCE, JSON_BODY_BYTES_MAX, JSON_BODY_OBJECTS_MAX
from eruca._net.answers import InOrder
from eruca._net.apart import run_apart
from eruca._net.link import Answer, Handler, Link, ShortAnswer
from eruca._net.turns import find_turns
from eruca._wire.bodies import JsonBody, decode_json
from eruca._wire.catalog import RequestSpec, Right, decode_request, encode_answer_body, find_spec
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.ext import Header
from eruca._wire.frame import Command, encode_command
from eruca.errors import RequestRefused


@dataclass(slots=True)
class Request:
    """One request as passed to a handler."""

    link: Link
    command: Command
    # Typed as the catalog declares them; None if the peer sent none.
    header: Any
    body: Any


@dataclass(slots=True)
class Reply:
    """The response of a handler; the body is typed as the catalog declares it, or bytes."""

    header: Header | None = None
    body: Any = None
    code: int = ResponseCode.SUCCESS
    remark: str | None = None


Result: TypeAlias = Reply | Awaitable[Reply | None] | None
TypedHandler: TypeAlias = Callable[[Request], Result]
Body = TypeVar("Body", bound=JsonBody)
# Raises RequestRefused if the sender lacks the right that the catalog declares for a request.
Authorize: TypeAlias = Callable[[Link, Command, RequestSpec], None]


class HandlerTable:
    """The handlers of one server."""

    def __init__(self, authorize: Authorize | None = None) -> None:
        self.handlers: dict[int, Handler] = {}
        #: Whether requests need an account.
        self.has_accounts = authorize is not None
        self._authorize = authorize

    def add(self, code: RequestCode, handler: TypedHandler) -> None:
        """Register a typed handler for a code."""
        self.add_raw(code, _adapt(find_spec(code), handler))

    def add_long(self, code: RequestCode, handler: Callable[[Request], Awaitable[Reply | None]]) -> None:
        """Register a typed handler that processes much data and builds a large response.

        Each connection runs one such request at a time, and all connections together a few.
        """

        async def answer(request: Request) -> Reply | None:
            async with find_turns(asyncio.get_running_loop()).few:
                return await handler(request) if request.link.is_open else None

        self.add(code, lambda request: InOrder(answer(request)))

    def add_raw(self, code: RequestCode, handler: Handler) -> None:
        """Register a handler that decodes the command itself. Raises ValueError for a code that declares no right."""
        spec = find_spec(code)
        if spec.right is Right.NOBODY:
            raise ValueError(f"the catalog does not allow requests with {code!r}")
        self.handlers[code] = handler if self._authorize is None else _guard(spec, handler, self._authorize)


class Handlers(Protocol):
    """An object that handles some codes."""

    def register(self, table: HandlerTable) -> None:
        """Register the handlers."""


def _guard(spec: RequestSpec, handler: Handler, authorize: Authorize) -> Handler:
    """Put the check of rights before a handler."""
    has_names_in_body = spec.concerns.in_body is not None

    async def answer_large(link: Link, command: Command) -> Any:
        await run_apart(authorize, link, command, spec)
        answer = handler(link, command)
        return await answer if isinstance(answer, Awaitable) else answer

    def guarded(link: Link, command: Command) -> Answer:
        if len(command.body) > BODY_BYTES_AT_ONCE:
            # A signature covers the body: a millisecond for each megabyte.
            link.need_time()
            if has_names_in_body:
                _check_body(command.body)
                return InOrder(answer_large(link, command))
        authorize(link, command, spec)
        return handler(link, command)

    return guarded


def _adapt(spec: RequestSpec, handler: TypedHandler) -> Handler:
    has_body = spec.body is not None

    def answer(link: Link, command: Command, header: Header | None, body: Any) -> ShortAnswer:
        if header is None and spec.header.__struct_fields__:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{spec.header.__name__}: extFields is missing")
        result = handler(Request(link, command, header, body))
        if result is None:
            return None
        if isinstance(result, Reply):
            return encode_reply(command, result, header)
        reply = _await_reply(command, result, header)
        return InOrder(reply) if isinstance(result, InOrder) else reply

    async def answer_large(link: Link, command: Command) -> bytes | None:
        header, body = await run_apart(decode_request, command)
        later = answer(link, command, header, body)
        return later if later is None or isinstance(later, bytes) else await later

    def adapted(link: Link, command: Command) -> Answer:
        link.need_time()
        if has_body and len(command.body) > BODY_BYTES_AT_ONCE:
            _check_body(command.body)
            return InOrder(answer_large(link, command))
        return answer(link, command, *decode_request(command))

    return adapted


def _check_body(body: bytes) -> None:
    """Refuse a body that would take too long, or too much memory, to decode on the loop."""
    if len(body) > JSON_BODY_BYTES_MAX:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"the body has {len(body)} bytes, the maximum is {JSON_BODY_BYTES_MAX}"
        )
    if (count := body.count(b"{")) > JSON_BODY_OBJECTS_MAX:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"the body has {count} objects, the maximum is {JSON_BODY_OBJECTS_MAX}"
        )


async def _await_reply(command: Command, result: Awaitable[Reply | None], header: Header | None) -> bytes | None:
    reply = await result
    return None if reply is None else encode_reply(command, reply, header)


async def decode_apart(kind: type[Body], body: bytes) -> Body:
    """Decode what a client answered in a thread. Raises WireError, and RequestRefused beyond the limits of requests."""
    _check_body(body)
    return await run_apart(decode_json, kind, body)


async def encode_apart(request: Request, body: Any) -> bytes:
    """Encode the body of a large response in a thread; it must not change meanwhile."""
    code, version = request.command.code, request.command.version
    return await run_apart(encode_answer_body, code, body, request.header, version=version)


def encode_reply(command: Command, reply: Reply, request_header: Header | None = None) -> bytes:
    """Encode the response to a request in the format of its sender."""
    body = reply.body
    if body is None:
        data = b""
    elif isinstance(body, bytes):
        data = body
    else:
        data = encode_answer_body(command.code, body, request_header, version=command.version)
    return encode_command(command.answer(int(reply.code), reply.header, data, remark=reply.remark))


def refuse_unknown(link: Link, command: Command) -> bytes | None:
    """Refuse a code without a handler, as a Java broker and client do."""
    remark = f" request type {command.code} not supported"
    return encode_command(command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark))


def ignore_unknown(link: Link, command: Command) -> bytes | None:
    """Send no response to a code without a handler, as a Java name server does."""
    return None


def expect_success(answer: Command) -> Command:
    """Return a successful response, or raise its refusal."""
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(answer.code, answer.remark or f"code {answer.code}")
    return answer
