"""The console: every route without log-in, with too weak a user, with a forged token, from elsewhere.

The routes are those of the table that the console is built from, so none can be forgotten.
"""

from __future__ import annotations

import asyncio
import csv
import http.client
import io
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from blockbuster import BlockBuster
from starlette.responses import PlainTextResponse

from eruca._console.app import guard
from eruca._console.identity.origins import Origins
from eruca._console.identity.rights import Need, Role, read_grants
from eruca._console.pages.routing import Route
from eruca._console.routes import ROUTES
from eruca._testing.clock import VirtualClock
from tests.integration.broker.conftest import excuse_new_files
from tests.security.consoles import CLUSTER, PASSWORD, Browser, Running, run_console

#: Those that visitors need before they log in. A route that is added to this list needs a reason.
PUBLIC = {"/login", "/login/openid", "/login/openid/callback", "/language/{language}"}
#: Those that work while the one-time password is still to be replaced.
LOGGED_IN = {"/logout", "/password", "/api", "/api/session", "/api/openapi.json"}
#: POSTs for which a look is enough: what they change belongs to the user.
OWN_AFFAIRS = {"/c/{cluster}/topics/{topic}/favourite", "/c/{cluster}/messages/filters"}


@pytest.fixture(autouse=True)
def allow_new_files(forbid_blocking_calls: BlockBuster) -> None:
    """Let the console make its file."""
    excuse_new_files(forbid_blocking_calls)


