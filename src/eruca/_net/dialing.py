"""Opening one outgoing connection, plain or with TLS, where the certificate has to be for the host connected to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar

from eruca._ground.limits import TLS_GOODBYE_SECONDS
from eruca._net.tls import OutgoingTls, explain_failure
from eruca.errors import ConnectFailed

_Protocol = TypeVar("_Protocol", bound=asyncio.BaseProtocol)


async def dial(
    make_protocol: Callable[[], _Protocol], address: str, tls: OutgoingTls | None, timeout_s: float
) -> _Protocol:
    """Connect to host:port and return the protocol of the connection.

    Raises ConnectFailed with the reason, and ConfigError if a file of `tls` cannot be used.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            if tls is None:
                return (await loop.create_connection(make_protocol, host, int(port)))[1]
            _, protocol = await loop.create_connection(
                make_protocol,
                host,
                int(port),
                ssl=await tls.get_context(),
                server_hostname=host,
                ssl_shutdown_timeout=TLS_GOODBYE_SECONDS,
            )
            return protocol
    except TimeoutError as error:
        raise ConnectFailed("no answer", hint="is it running?") from error
    except ssl.SSLCertVerificationError as error:
        # In the text, because those who gather the failures of several servers leave out their hints.
        why = f"{explain_failure(error)}; check the CA, and whether the certificate is for {host}"
        raise ConnectFailed(why, hint="ca= of Tls, --tls-ca, ERUCA_TLS_CA, tls.client.trustCertPath") from error
    except OSError as error:
        is_refused = tls is None or isinstance(error, ConnectionRefusedError)
        hint = "is it running?" if is_refused else "is it running, and does its port accept TLS?"
        why = f"the TLS handshake failed: {explain_failure(error)}" if isinstance(error, ssl.SSLError) else str(error)
        raise ConnectFailed(why or "the connection was closed", hint=hint) from error
    except (ValueError, OverflowError) as error:
        # A wrong address: a port above 65,535 raises OverflowError in the socket module.
        raise ConnectFailed(str(error), hint="is the address right?") from error
