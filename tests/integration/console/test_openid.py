"""Log-in through OpenID Connect, against a provider of ours that is strict, and that lies where a test wants it to."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from eruca._console.identity.openid import OpenId, Proved, choose_role, find_claim
from eruca._console.identity.options import IdentityOptions
from eruca._console.identity.rights import Role
from eruca._ground import limits
from eruca._ground.clock import SystemClock
from eruca._testing.clock import VirtualClock
from eruca.errors import ConfigError, ErucaError, NetError
from tests.integration.console.provider import CLIENT, SECRET, Provider, run_provider, sign

URL = "http://127.0.0.1:8080"
# The address of the browser.
HOST = "10.0.0.7"


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with run_provider() as provider:
        provider.users["17"] = {"preferred_username": "ann", "groups": ["staff", "on-call"]}
        provider.subject = "17"
        yield provider


def make_options(provider: Provider, **more: Any) -> IdentityOptions:
    facts = {
        "url": URL,
        "oidc_issuer": provider.address,
        "oidc_client": CLIENT,
        "oidc_secret": SECRET,
        "oidc_roles": "admins=admin; on-call=operator; staff=viewer",
    }
    return IdentityOptions(**{**facts, **more})


@pytest.fixture
async def openid(provider: Provider) -> AsyncIterator[OpenId]:
    openid = OpenId(make_options(provider), SystemClock())
    await openid.start()
    yield openid
    await openid.stop()


async def visit(address: str) -> dict[str, str]:
    """Do what a browser does; return what it brings back."""
    async with httpx.AsyncClient() as browser:
        answer = await browser.get(address)
    assert answer.status_code == 302, answer.text
    back = answer.headers["location"]
    assert back.startswith(f"{URL}/login/openid/callback?")
    return dict(parse_qsl(urlsplit(back).query))


async def log_in(openid: OpenId) -> Proved:
    address, binding = await openid.begin("/", HOST)
    return (await openid.finish(await visit(address), binding))[0]


async def test_a_user_logs_in(openid: OpenId, provider: Provider) -> None:
    address, binding = await openid.begin("/c/x/topics", HOST)
    query = await visit(address)
    assert await openid.finish(query, binding) == (
        Proved(provider.address, "17", "ann", Role.OPERATOR),
        "/c/x/topics",
    )
    # The answer is good for once.
    with pytest.raises(ConfigError, match="did not begin"):
        await openid.finish(query, binding)
    assert provider.exchanged == 1


async def test_the_strongest_role_counts_and_without_one_there_is_no_log_in(openid: OpenId, provider: Provider) -> None:
    good: list[tuple[Any, Role]] = [("staff", Role.VIEWER), (["admins", "staff"], Role.ADMIN)]
    for groups, role in good:
        provider.users["17"]["groups"] = groups
        assert (await log_in(openid)).role is role
    bad: list[Any] = [[], ["others"], None, 7, {"admins": True}, [["admins"]]]
    for groups in bad:
        provider.users["17"]["groups"] = groups
        with pytest.raises(ConfigError, match="no role"):
            await log_in(openid)


async def test_groups_may_be_in_the_user_info(openid: OpenId, provider: Provider) -> None:
    provider.apart = ("groups",)
    assert (await log_in(openid)).role is Role.OPERATOR
    provider.inform = lambda claims: {**claims, "sub": "18", "groups": ["admins"]}
    with pytest.raises(ConfigError, match="another user"):
        await log_in(openid)


async def test_an_answer_is_for_the_browser_that_began(openid: OpenId, provider: Provider) -> None:
    address, binding = await openid.begin("/", HOST)
    other, _ = await openid.begin("/", HOST)
    for query, cookie in (
        (await visit(address), ""),
        (await visit(other), binding),
        ({"code": "x"}, binding),
        ({"code": "x", "state": "x"}, binding),
        ({}, "ü"),
    ):
        with pytest.raises(ConfigError, match="did not begin"):
            await openid.finish(query, cookie)
    assert provider.exchanged == 0


async def test_a_code_of_someone_else_is_worthless(openid: OpenId, provider: Provider) -> None:
    """An attacker's code in the victim's answer: its verifier is not known here."""
    address, binding = await openid.begin("/", HOST)
    mine = await visit(address)
    theirs = await visit((await openid.begin("/", HOST))[0])
    with pytest.raises(NetError, match="invalid_grant"):
        await openid.finish({**mine, "code": theirs["code"]}, binding)


async def test_a_provider_can_refuse(openid: OpenId) -> None:
    address, binding = await openid.begin("/", HOST)
    state = (await visit(address))["state"]
    with pytest.raises(ConfigError, match="access_denied<b>") as caught:
        await openid.finish({"state": state, "error": "access_denied<b>\r\n" + "x" * 1000}, binding)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


async def test_an_answer_of_another_provider_is_refused(openid: OpenId, provider: Provider) -> None:
    """Mix-up: RFC 9207."""
    for issuer in ("https://evil.example", None):
        address, binding = await openid.begin("/", HOST)
        query = await visit(address)
        query.pop("iss")
        with pytest.raises(ConfigError, match="another provider"):
            await openid.finish(query if issuer is None else {**query, "iss": issuer}, binding)
    assert provider.exchanged == 0


CLAIMS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "of another issuer": lambda claims: {**claims, "iss": "https://evil.example"},
    "for another client": lambda claims: {**claims, "aud": "other"},
    "for others too, and presented by one of them": lambda claims: {**claims, "aud": [CLIENT, "x"], "azp": "x"},
    "expired": lambda claims: {**claims, "exp": int(time.time()) - 61},
    "from the future": lambda claims: {**claims, "iat": int(time.time()) + 3600},
    "not valid yet": lambda claims: {**claims, "nbf": int(time.time()) + 3600},
    "of another log-in": lambda claims: {**claims, "nonce": "x"},
    "without nonce": lambda claims: {name: value for name, value in claims.items() if name != "nonce"},
    "without expiry": lambda claims: {name: value for name, value in claims.items() if name != "exp"},
    "without audience": lambda claims: {name: value for name, value in claims.items() if name != "aud"},
    "without subject": lambda claims: {name: value for name, value in claims.items() if name != "sub"},
    "with an empty subject": lambda claims: {**claims, "sub": ""},
}


@pytest.mark.parametrize("what", CLAIMS)
async def test_a_token_that_is_not_for_this_log_in_is_refused(openid: OpenId, provider: Provider, what: str) -> None:
    provider.claim = CLAIMS[what]
    with pytest.raises(ConfigError, match="proof"):
        await log_in(openid)


def sign_with_another_key(provider: Provider, claims: dict[str, Any]) -> str:
    key = RSAKey.generate_key(2048, {"kid": "one"})
    return jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key)


def sign_with_the_public_key(provider: Provider, claims: dict[str, Any]) -> str:
    head = {"alg": "HS256", "kid": provider.key.kid}
    text = ".".join(_to_text(json.dumps(part).encode()) for part in (head, claims))
    return f"{text}.{_to_text(hmac.digest(provider.key.as_pem(private=False), text.encode(), 'sha256'))}"


def _to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign_with_an_own_key(provider: Provider, claims: dict[str, Any]) -> str:
    """The key is in the header of the token."""
    key = RSAKey.generate_key(2048)
    header = {"alg": "RS256", "jwk": key.as_dict(private=False)}
    return jwt.encode(header, claims, key)


def sign_with_nothing(provider: Provider, claims: dict[str, Any]) -> str:
    whole = sign(provider, claims).split(".")
    return f"eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{whole[1]}."


def change_after_signing(provider: Provider, claims: dict[str, Any]) -> str:
    head, _, signature = sign(provider, claims).split(".")
    payload = sign(provider, {**claims, "groups": ["admins"]}).split(".")[1]
    return f"{head}.{payload}.{signature}"


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")
@pytest.mark.parametrize(
    "how",
    [
        sign_with_another_key,
        sign_with_the_public_key,
        sign_with_an_own_key,
        sign_with_nothing,
        change_after_signing,
        lambda provider, claims: "",
        lambda provider, claims: "a.b.c",
        lambda provider, claims: "." * 1000,
    ],
)
async def test_a_forged_token_is_refused(openid: OpenId, provider: Provider, how: Any) -> None:
    provider.sign = how
    with pytest.raises(ConfigError, match="proof is not valid"):
        await log_in(openid)
    provider.sign = None
    assert (await log_in(openid)).name == "ann"


async def test_a_new_key_of_the_provider_is_found_and_keys_are_not_asked_for_all_the_time(provider: Provider) -> None:
    clock = VirtualClock(time.time_ns() // 1_000_000)
    openid = OpenId(make_options(provider), clock)
    await openid.start()
    try:
        await log_in(openid)
        provider.key = RSAKey.generate_key(2048, {"kid": "two", "use": "sig"})
        for _ in range(3):
            with pytest.raises(ConfigError, match="proof"):
                await log_in(openid)
        assert provider.keys_asked == 1
        clock.advance(31_000)
        assert (await log_in(openid)).name == "ann"
        assert provider.keys_asked == 2
    finally:
        await openid.stop()


async def test_a_log_in_that_takes_too_long_is_refused(provider: Provider) -> None:
    clock = VirtualClock(time.time_ns() // 1_000_000)
    openid = OpenId(make_options(provider), clock)
    await openid.start()
    try:
        address, binding = await openid.begin("/", HOST)
        clock.advance(600_001)
        with pytest.raises(ConfigError, match="too long ago"):
            await openid.finish(await visit(address), binding)
    finally:
        await openid.stop()


async def test_log_ins_under_way_are_bounded(openid: OpenId, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one address end none of others."""
    monkeypatch.setattr(limits, "CONSOLE_OIDC_LOGINS_MAX", 10)
    first = await openid.begin("/", HOST)
    for _ in range(100):
        last = await openid.begin("/", "10.0.0.8")
    assert len(openid._pending) == len(openid._begun) == 10
    for address, binding in (first, last):
        assert (await openid.finish(await visit(address), binding))[0].name == "ann"
    assert len(openid._pending) == len(openid._begun) == 8


