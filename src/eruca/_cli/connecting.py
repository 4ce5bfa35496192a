"""How commands that talk to a cluster find it: `-n`, its variables, and the account from the environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from eruca._net.addresses import check_addresses

if TYPE_CHECKING:
    from eruca._client.options import ClientOptions

DEFAULT_NAMESERVER = "127.0.0.1:9876"
# How long a message, or one question to a server, may take. People wait a little longer than programs.
TIMEOUT_S = 5.0


def add_nameserver_option(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command `-n`, with the variables that set it."""
    return click.option(
        "-n",
        "--namesrv-addr",
        "nameservers",
        metavar="HOST:PORT",
        envvar=["ERUCA_NAMESRV_ADDR", "NAMESRV_ADDR"],
        default=DEFAULT_NAMESERVER,
        callback=lambda _context, _parameter, text: parse_nameservers(text),
        help=f"Name servers, separated by `;` [default: NAMESRV_ADDR or {DEFAULT_NAMESERVER}].",
    )(function)


def parse_nameservers(text: str) -> str:
    """The list as it is, or an error that says what an address looks like."""
    check_addresses("namesrvAddr", text)
    return text


def make_options(nameservers: str) -> ClientOptions:
    """The options of a client for one command; ERUCA_ACCESS_KEY and ERUCA_SECRET_KEY name the account."""
    from eruca._client.options import ClientOptions

    return ClientOptions(nameservers=nameservers, call_timeout=TIMEOUT_S)
