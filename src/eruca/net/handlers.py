"""Handler tables: from a request code to the typed function that answers it.

A handler of this kind sees a `Request` (typed header and body, as the catalog declares them) and gives a `Reply`, or
None for no answer, or something to wait for. It refuses by raising RequestRefused. Codes so hot that decoding their
body by the catalog is too slow are registered raw.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from eruca.errors import RequestRefused
from eruca.net.link import Answer, Handler, Link
from eruca.wire.catalog import RequestSpec, Right, decode_request, encode_answer_body, find_spec
from eruca.wire.codes import RequestCode, ResponseCode
from eruca.wire.ext import Header
from eruca.wire.frame import Command, encode_command


@dataclass(slots=True)
class Request:
    """One request as a handler sees it."""

    link: Link
    command: Command
    # Typed as the catalog declares them; None when the peer sent none.
    header: Any
    body: Any


@dataclass(slots=True)
class Reply:
    """What a handler answers; the body is typed as the catalog declares it, or bytes."""

    header: Header | None = None
    body: Any = None
    code: int = ResponseCode.SUCCESS
    remark: str | None = None


Result: TypeAlias = Reply | Awaitable[Reply | None] | None
TypedHandler: TypeAlias = Callable[[Request], Result]
# May raise RequestRefused: does the sender have the right that the catalog says a request needs?
Authorize: TypeAlias = Callable[[Link, Command, Right], None]


class HandlerTable:
    """The handlers of one server."""

    def __init__(self, authorize: Authorize | None = None) -> None:
        self.handlers: dict[int, Handler] = {}
        self._authorize = authorize

    def add(self, code: RequestCode, handler: TypedHandler) -> None:
        """Answer a code with a typed handler."""
        spec = find_spec(code)
        if spec.right is Right.NOBODY:
            raise ValueError(f"the catalog says nobody may send {code.name}")
        self.handlers[code] = self._guard(spec, _adapt(spec, handler))

    def add_raw(self, code: RequestCode, handler: Handler) -> None:
        """Answer a code with a handler that decodes the command itself."""
        self.handlers[code] = self._guard(find_spec(code), handler)

    def _guard(self, spec: RequestSpec, handler: Handler) -> Handler:
        authorize = self._authorize
        if authorize is None:
            return handler

        def guarded(link: Link, command: Command) -> Answer:
            authorize(link, command, spec.right)
            return handler(link, command)

        return guarded


def _adapt(spec: RequestSpec, handler: TypedHandler) -> Handler:
    def adapted(link: Link, command: Command) -> Answer:
        header, body = decode_request(command)
        if header is None and spec.header.__struct_fields__:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{spec.header.__name__}: extFields is missing")
        result = handler(Request(link, command, header, body))
        if result is None:
            return None
        if isinstance(result, Reply):
            return encode_reply(command, result, header)
        return _await_reply(command, result, header)

    return adapted


async def _await_reply(command: Command, result: Awaitable[Reply | None], header: Header | None) -> bytes | None:
    reply = await result
    return None if reply is None else encode_reply(command, reply, header)


def encode_reply(command: Command, reply: Reply, request_header: Header | None = None) -> bytes:
    """Encode the answer to a request as its sender can read it."""
    body = reply.body
    if body is None:
        data = b""
    elif isinstance(body, bytes):
        data = body
    else:
        data = encode_answer_body(command.code, body, request_header, version=command.version)
    return encode_command(command.answer(int(reply.code), reply.header, data, remark=reply.remark))


def refuse_unknown(link: Link, command: Command) -> bytes | None:
    """Refuse a code nobody here handles, as a Java broker and client do."""
    remark = f" request type {command.code} not supported"
    return encode_command(command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark))


def ignore_unknown(link: Link, command: Command) -> bytes | None:
    """Say nothing to a code nobody here handles, as a Java name server does."""
    return None


def expect_success(answer: Command) -> Command:
    """Give a successful answer back, or raise what it refused."""
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(answer.code, answer.remark or f"code {answer.code}")
    return answer