@pytest.fixture
async def recording(tmp_path: Path) -> AsyncIterator[Running]:
    """A console whose handlers only note that they were called."""
    async with run_console(tmp_path / "console", records=True) as running:
        yield running


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with run_console(tmp_path / "console", clock=VirtualClock(time.time_ns() // 1_000_000)) as running:
        yield running


def fill(route: Route, **values: str) -> str:
    """Return a path of a route."""
    known = {"cluster": CLUSTER, "language": "en", **values}
    return re.sub(r"{(\w+)(:\w+)?}", lambda found: known.get(found[1], "1"), route.path)


def list_requests() -> list[tuple[Route, str, str]]:
    """Return each route with each of its methods: the route, the method and the path; those of the API too."""
    found = []
    for route in ROUTES:
        paths = [fill(route)]
        if route.in_api and route.path.startswith("/c/"):
            paths.append(f"/api{fill(route)}")
        found += [(route, method, path) for path in paths for method in route.methods]
    return found


REQUESTS = list_requests()


async def send(browser: Browser, method: str, path: str, **more: object) -> httpx.Response:
    """Send a request, with the token if it is a POST."""
    if method == "POST":
        return await browser.post(path, **more)  # type: ignore[arg-type]
    return await browser.client.request(method, path, **more)  # type: ignore[arg-type]


# -- every route -----------------------------------------------------------------------------------------------------


def test_the_routes_that_need_no_log_in_are_those_of_the_list() -> None:
    assert {route.path for route in ROUTES if route.need is Need.PUBLIC} == PUBLIC
    assert {route.path for route in ROUTES if route.need is Need.LOGGED_IN} == LOGGED_IN


def test_whatever_changes_something_needs_more_than_a_look() -> None:
    """A POST needs an operator, except for a user's own affairs."""
    weak = {route.path for route in ROUTES if "POST" in route.methods and route.need < Need.OPERATE}
    assert weak - LOGGED_IN - {"/login"} == OWN_AFFAIRS


def test_every_name_in_a_path_is_declared() -> None:
    """A topic or a group in a path is checked against the rights by prefix, so the route says that it is one."""
    for route in ROUTES:
        for kind in ("topic", "group"):
            if f"{{{kind}}}" in route.path:
                assert route.names.get(kind) == kind, route.path


async def test_nobody_gets_in_without_log_in(recording: Running) -> None:
    browser = await recording.open_browser()
    for route, method, path in REQUESTS:
        if route.path in PUBLIC:
            continue
        for headers in ({}, {"cookie": "eruca_session=" + "x" * 43}, {"hx-request": "true"}):
            answer = await send(browser, method, path, headers=headers)
            where = (method, path, answer.status_code)
            if path.startswith("/api/c/"):
                assert answer.status_code == 401, where
            elif "hx-request" in headers:
                assert answer.headers["hx-redirect"].startswith("/login"), where
            else:
                assert (answer.status_code, answer.headers["location"][:6]) == (303, "/login"), where
    assert recording.called == []


async def test_a_one_time_password_opens_nothing_but_the_choice_of_another(recording: Running) -> None:
    assert recording.console.first_password is not None
    browser = await recording.open_browser()
    await browser.log_in("admin", recording.console.first_password)
    for route, method, path in REQUESTS:
        if route.path in PUBLIC | LOGGED_IN:
            continue
        answer = await send(browser, method, path)
        assert answer.status_code == 401 or answer.headers["location"] == "/password", (method, path)
    assert recording.called == []


@pytest.mark.parametrize(("role", "reach"), [(Role.VIEWER, Need.VIEW), (Role.OPERATOR, Need.OPERATE)])
async def test_a_user_reaches_what_the_role_allows_and_nothing_else(
    recording: Running, role: Role, reach: Need
) -> None:
    browser = await recording.log_in("ann", role)
    for route, method, path in REQUESTS:
        if route.path in PUBLIC | LOGGED_IN:
            continue
        recording.called.clear()
        answer = await send(browser, method, path)
        allowed = route.need <= reach
        assert answer.status_code == (200 if allowed else 403), (method, path, answer.status_code)
        assert bool(recording.called) is allowed


async def test_an_administrator_reaches_everything(recording: Running) -> None:
    browser = await recording.log_in_first()
    for route, method, path in REQUESTS:
        if route.path in PUBLIC | LOGGED_IN:
            continue
        recording.called.clear()
        assert (await send(browser, method, path)).status_code == 200, (method, path)
        assert recording.called == [(method, route.path, "api" if path.startswith("/api/c/") else "page")]


async def test_a_prefix_without_access_hides_every_route_about_it(recording: Running) -> None:
    grants = read_grants("topic secret none\ngroup secret none")
    browser = await recording.log_in("ann", Role.OPERATOR, grants)
    count = 0
    for route, method, _ in REQUESTS:
        for name in route.names:
            count += 1
            # Handlers of forms and searches remove blanks around a name.
            hidden, values = ["secret-1", " secret-1", "\tsecret-1", "%DLQ%secret-1", "%RETRY%secret"], {name: "open"}
            for each in hidden if route.names[name] == "topic" else hidden[:3]:
                inside = f"{{{name}}}" in route.path
                path = fill(route, **{name: quote(each)} if inside else values)
                recording.called.clear()
                form = {} if inside else {name: each}
                if method == "POST":
                    answer = await browser.post(path, form)
                else:
                    answer = await browser.get(path, params=form)
                assert (answer.status_code, recording.called) == (403, []), (method, path, form)
                # Nor among several values of which the others are allowed.
                if not inside and method == "POST":
                    several = [("csrf", browser.token), (name, "open"), (name, each)]
                    body = "&".join(
                        f"{key}={httpx.QueryParams({'v': text})}".replace("v=", "") for key, text in several
                    )
                    answer = await browser.client.post(
                        path, content=body, headers={"content-type": "application/x-www-form-urlencoded"}
                    )
                    assert (answer.status_code, recording.called) == (403, []), (method, path, several)
    assert count > 5


async def test_a_prefix_with_more_rights_opens_only_what_is_below_it(recording: Running) -> None:
    browser = await recording.log_in("ann", Role.VIEWER, read_grants("topic shop operator\ngroup shop operator"))
    for route, method, _ in REQUESTS:
        if route.need is not Need.OPERATE or set(route.names) != set(re.findall(r"{(topic|group)}", route.path)):
            continue
        for name, status in (("shop-1", 200), ("bank-1", 403)) if route.names else (("", 403),):
            path = fill(route, **dict.fromkeys(route.names, name))
            assert (await send(browser, method, path)).status_code == status, (method, path)


# -- forged requests -------------------------------------------------------------------------------------------------


async def test_a_post_needs_the_token_of_its_session(recording: Running) -> None:
    browser = await recording.log_in_first()
    other = await recording.log_in("other", Role.ADMIN)
    visitor = await (await recording.open_browser()).read_token("/login")
    forged = ["", "x", "0" * 64, browser.token[:-1], browser.token.upper(), other.token, visitor, browser.session]
    for _, method, path in REQUESTS:
        if method != "POST":
            continue
        client = browser.client
        for token in forged:
            answers = [
                await client.post(path, data={"csrf": token}),
                await client.post(path, headers={"x-csrf-token": token}),
                # Only the first value counts, and the query does not.
                await client.post(f"{path}?csrf={browser.token}", data={"csrf": token}),
                await client.post(path, json={"csrf": token}),
            ]
            assert {answer.status_code for answer in answers} == {403}, (path, token)
    assert recording.called == []
    assert (await browser.post("/users/new")).status_code == 200


async def test_a_post_from_elsewhere_is_refused_even_with_the_token(recording: Running) -> None:
    browser = await recording.log_in_first()
    for _, method, path in REQUESTS:
        if method == "POST":
            for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
                assert (await browser.post(path, headers=headers)).status_code == 403, (path, headers)
    assert recording.called == []
    assert (await browser.post("/users/new", headers={"origin": recording.address})).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 900 + b"]" * 900,
        b"[" * 100_000,
        b'{"user": "\\ud800"}',
        b'{"user": 1' + b"0" * 5000 + b"}",
        b'{"user"',
        b"\xff\xfe",
        b"null",
        b"5",
    ],
)
async def test_json_that_nobody_can_read_is_refused(recording: Running, body: bytes) -> None:
    """Also before the log-in, where everybody can send it."""
    browser, stranger = await recording.log_in_first(), await recording.open_browser()
    headers = {"content-type": "application/json", "x-csrf-token": browser.token}
    for who, path in ((stranger, "/login"), (browser, "/password"), (browser, "/users/new")):
        answer = await who.client.post(path, content=body, headers=headers)
        # A log-in is not that long.
        wanted = 413 if len(body) > 16 * 1024 and path != "/users/new" else 400
        assert answer.status_code == wanted, (path, body[:20], answer.status_code)
    assert recording.called == []