@pytest.mark.parametrize(
    "describe",
    [
        lambda found: {**found, "issuer": "https://evil.example"},
        lambda found: {**found, "token_endpoint": "http://evil.example/token"},
        lambda found: {**found, "jwks_uri": "file:///etc/passwd"},
        lambda found: {**found, "authorization_endpoint": "javascript:alert(1)"},
        lambda found: {},
        lambda found: {**found, "more": "x" * limits.CONSOLE_OIDC_BYTES_MAX},
    ],
)
async def test_a_provider_that_cannot_be_trusted_is_refused(openid: OpenId, provider: Provider, describe: Any) -> None:
    provider.describe = describe
    with pytest.raises(ErucaError):
        await openid.begin("/", HOST)


async def test_a_provider_that_is_away_is_an_error_that_says_so(
    openid: OpenId, provider: Provider, tmp_path: Path
) -> None:
    away = OpenId(make_options(provider, oidc_issuer="http://127.0.0.1:9"), SystemClock())
    await away.start()
    try:
        with pytest.raises(NetError, match="cannot be reached"):
            await away.begin("/", HOST)
    finally:
        await away.stop()


def test_a_claim_may_be_within_others() -> None:
    claims = {"realm_access": {"roles": ["a"]}, "a.b": 1}
    assert find_claim(claims, "realm_access.roles") == ["a"] and find_claim(claims, "a.b") == 1
    assert find_claim(claims, "realm_access.roles.x") is None and find_claim(claims, "x") is None
    assert choose_role({"*": Role.VIEWER, "a": Role.ADMIN}, []) is Role.VIEWER


@pytest.mark.parametrize(
    "facts",
    [
        {"oidc_issuer": "http://id.example"},
        {"oidc_issuer": "https://user:secret@id.example"},
        {"oidc_issuer": "https://id.example", "url": ""},
        {"oidc_issuer": "https://id.example", "oidc_client": ""},
        {"oidc_issuer": "https://id.example", "oidc_roles": ""},
        {"oidc_issuer": "https://id.example", "oidc_roles": "admins"},
        {"oidc_issuer": "https://id.example", "oidc_roles": "admins=root"},
        {"url": "ftp://x"},
    ],
)
def test_options_that_do_not_fit_are_refused(facts: dict[str, str]) -> None:
    good = {"url": URL, "oidc_client": CLIENT, "oidc_roles": "*=viewer"}
    with pytest.raises(ConfigError) as caught:
        IdentityOptions(**{**good, **facts})  # type: ignore[arg-type]
    assert "secret@" not in str(caught.value)


def test_the_client_secret_is_not_shown() -> None:
    assert SECRET not in repr(IdentityOptions(oidc_secret=SECRET))
