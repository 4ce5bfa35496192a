"""URLs that users configure."""

from __future__ import annotations

import pytest

from eruca import ClientOptions
from eruca._ground.urls import check_url
from eruca._net.metricsoptions import MetricsOptions
from eruca.errors import ConfigError


@pytest.mark.parametrize("url", ["http://h", "https://host:4318/v1/metrics", "http://[::1]:4318/"])
def test_good_ones(url: str) -> None:
    check_url("where", url, "none")


def test_a_query_only_where_it_is_allowed() -> None:
    check_url("where", "http://h/nsaddr?nofix=1", "none", may_have_query=True)
    with pytest.raises(ConfigError, match="contains a query") as caught:
        check_url("where", "http://h/x?key=hunter2", "use a file")
    assert "hunter2" not in str(caught.value) and "use a file" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2@h/x",
        "https://hunter2@h",
        "ftp://me:hunter2@h",
        "me:hunter2@h:1",
        "http://me:hunter2@h:0/",
        "http://me:hunter2@[",
        "http://",
        "",
    ],
)
def test_no_error_shows_a_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_url("where", url, "none", may_have_query=True)
    assert "hunter2" not in f"{caught.value!r} {caught.value}"


def test_options_with_a_url_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"metricsOtlpEndpoint: .* OTEL_EXPORTER_OTLP_HEADERS"):
        MetricsOptions(otlp_endpoint="https://me:hunter2@collector:4318/v1/metrics")
    with pytest.raises(ConfigError, match=r"address_server: .* user or password"):
        ClientOptions(address_server="http://me:hunter2@names/nsaddr")
