"""What the peers of a server may use, as options that every server has."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._ground import limits
from eruca._ground.config import option


@dataclass(frozen=True)
class LimitOptions:
    """Limits for the connections of a server. Without slots, so that options of servers can have several such bases."""

    connections_max: int = option(
        limits.CONNECTIONS_MAX,
        "serverMaxConnections",
        "maximum number of open connections; further ones are told so and closed, or with accounts the oldest one that "
        "never authenticated",
        low=1,
        high=limits.CONNECTIONS_CEILING,
        mutable=True,
    )
    connections_per_address_max: int = option(
        limits.CONNECTIONS_PER_ADDRESS_MAX,
        "serverMaxConnectionsPerAddress",
        "maximum number of open connections from one address; an IPv6 network of 64 bits counts as one address",
        low=1,
        high=limits.CONNECTIONS_CEILING,
        mutable=True,
    )
    refusals_per_second_max: int = option(
        limits.REFUSALS_PER_SECOND_MAX,
        "serverMaxAnonymousRequests",
        "maximum number of refused requests per second from one address on connections that never authenticated, or "
        "whose last signature was wrong; has an effect only with accounts",
        unit="requests/s",
        low=1,
        mutable=True,
    )
    frame_seconds_max: int = option(
        limits.FRAME_SECONDS_MAX,
        "serverMaxFrameSeconds",
        "a connection is closed when one request takes longer than this to arrive",
        unit="s",
        low=1,
        high=86_400,
        mutable=True,
    )
    unread_bytes_max: int = option(
        limits.UNSENT_BYTES_MAX,
        "serverMaxUnreadBytes",
        "a connection whose peer leaves more than this unread is closed",
        unit="bytes",
        low=limits.UNSENT_BYTES_PAUSE,
        high=limits.OPTION_MAX,
    )
    held_bytes_max: int = option(
        0,
        "serverMaxHeldBytes",
        "maximum memory for unread responses, unfinished and waiting requests of all connections of the process; above "
        "it the largest connection of the account or address that holds most is closed; 0: a sixteenth of the "
        "machine's memory, from 64 to 256 MiB",
        unit="bytes",
        low=0,
        high=2**40,
    )