async def test_methods_that_are_not_declared_do_nothing(recording: Running) -> None:
    """HEAD is GET without a body, never a POST without its token."""
    browser = await recording.log_in_first()
    for route, _, path in REQUESTS:
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            headers = {"x-csrf-token": browser.token}
            answer = await browser.client.request(method, path, headers=headers)
            assert answer.status_code == 405, (method, path)
        if "GET" not in route.methods:
            assert (await browser.client.head(path)).status_code == 404, path
        elif route.path not in PUBLIC | LOGGED_IN:
            recording.called.clear()
            await browser.client.head(path)
            assert [method for method, _, _ in recording.called] == ["GET"], path


async def test_a_name_of_someone_else_leads_nowhere(recording: Running) -> None:
    """DNS rebinding: a name of the attacker's resolves to this address."""
    browser = await recording.log_in_first()
    for path in ("/", "/login", "/static/console.css", "/users", "/none"):
        for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example"):
            answer = await browser.get(path, headers={"host": host})
            assert answer.status_code == 403 and "consoleHosts" in answer.text, (path, host)
    assert recording.called == []


# -- log-in ----------------------------------------------------------------------------------------------------------


async def test_a_session_cannot_be_fixed_before_the_log_in(running: Running) -> None:
    assert running.console.first_password is not None
    for given in ("a" * 43, "known"):
        browser = await running.open_browser()
        browser.client.cookies.set("eruca_session", given, domain="127.0.0.1", path="/")
        answer = await browser.try_to_log_in("admin", running.console.first_password)
        assert answer.status_code == 303
        [cookie] = [each for each in answer.headers.get_list("set-cookie") if each.startswith("eruca_session=")]
        assert given not in cookie and "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie
        stranger = await running.open_browser()
        stranger.client.cookies.set("eruca_session", given)
        assert (await stranger.get("/password")).status_code == 303


