"""A small provider of OpenID Connect for tests: discovery, keys, codes with PKCE, signed ID tokens, user info.

It is ours, because the ones there are to install do not check PKCE or cannot be told to lie. It is strict with the
client: codes are for one use, the verifier, the secret and the redirect have to be right. `lies` changes what it says.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT, SECRET = "console", "a secret: with / and %"


@dataclass
class Code:
    """What a code was given for."""

    redirect: str
    nonce: str
    challenge: str
    subject: str


@dataclass
class Provider:
    """The provider: its key, its users by subject, and who comes next."""

    address: str = ""
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one", "use": "sig"}))
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    subject: str = ""
    codes: dict[str, Code] = field(default_factory=dict)
    # What the discovery, the claims of a token, its signature and the user info become.
    describe: Callable[[dict[str, Any]], dict[str, Any]] = lambda found: found
    claim: Callable[[dict[str, Any]], dict[str, Any]] = lambda claims: claims
    sign: Callable[[Provider, dict[str, Any]], str] | None = None
    inform: Callable[[dict[str, Any]], dict[str, Any]] = lambda claims: claims
    # Claims that are only in the user info.
    apart: tuple[str, ...] = ()
    keys_asked: int = 0
    exchanged: int = 0

    async def discover(self, request: Request) -> Response:
        return JSONResponse(
            self.describe(
                {
                    "issuer": self.address,
                    "authorization_endpoint": f"{self.address}/authorize",
                    "token_endpoint": f"{self.address}/token",
                    "userinfo_endpoint": f"{self.address}/userinfo",
                    "jwks_uri": f"{self.address}/keys",
                    "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
                    "authorization_response_iss_parameter_supported": True,
                }
            )
        )

    async def list_keys(self, request: Request) -> Response:
        self.keys_asked += 1
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    async def authorize(self, request: Request) -> Response:
        """Log the next user in at once, as a provider does that knows the browser."""
        query = request.query_params
        if query["client_id"] != CLIENT or query["response_type"] != "code" or "openid" not in query["scope"]:
            return JSONResponse({"error": "invalid_request"}, 400)
        if query["code_challenge_method"] != "S256" or not query["nonce"]:
            return JSONResponse({"error": "invalid_request"}, 400)
        code = secrets.token_urlsafe()
        self.codes[code] = Code(query["redirect_uri"], query["nonce"], query["code_challenge"], self.subject)
        back = {"code": code, "state": query["state"], "iss": self.address}
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode(back)}", 302)

    async def exchange(self, request: Request) -> Response:
        form = await request.form()
        kind, _, basic = request.headers.get("authorization", "").partition(" ")
        name, _, secret = base64.b64decode(basic).decode().partition(":")
        if (kind, unquote(name), unquote(secret)) != ("Basic", CLIENT, SECRET):
            return JSONResponse({"error": "invalid_client"}, 401)
        code = self.codes.pop(str(form["code"]), None)
        digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if code is None or code.challenge != challenge or code.redirect != form["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        self.exchanged += 1
        now = int(time.time())
        claims = {
            **{name: value for name, value in self.users[code.subject].items() if name not in self.apart},
            "iss": self.address,
            "sub": code.subject,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": code.nonce,
        }
        token = (self.sign or sign)(self, self.claim(claims))
        return JSONResponse({"access_token": code.subject, "token_type": "Bearer", "id_token": token})

    async def tell(self, request: Request) -> Response:
        subject = request.headers["authorization"].removeprefix("Bearer ")
        return JSONResponse(self.inform({**self.users[subject], "sub": subject}))


def sign(provider: Provider, claims: dict[str, Any]) -> str:
    """Return an ID token as it should be."""
    return jwt.encode({"alg": "RS256", "kid": provider.key.kid}, claims, provider.key)


@asynccontextmanager
async def run_provider() -> AsyncIterator[Provider]:
    """Run a provider on a free port."""
    provider = Provider()
    app = Starlette(
        routes=[
            Route("/.well-known/openid-configuration", provider.discover),
            Route("/keys", provider.list_keys),
            Route("/authorize", provider.authorize),
            Route("/token", provider.exchange, methods=["POST"]),
            Route("/userinfo", provider.tell),
        ]
    )
    listening = socket.create_server(("127.0.0.1", 0))
    provider.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
    serving = asyncio.create_task(server.serve([listening]))
    try:
        yield provider
    finally:
        server.should_exit = True
        await serving
