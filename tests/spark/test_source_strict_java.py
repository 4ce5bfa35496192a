"""A Java broker as cautious operators run it: no SQL92, no groups and no topics created automatically."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eruca.errors import ConfigError, RequestRefused
from tests.interop.brokers import PATIENCE, JavaCluster
from tests.interop.javapeer import prepare_peer
from tests.spark.producing import send
from tests.spark.reading import read_numbers, read_rows

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    settings = {
        **PATIENCE,
        "enablePropertyFilter": "false",
        "autoCreateSubscriptionGroup": "false",
        "autoCreateTopicEnable": "false",
    }
    with JavaCluster(prepare_peer(), tmp_path_factory.mktemp("strict"), settings) as started:
        yield started


def test_it_is_read_without_a_group_of_our_own(strict: JavaCluster) -> None:
    send(strict, "strict", 100)
    assert read_numbers(strict, subscribe="strict") == list(range(100))
    with pytest.raises(RequestRefused, match=r"own.* does not exist.*updateSubGroup"):
        read_rows(strict, subscribe="strict", consumerGroup="own")


def test_sql92_is_refused_when_the_query_is_planned(strict: JavaCluster) -> None:
    send(strict, "unfiltered", 10)
    with pytest.raises(ConfigError, match=r"broker broker-a cannot evaluate it: .*SQL92.*enablePropertyFilter"):
        read_rows(strict, subscribe="unfiltered", sql92="a = 1")
    assert read_rows(strict, subscribe="unfiltered", tags="a") == []


ACCOUNTS = """
globalWhiteRemoteAddresses: []
accounts:
  - accessKey: sparkreader
    secretKey: "12345678"
    whiteRemoteAddress:
    admin: true
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: PUB|SUB
"""


def test_a_broker_with_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "broker" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    access = tmp_path / "access.json"
    access.write_text('{"accessKey": "sparkreader", "secretKey": "12345678"}')
    with JavaCluster(prepare_peer(), tmp_path, {**PATIENCE, "aclEnable": "true"}) as guarded:
        with monkeypatch.context() as environment:
            environment.setenv("ERUCA_ACCESS_KEY", "sparkreader")
            environment.setenv("ERUCA_SECRET_KEY", "12345678")
            send(guarded, "guarded", 50)
            assert read_numbers(guarded, subscribe="guarded") == list(range(50))
        assert read_numbers(guarded, subscribe="guarded", accessFile=access) == list(range(50))
        with pytest.raises(RequestRefused, match="refused"):
            read_rows(guarded, subscribe="guarded")
        access.write_text('{"accessKey": "sparkreader", "secretKey": "87654321"}')
        with pytest.raises(RequestRefused, match=r"signature|Check"):
            read_rows(guarded, subscribe="guarded", accessFile=access)
