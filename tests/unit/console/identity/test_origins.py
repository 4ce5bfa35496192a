"""Requests that pages of others make are refused."""

from __future__ import annotations

import pytest

from eruca._console.identity.origins import Origins, find_path, read_headers

ORIGINS = Origins(["console.example", "Host-1"])
HERE = {"host": "127.0.0.1:8080"}


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8080", "127.0.0.1", "10.1.2.3:1", "[::1]:8080", "console.example", "CONSOLE.example:443",
     "host-1", "localhost."],
)  # fmt: skip
def test_addresses_and_known_names_are_accepted(host: str) -> None:
    assert ORIGINS.find_fault("GET", {"host": host}, secure=False) == ""


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil@localhost", "localhost/..",
     "localhost:x", "localhost:99999", "[::1", "127.0.0.1:8080:1", "localhost\t", "2130706433", "0x7f000001"],
)  # fmt: skip
def test_names_of_others_are_refused(host: str) -> None:
    assert "consoleHosts" in ORIGINS.find_fault("GET", {"host": host}, secure=False)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"origin": "http://127.0.0.1:8080"},
        {"origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"},
    ],
)
def test_own_pages_may_post(more: dict[str, str]) -> None:
    assert ORIGINS.find_fault("POST", HERE | more, secure=False) == ""


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize(
    "more",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8081"},
        {"origin": "https://127.0.0.1:8080"},
        {"origin": "http://127.0.0.1:8080.evil.example"},
        {"origin": "http://[::1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ],
)
def test_other_sites_may_not_post(method: str, more: dict[str, str]) -> None:
    assert ORIGINS.find_fault(method, HERE | more, secure=False) == "another site sent it"


def test_the_origin_has_the_scheme_of_the_connection() -> None:
    assert ORIGINS.find_fault("POST", HERE | {"origin": "https://127.0.0.1:8080"}, secure=True) == ""
    assert ORIGINS.find_fault("POST", HERE | {"origin": "http://127.0.0.1:8080"}, secure=True)


def test_other_sites_may_link_but_not_load() -> None:
    other = HERE | {"sec-fetch-site": "cross-site"}
    assert (
        ORIGINS.find_fault("GET", other | {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, secure=False)
        == ""
    )
    for more in (
        {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
        {"sec-fetch-mode": "cors", "sec-fetch-dest": "empty"},
        {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ):
        assert ORIGINS.find_fault("GET", other | more, secure=False)
        assert ORIGINS.find_fault("GET", HERE | {"sec-fetch-site": "same-origin"} | more, secure=False) == ""


@pytest.mark.parametrize("wanted", ["/", "/c/x/topics?q=a%20b", "/c/x/topics/%25RETRY%25g", "/users#a"])
def test_a_log_in_leads_to_a_page_of_ours(wanted: str) -> None:
    assert find_path(wanted) == wanted


@pytest.mark.parametrize(
    "wanted",
    ["", "//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "\\\\evil.example",
     "/a\r\nSet-Cookie: x=1", "/\t/evil.example", "evil.example", "/" + "a" * 3000, "/a\\b", "/ü", " /a", "/\n/evil"],
)  # fmt: skip
def test_a_log_in_leads_nowhere_else(wanted: str) -> None:
    assert find_path(wanted) == "/"


def test_headers_that_decide_come_once() -> None:
    assert read_headers([(b"Host", b"a"), (b"accept", b"x"), (b"accept", b"y")]) == {"host": "a", "accept": "y"}
    assert read_headers([(b"host", b"a"), (b"Host", b"b")]) is None
    assert read_headers([(b"origin", b"a"), (b"origin", b"b")]) is None
