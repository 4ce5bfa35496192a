"""Ask the server of this container whether it is ready: the health check of the image."""

import http.client
import os
import ssl
import sys
import urllib.error
import urllib.request


def is_ready() -> bool:
    """Ask over plain HTTP first, and over TLS where the port takes nothing else (tls.server.mode=enforcing)."""
    address = f"127.0.0.1:{os.environ['ERUCA_METRICS_PORT']}/readyz"
    # It is this machine, under a name that the certificate does not have.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for scheme in ("http", "https"):
        try:
            with urllib.request.urlopen(f"{scheme}://{address}", timeout=2, context=context) as answer:
                return answer.status == 200
        except urllib.error.HTTPError:
            return False
        except (OSError, http.client.HTTPException):
            continue
    return False


if __name__ == "__main__":
    sys.exit(not is_ready())
