"""Source and sink where nothing is open: accounts, and only TLS with certificates on both sides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eruca._wire.names import TOOLS_CONSUMER_GROUP
from eruca._wire.signature import Credentials
from eruca.errors import NetError, RequestRefused
from tests.accounts import ADMIN, describe, write_accounts
from tests.authority import Authority
from tests.interop.brokers import SETTINGS, ErucaCluster
from tests.spark.producing import create_topic, send
from tests.spark.reading import read_numbers, read_rows
from tests.spark.streams import Sink, open_stream
from tests.spark.test_sink import write

BROKER, JOB, OTHER = (Credentials(f"the-{who}", f"secret-of-the-{who}") for who in ("broker", "job", "other"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs the certificates of servers and jobs."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    authority.issue("server")
    authority.issue("job")
    return authority


@pytest.fixture(scope="module")
def secured(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErucaCluster]:
    """Servers that accept nobody without an account and a certificate."""
    home, keys = tmp_path_factory.mktemp("secured"), authority.ca.parent
    accounts = home / "plain_acl.yml"
    write_accounts(
        accounts,
        describe(BROKER, broker=True),
        describe(JOB, topicPerms=["orders=PUB|SUB", "copies=PUB|SUB"], groupPerms=[f"{TOOLS_CONSUMER_GROUP}=SUB"]),
        describe(OTHER, topicPerms=["orders=PUB"]),
    )
    options = {
        **SETTINGS,
        "aclEnable": "true",
        "aclFile": accounts,
        "brokerAccessKey": BROKER.access_key,
        "brokerSecretKey": BROKER.secret_key,
        "tls.server.mode": "enforcing",
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": authority.ca,
        "tls.enable": "true",
        "tls.client.trustCertPath": authority.ca,
        **{f"tls.{side}.certPath": keys / "server.pem" for side in ("server", "client")},
        **{f"tls.{side}.keyPath": keys / "server.key" for side in ("server", "client")},
    }
    with ErucaCluster(home, options) as started:
        yield started
        assert started.list_complaints() == []


@pytest.fixture(autouse=True, scope="module")
def filled(secured: ErucaCluster, authority: Authority) -> None:
    """An operator makes the topics and sends messages, with what the environment says."""
    keys = authority.ca.parent
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ERUCA_ACCESS_KEY", ADMIN.access_key)
        environment.setenv("ERUCA_SECRET_KEY", ADMIN.secret_key)
        environment.setenv("ERUCA_TLS_CA", str(authority.ca))
        environment.setenv("ERUCA_TLS_CERT", str(keys / "job.pem"))
        environment.setenv("ERUCA_TLS_KEY", str(keys / "job.key"))
        create_topic(secured, "copies")
        send(secured, "orders", 100)


def present(authority: Authority, who: Credentials, home: Path) -> dict[str, Any]:
    """The options of a job: files only, because options are shown by Spark."""
    file = home / f"{who.access_key}.json"
    file.write_text(json.dumps({"accessKey": who.access_key, "secretKey": who.secret_key}))
    keys = authority.ca.parent
    return {
        "accessFile": file,
        "tlsCaFile": authority.ca,
        "tlsCertFile": keys / "job.pem",
        "tlsKeyFile": keys / "job.key",
    }


def test_a_job_with_an_account_and_a_certificate(
    spark: Any, secured: ErucaCluster, authority: Authority, tmp_path: Path
) -> None:
    ours = present(authority, JOB, tmp_path)
    assert read_numbers(secured, subscribe="orders", **ours) == list(range(100))
    reader = spark.read.format("rocketmq").option("nameServer", secured.name_server).option("subscribe", "orders")
    for name, value in ours.items():
        reader = reader.option(name, str(value))
    frame = reader.load()
    assert frame.count() == 100
    write(frame.select("body"), secured, "copies", **ours)
    sink = Sink(tmp_path)
    sink.run(open_stream(spark, secured, subscribe="copies", **ours))
    assert sorted(sink.read()["body"].to_pylist()) == sorted(b"message-%d" % number for number in range(100))


def test_jobs_that_lack_one_of_them_get_nothing(secured: ErucaCluster, authority: Authority, tmp_path: Path) -> None:
    ours = present(authority, JOB, tmp_path)
    with pytest.raises(RequestRefused, match="No default permission for topic:orders"):
        read_rows(secured, subscribe="orders", **present(authority, OTHER, tmp_path))
    with pytest.raises(RequestRefused, match="Check signature failed for accessKey=the-job"):
        wrong = Credentials(JOB.access_key, "a-guessed-secret")
        read_rows(secured, subscribe="orders", **present(authority, wrong, tmp_path))
    for missing in (("accessFile",), ("tlsCertFile", "tlsKeyFile"), tuple(name for name in ours if "tls" in name)):
        left = {name: value for name, value in ours.items() if name not in missing}
        with pytest.raises((RequestRefused, NetError)):
            read_rows(secured, subscribe="orders", retries=0, **left)
