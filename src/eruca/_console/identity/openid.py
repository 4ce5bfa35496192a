"""Log-in through a provider of OpenID Connect: authorization code with PKCE, state and nonce; a verified ID token.

The browser is sent to the provider with a `state`, and comes back with it and a code. A cookie binds the state to the
browser in which the log-in began, so that nobody can be logged in as somebody else. The code is exchanged by us.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import itertools
import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from eruca._console.identity.options import IdentityOptions, require_https
from eruca._console.identity.rights import USER_ROLES, Role
from eruca._ground import limits
from eruca._ground.clock import Clock
from eruca._net.tls import Tls, make_client_context
from eruca._net.waiting import Waiting
from eruca.errors import ConfigError, ConnectFailed, NetError

if TYPE_CHECKING:
    import httpx
    from joserfc.jwk import KeySet

log = logging.getLogger(__name__)

#: Where the provider sends the browser back to.
CALLBACK: Final = "/login/openid/callback"
# Signatures with a public key; never `none`, and never an HMAC, for which a public key would be a secret.
_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_TIMEOUT_S: Final = 10.0
_LOGIN_S: Final = 600.0
_FRESH_S: Final = 3600.0
# Keys are asked for again at most this often, whatever tokens name.
_KEYS_AGAIN_S: Final = 30.0
_CLOCKS_DIFFER_S: Final = 60
_RANDOM_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Proved:
    """Who a provider says that somebody is."""

    issuer: str
    subject: str
    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class _Pending:
    """A log-in that has begun."""

    binding: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    then: str
    until_s: float


@dataclass(frozen=True, slots=True)
class _Provider:
    """What a provider tells about itself."""

    authorize: str
    token: str
    userinfo: str
    keys: str
    algorithms: tuple[str, ...]
    posts_secret: bool
    names_issuer: bool
    until_s: float


class OpenId:
    """Log-ins through one provider. Those under way are kept in memory, in a bounded number."""

    def __init__(self, options: IdentityOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._roles = options.list_oidc_roles()
        self._pending: dict[str, _Pending] = {}
        # The same, by address: nobody ends the log-ins of others by beginning many.
        self._begun: Waiting[str] = Waiting()
        self._client: httpx.AsyncClient | None = None
        self._provider: _Provider | None = None
        self._keys: tuple[KeySet, float] | None = None
        self._asking = asyncio.Lock()

    async def start(self) -> None:
        """Read the CA certificates. The provider is asked when somebody logs in: it may be away when we start."""
        try:
            import httpx
            import joserfc  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                f"OpenID Connect needs a package: {error}", hint='pip install "eruca[console]"'
            ) from error
        # It logs every request, and the addresses of some contain codes.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        tls = Tls(ca=self._options.oidc_trust)
        context = await asyncio.to_thread(make_client_context, tls)
        self._client = httpx.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False, verify=context)

    async def stop(self) -> None:
        """Close the connections to the provider."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def begin(self, then: str, host: str) -> tuple[str, str]:
        """Begin a log-in; returns the address at the provider, and the value of a cookie that binds it to the browser.

        `host` is the address of the browser.

        Raises NetError or ConfigError if the provider cannot be used.
        """
        provider = await self._find_provider()
        state, binding, nonce, verifier = (secrets.token_urlsafe(_RANDOM_BYTES) for _ in range(4))
        now = self._clock.monotonic()
        for late in list(itertools.takewhile(lambda each: self._pending[each].until_s < now, self._pending)):
            self._forget(late)
        if len(self._pending) >= limits.CONSOLE_OIDC_LOGINS_MAX:
            self._forget(self._begun.choose(host) or "")
        self._pending[state] = _Pending(binding, nonce, verifier, then, now + _LOGIN_S)
        self._begun.add(state, host)
        query = {
            "response_type": "code",
            "client_id": self._options.oidc_client,
            "redirect_uri": self._callback,
            "scope": self._options.oidc_scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": _to_text(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        return f"{provider.authorize}{'&' if '?' in provider.authorize else '?'}{urlencode(query)}", binding

    async def finish(self, query: Mapping[str, str], binding: str) -> tuple[Proved, str]:
        """Finish a log-in; returns who it is, and where to go. Raises ConfigError if it is not proved."""
        pending = self._forget(query.get("state", ""))
        if (
            pending is None
            or pending.until_s < self._clock.monotonic()
            or not hmac.compare_digest(pending.binding.encode(), binding.encode("utf-8", "replace"))
        ):
            raise ConfigError("this log-in did not begin in this browser, or too long ago", hint="log in again")
        if "error" in query:
            why = "".join(char for char in query["error"][:80] if char.isprintable())
            raise ConfigError(f"the provider refused the log-in: {why}", hint="log in again, or ask an administrator")
        provider = await self._find_provider()
        issuer = query.get("iss")
        if issuer != self._issuer and (issuer is not None or provider.names_issuer):
            raise ConfigError("the answer is from another provider", hint="log in again")
        tokens = await self._exchange(provider, query.get("code", ""), pending.verifier)
        claims = await self._verify(provider, str(tokens.get("id_token", "")), pending.nonce)
        if find_claim(claims, self._options.oidc_role_claim) is None and provider.userinfo:
            claims = claims | await self._ask_more(provider, str(tokens.get("access_token", "")), str(claims["sub"]))
        return self._identify(claims), pending.then

    def _forget(self, state: str) -> _Pending | None:
        self._begun.discard(state)
        return self._pending.pop(state, None)

    # -- asking the provider -----------------------------------------------------------------------------------------

    @property
    def _issuer(self) -> str:
        return self._options.oidc_issuer

    @property
    def _callback(self) -> str:
        return self._options.url.rstrip("/") + CALLBACK

    async def _find_provider(self) -> _Provider:
        async with self._asking:
            now = self._clock.monotonic()
            if self._provider is None or self._provider.until_s < now:
                address = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
                self._provider = _read_provider(await self._ask("GET", address), self._issuer, now + _FRESH_S)
            return self._provider

    async def _find_keys(self, provider: _Provider, *, again: bool = False) -> KeySet:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        async with self._asking:
            now = self._clock.monotonic()
            age_s = now - self._keys[1] if self._keys is not None else _FRESH_S + 1
            if self._keys is None or age_s > _FRESH_S or (again and age_s > _KEYS_AGAIN_S):
                found = await self._ask("GET", provider.keys)
                try:
                    self._keys = KeySet.import_key_set({"keys": _list_keys(found)}), now
                except (JoseError, ValueError, TypeError, KeyError) as error:
                    raise ConfigError(f"the keys of {self._issuer} cannot be read: {type(error).__name__}") from error
            return self._keys[0]

    async def _exchange(self, provider: _Provider, code: str, verifier: str) -> dict[str, Any]:
        options = self._options
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._callback,
            "code_verifier": verifier,
            "client_id": options.oidc_client,
        }
        if options.oidc_secret and provider.posts_secret:
            form["client_secret"] = options.oidc_secret
        # RFC 6749 wants both encoded first.
        basic = tuple(quote(text, safe="") for text in (options.oidc_client, options.oidc_secret))
        auth = basic if options.oidc_secret and not provider.posts_secret else None
        return await self._ask("POST", provider.token, data=form, auth=auth)

    async def _ask_more(self, provider: _Provider, token: str, subject: str) -> dict[str, Any]:
        found = await self._ask("GET", provider.userinfo, headers={"Authorization": f"Bearer {token}"})
        if found.get("sub") != subject:
            raise ConfigError("the provider described another user", hint="log in again")
        return found

    async def _ask(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        """Return the JSON object that an address of the provider answers, of bounded size. Errors show no code."""
        import httpx

        assert self._client is not None
        where = f"{self._issuer}: {url.partition('?')[0]}"
        try:
            async with asyncio.timeout(_TIMEOUT_S), self._client.stream(method, url, **_drop_none(more)) as answer:
                body = b""
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > limits.CONSOLE_OIDC_BYTES_MAX:
                        raise ConfigError(f"{where} answered more than {limits.CONSOLE_OIDC_BYTES_MAX} bytes")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise ConnectFailed(f"{where} cannot be reached: {type(error).__name__}", hint="is it up?") from error
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if answer.status_code != 200 or not isinstance(found, dict):
            why = found.get("error") if isinstance(found, dict) else None
            raise NetError(f"{where} answered {answer.status_code} {str(why or '')[:80]}".rstrip())
        return found

    # -- believing it ------------------------------------------------------------------------------------------------

    async def _verify(self, provider: _Provider, token: str, nonce: str) -> dict[str, Any]:
        """Return the claims of an ID token: signed by the provider, for us, for this log-in, and not old."""
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError

        try:
            try:
                decoded = jwt.decode(token, await self._find_keys(provider), algorithms=provider.algorithms)
            except (InvalidKeyIdError, ValueError):
                # Providers change their keys.
                keys = await self._find_keys(provider, again=True)
                decoded = jwt.decode(token, keys, algorithms=provider.algorithms)
            claims = dict(decoded.claims)
            jwt.JWTClaimsRegistry(
                now=self._clock.now_ms() // 1000,
                leeway=_CLOCKS_DIFFER_S,
                iss={"essential": True, "value": self._issuer},
                sub={"essential": True},
                aud={"essential": True, "value": self._options.oidc_client},
                exp={"essential": True},
                iat={"essential": True},
            ).validate(claims)
        except (JoseError, ValueError, TypeError) as error:
            log.warning("an ID token of %s was refused: %s", self._issuer, type(error).__name__)
            raise ConfigError("the provider's proof is not valid", hint="log in again; see the log") from error
        is_ours = claims.get("azp", self._options.oidc_client) == self._options.oidc_client
        is_of_this = hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode())
        if not is_ours or not is_of_this or not claims["sub"]:
            raise ConfigError("the provider's proof is for another log-in", hint="log in again")
        return claims

    def _identify(self, claims: Mapping[str, Any]) -> Proved:
        name = find_claim(claims, self._options.oidc_name_claim)
        if not isinstance(name, str) or not name:
            raise ConfigError(
                f"the provider reports no {self._options.oidc_name_claim}", hint="see consoleOidcNameClaim"
            )
        groups = find_claim(claims, self._options.oidc_role_claim)
        role = choose_role(self._roles, groups)
        if role is None:
            raise ConfigError(f"{name[:80]} has no role in this console", hint="see consoleOidcRoles")
        return Proved(self._issuer, str(claims["sub"]), name, role)