async def test_a_log_in_ends_with_a_new_session_and_a_password_change_ends_the_old_one(running: Running) -> None:
    assert running.console.first_password is not None
    browser = await running.open_browser()
    await browser.log_in("admin", running.console.first_password)
    before = browser.session
    await browser.choose_password(running.console.first_password)
    assert browser.session != before
    thief = await running.open_browser()
    thief.client.cookies.set("eruca_session", before)
    assert (await thief.get("/profile")).headers["location"].startswith("/login")


async def test_log_out_ends_the_session_on_the_server(running: Running) -> None:
    browser = await running.log_in_first()
    session = browser.session
    answer = await browser.post("/logout")
    assert answer.status_code == 303 and not browser.session
    thief = await running.open_browser()
    thief.client.cookies.set("eruca_session", session)
    assert (await thief.get("/profile")).headers["location"].startswith("/login")


async def test_log_out_everywhere_ends_all_sessions(running: Running) -> None:
    first = await running.log_in_first()
    second = await running.open_browser()
    await second.log_in("admin", PASSWORD)
    assert (await second.get("/profile")).status_code == 200
    await first.post("/logout", {"everywhere": "true"})
    assert (await second.get("/profile")).status_code == 303


@pytest.mark.parametrize(
    "then",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/%0d%0aSet-Cookie:x=1\r\nx"],
)
async def test_a_log_in_leads_nowhere_else(running: Running, then: str) -> None:
    assert running.console.first_password is not None
    browser = await running.open_browser()
    answer = await browser.try_to_log_in("admin", running.console.first_password, then)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    again = await browser.get("/login", params={"next": then})
    assert (again.status_code, again.headers["location"]) == (303, "/")
    language = await browser.get("/language/en", params={"next": then})
    assert (language.status_code, language.headers["location"]) == (303, "/")


async def test_passwords_cannot_be_tried_at_will(running: Running) -> None:
    # Time stands still, so that the result does not depend on how fast this is.
    browser = await running.open_browser()
    statuses = [(await browser.try_to_log_in("admin", f"guess-{number}")).status_code for number in range(12)]
    assert statuses == [401] * 5 + [429] * 7
    # The right one waits too, and the answer says how long.
    assert running.console.first_password is not None
    answer = await browser.try_to_log_in("admin", running.console.first_password)
    assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
    # Addresses cannot be invented.
    for header in ("x-forwarded-for", "x-real-ip", "forwarded"):
        token = await browser.read_token("/login")
        form = {"csrf": token, "user": "admin", "password": "x"}
        assert (await browser.client.post("/login", data=form, headers={header: "192.0.2.1"})).status_code == 429


async def test_many_attempts_at_once_are_counted_before_they_are_checked(running: Running) -> None:
    browsers = [await running.open_browser() for _ in range(20)]
    answers = await asyncio.gather(*(browser.try_to_log_in("admin", "guess") for browser in browsers))
    assert sorted(answer.status_code for answer in answers) == [401] * 5 + [429] * 15


async def test_a_log_in_form_of_another_site_is_refused(running: Running) -> None:
    """Log-in CSRF: the victim would work in the attacker's account."""
    assert running.console.first_password is not None
    attacker, victim = await running.open_browser(), await running.open_browser()
    form = {
        "csrf": await attacker.read_token("/login"),
        "user": "admin",
        "password": running.console.first_password,
    }
    await victim.get("/login")
    assert (await victim.client.post("/login", data=form)).status_code == 403
    stranger = await running.open_browser()
    assert (await stranger.client.post("/login", data=form)).status_code == 403


# -- pages -----------------------------------------------------------------------------------------------------------


async def test_every_answer_forbids_frames_scripts_and_guessing(running: Running) -> None:
    browser = await running.log_in_first()
    for path in ("/", "/login", "/users", "/none", "/static/console.css", "/static/none", "/api/none", "/profile"):
        headers = (await browser.get(path)).headers
        policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"] and headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff" and "referrer-policy" in headers
        assert "server" not in headers and "strict-transport-security" not in headers
    assert (await browser.get("/users")).headers["cache-control"] == "no-store"