def find_claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or by a path of names with dots; None if there is none."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def choose_role(roles: Mapping[str, Role], groups: Any) -> Role | None:
    """Return the strongest role of some groups; None if they have none."""
    named = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    found = [roles[group] for group in ["*", *named] if isinstance(group, str) and group in roles]
    return max(found, key=USER_ROLES.index, default=None)


def _read_provider(found: Mapping[str, Any], issuer: str, until_s: float) -> _Provider:
    if found.get("issuer") != issuer:
        raise ConfigError(
            f"consoleOidcIssuer={issuer}: the provider calls itself {str(found.get('issuer'))[:200]!r}",
            hint="use exactly that",
        )
    urls = {}
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint"):
        url = found.get(name, "")
        if name == "userinfo_endpoint" and not url:
            urls[name] = ""
            continue
        require_https(f"{name} of {issuer}", str(url))
        urls[name] = str(url)
    listed = found.get("id_token_signing_alg_values_supported")
    algorithms = tuple(name for name in _ALGORITHMS if not isinstance(listed, list) or name in listed)
    methods = found.get("token_endpoint_auth_methods_supported")
    return _Provider(
        authorize=urls["authorization_endpoint"],
        token=urls["token_endpoint"],
        userinfo=urls["userinfo_endpoint"],
        keys=urls["jwks_uri"],
        algorithms=algorithms,
        posts_secret=isinstance(methods, list) and "client_secret_basic" not in methods,
        names_issuer=found.get("authorization_response_iss_parameter_supported") is True,
        until_s=until_s,
    )


def _list_keys(found: Mapping[str, Any]) -> list[Any]:
    """Return the keys for signatures, of kinds that are verified with a public key."""
    keys = found.get("keys")
    listed = keys if isinstance(keys, list) else []
    return [
        key
        for key in listed
        if isinstance(key, dict) and key.get("kty") in ("RSA", "EC", "OKP") and key.get("use", "sig") == "sig"
    ]


def _drop_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