async def test_browsers_that_came_over_tls_come_back_over_tls() -> None:
    app = guard(PlainTextResponse("hello"), Origins([]))
    for scheme, wanted in (("https", "max-age=31536000"), ("http", None)):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://127.0.0.1") as client:
            assert (await client.get("/")).headers.get("strict-transport-security") == wanted


TRAVERSALS = (
    "..",
    "%2e%2e",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e%2fapp.py",
    "....//app.py",
    "..%5capp.py",
    "%00",
    "a%00.css",
)


@pytest.mark.parametrize("name", TRAVERSALS)
async def test_no_path_leads_out_of_the_static_files(running: Running, name: str) -> None:
    host, port = running.address.removeprefix("http://").split(":")

    def get(path: str) -> tuple[int, bytes]:
        # A client that sends the path as it is.
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        connection.putrequest("GET", path)
        connection.endheaders()
        with connection.getresponse() as answer:
            status, body = answer.status, answer.read()
        connection.close()
        return status, body

    for path in (f"/static/{name}", f"/static/../{name}", f"/static/x/../../{name}"):
        status, body = await asyncio.to_thread(get, path)
        assert status in (303, 404), path
        assert b"root:" not in body and b"import" not in body


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "<script>alert(1)</script>", "a\r\nSet-Cookie: x=1", "a b", "x" * 300, "ü"]
)
async def test_names_that_are_none_are_refused_and_escaped(running: Running, name: str) -> None:
    browser = await running.log_in_first()
    quoted = quote(name, safe="")
    for path in (f"/c/{CLUSTER}/topics/{quoted}", f"/c/{quoted}/topics", f"/users/{quoted}", f"/{quoted}"):
        answer = await browser.get(path)
        assert answer.status_code in (303, 400, 404, 502, 504), (path, answer.status_code)
        assert "<script>alert" not in answer.text and "set-cookie" not in answer.headers


async def test_what_users_type_comes_back_escaped(running: Running) -> None:
    browser = await running.log_in_first()
    nasty = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'"
    pages = [
        await browser.get("/audit", params={"text": nasty, "user": nasty, "q": nasty}),
        await browser.get("/users", params={"q": nasty, "sort": nasty, nasty: nasty}),
        await browser.post("/users/new", {"name": nasty, "role": nasty, "grants": nasty}),
        await browser.post("/masks/new", {"prefix": nasty, "fields": nasty, "role": nasty}),
        await browser.get("/login", params={"next": f"/{nasty}"}),
        await (await running.open_browser()).try_to_log_in(nasty, nasty, f"/{nasty}"),
    ]
    for page in pages:
        assert "<script>alert" not in page.text and "onerror=alert(1)>" not in page.text, page.url


async def test_an_export_cannot_run_in_a_spreadsheet(running: Running) -> None:
    browser = await running.log_in_first()
    for start in ("=", "+", "-", "@", "\t=", "\r=", "\n=", "\uff1d", "\uff0b", "\uff0d", "\uff20"):
        await running.console.identity.audit.add(
            user="eve", action="x", target=f"{start}cmd|' /C calc'!A0", outcome="done"
        )
    answer = await browser.get("/audit", params={"user": "eve", "format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="audit.csv"'
    [head, *rows] = csv.reader(io.StringIO(answer.text, newline=""))
    targets = [row[head.index("target")] for row in rows]
    assert len(targets) == 11 and all(target.startswith("'") for target in targets), targets


async def test_the_query_writes_no_headers(running: Running) -> None:
    browser = await running.log_in_first()
    nasty = 'x"\r\nSet-Cookie: evil=1'
    for params in ({"format": "csv", "table": nasty}, {"format": nasty}, {"format": "json", "q": nasty}):
        answer = await browser.get("/audit", params=params)
        assert "evil" not in str(answer.headers), params


# -- a user's affairs that are noted ---------------------------------------------------------------------------------


async def test_the_audit_log_is_only_read(running: Running) -> None:
    """No route changes it: those under /audit answer GET only."""
    assert [route.methods for route in ROUTES if route.path.startswith("/audit")] == [("GET",)]
    browser = await running.log_in_first()
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = await browser.client.request(method, "/audit", headers={"x-csrf-token": browser.token})
        assert answer.status_code == 405
