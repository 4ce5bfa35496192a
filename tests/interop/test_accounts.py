"""The official clients and mqadmin with accounts: the same file on Eruca and on Java's broker, and the same answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eruca import Consumer, Producer
from eruca._wire.signature import Credentials
from tests.interop.brokers import SETTINGS, Cluster, ErucaCluster
from tests.interop.clientprograms import ClientProgram, Stage, build_go
from tests.interop.guarded import (
    ACCOUNTS,
    GROUP,
    REFUSED,
    TOPIC,
    WHO,
    Guarded,
    GuardedEruca,
    GuardedJava,
    read_accounts,
    tell,
    write_tools,
)
from tests.interop.javapeer import JavaProgram, Peer, PeerError
from tests.interop.oursigned import DEEDS, ask_ours, sign_in
from tests.needs import starts
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.whole
# How the official clients connect; all servers here have made a certificate themselves.
WAYS: dict[str, dict[str, object]] = {"plain": {}, "tls": {"tls.enable": "true"}}


@pytest.fixture(scope="module")
@starts("java")
def both(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Guarded, Guarded]]:
    """Eruca and Java, each with the topic."""
    home = tmp_path_factory.mktemp("guarded")
    with GuardedEruca(home / "eruca") as eruca, GuardedJava(peer, home / "java") as java:
        with JavaProgram(peer, "eruca.interop.Accounts", home / "maker") as program:
            for cluster in (eruca, java):
                assert ask(program, cluster, "createTopic", "admin") == "created"
                assert ask(program, cluster, "send", "admin", body="first") == "SEND_OK"
        yield eruca, java


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """How clients connect."""
    return str(request.param)


@pytest.fixture(scope="module")
def accounts(way: str, peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    """The official client with the hook that signs."""
    home = tmp_path_factory.mktemp("accounts")
    with JavaProgram(peer, "eruca.interop.Accounts", home, system=WAYS[way]) as program:
        yield program


@pytest.fixture(scope="module")
def mqadmin(way: str, peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    home = tmp_path_factory.mktemp("mqadmin")
    with JavaProgram(peer, "eruca.interop.MqAdmin", home, system=WAYS[way]) as program:
        yield program


def ask(program: JavaProgram, cluster: Cluster, what: str, who: str, **fields: Any) -> str:
    """Do something with an account; return the result, or the refusal."""
    account = WHO[who]
    if account is not None:
        fields |= {"accessKey": account.access_key, "secretKey": account.secret_key}
    where = {"nameServer": cluster.name_server, "address": cluster.broker, "broker": "broker-a"}
    usual = {"topic": TOPIC, "group": GROUP, "body": f"{what} by {who}", "offset": 1, "seconds": PATIENCE_S}
    (row,) = program.ask({"do": what, **where, **usual, **fields})
    return str(row["result"]) if "result" in row else f"{row['code']} {tell(row['problem'])}"


# --- Java's client ----------------------------------------------------------------------------------------------------

# What Java's broker lets anyone do who has an account, and Eruca only those with the right.
STRICTER = {
    ("batch", "billing"): f"1 {REFUSED}No default permission for topic:{TOPIC}",
    ("batch", "limited admin"): f"1 {REFUSED}No default permission for topic:{TOPIC}",
    ("batch", "denied"): f"1 {REFUSED}No default permission for topic:{TOPIC}",
    ("batch", "without permission"): f"1 {REFUSED}No default permission for topic:{TOPIC}",
    **{
        ("end", who): f"1 {REFUSED}No default permission for topic:{TOPIC}"
        for who in ("shop", "denied", "without permission")
    },
    # Its white address replaces signature and permissions, but makes nobody an admin.
    (
        "createTopic",
        "from here",
    ): f"1 {REFUSED}Need admin permission for request code=17, but accessKey=from-here is not",
}
# Nobody knows who they are.
BAD = ("wrong secret", "nobody", "unknown", "from elsewhere")
# Whoever tries names does not learn here which accounts exist.
NOT_TOLD = f"1 {REFUSED}Check signature failed for accessKey=who-is-this"
TOLD_BY_JAVA = f"1 {REFUSED}No acl config for who-is-this"


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("what", ["send", "batch", "transaction", "pull", "commit", "end", "createTopic"])
def test_java_client(both: tuple[Guarded, Guarded], accounts: JavaProgram, what: str, who: str) -> None:
    eruca, java = (ask(accounts, cluster, what, who) for cluster in both)
    if who == "unknown":
        assert (eruca, java) == (NOT_TOLD, TOLD_BY_JAVA)
    elif (what, who) in STRICTER:
        assert eruca == STRICTER[what, who]
        assert not java.startswith("1 ")
    else:
        assert eruca == java
    if who in BAD:
        assert eruca.startswith(f"1 {REFUSED}")


def test_java_consumer_and_retries(both: tuple[Guarded, Guarded], accounts: JavaProgram) -> None:
    """A push consumer sends heartbeats, asks for members and offsets, pulls and commits: all of it signed."""
    for cluster in both:
        assert ask(accounts, cluster, "consume", "billing") != "null"


@pytest.fixture
def guarded_names(tmp_path: Path) -> Iterator[ErucaCluster]:
    """Eruca with accounts at the name server too."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS + "- {accessKey: the-brokers, secretKey: secret-of-brokers, broker: true}\n")
    keys = {"brokerAccessKey": "the-brokers", "brokerSecretKey": "secret-of-brokers"}
    with ErucaCluster(tmp_path / "up", {**SETTINGS, "aclEnable": "true", "aclFile": path, **keys}) as cluster:
        yield cluster


def test_java_client_of_a_name_server_with_accounts(accounts: JavaProgram, guarded_names: ErucaCluster) -> None:
    """Java's client signs its requests to name servers too, though Java's name servers do not care."""
    cluster = guarded_names
    assert ask(accounts, cluster, "createTopic", "admin") == "created"
    assert ask(accounts, cluster, "send", "shop") == "SEND_OK"
    assert ask(accounts, cluster, "consume", "billing") == "send by shop"
    assert "No route info of this topic" in ask(accounts, cluster, "send", "wrong secret")
    assert "No route info of this topic" in ask(accounts, cluster, "send", "nobody")


# --- mqadmin ----------------------------------------------------------------------------------------------------------


def run_both(
    mqadmin: JavaProgram, both: tuple[Guarded, Guarded], line: str, tools: Path | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Run a command on both; gives what each printed and refused, without addresses."""
    found = []
    for cluster in both:
        words = [word.format(broker=cluster.broker, file=cluster.accounts) for word in line.split()]
        request = {"do": "run", "nameServer": cluster.name_server, "arguments": words}
        (row,) = mqadmin.ask(request if tools is None else request | {"tools": str(tools)})
        text = row["out"].replace(cluster.broker, "BROKER").replace(str(cluster.accounts), "FILE")
        text = re.sub(r"@[0-9a-f]+$", "", text.replace(cluster.name_server, "NAMES"))
        found.append({"out": text, "error": tell(row.get("error"))})
    return found[0], found[1]


def test_mqadmin_with_and_without_an_account(
    both: tuple[Guarded, Guarded], mqadmin: JavaProgram, tmp_path: Path
) -> None:
    admin = WHO["admin"]
    assert admin is not None
    tools = write_tools(tmp_path / "tools.yml", admin)
    for line in (
        "updateTopic -b {broker} -t made -r 2 -w 2",
        "updateSubGroup -b {broker} -g made",
        "topicStatus -t " + TOPIC,
        "deleteSubGroup -b {broker} -g made",
        "cleanUnusedTopic -b {broker}",
    ):
        allowed = run_both(mqadmin, both, line, tools)
        assert [side["error"] for side in allowed] == ["", ""], line
        refused = run_both(mqadmin, both, line, None)
        assert refused[0] == refused[1] and "No accessKey is configured" in refused[0]["error"], line


def test_mqadmin_changes_accounts(
    both: tuple[Guarded, Guarded], mqadmin: JavaProgram, accounts: JavaProgram, tmp_path: Path
) -> None:
    admin, shop = WHO["admin"], WHO["shop"]
    assert admin is not None and shop is not None
    tools = write_tools(tmp_path / "tools.yml", admin)
    new = Credentials("new-account", "secret-of-the-new")
    WHO["new"] = new

    def change(line: str) -> None:
        eruca, java = run_both(mqadmin, both, line, tools)
        assert eruca == java and not eruca["error"], line
        assert read_accounts(both[0]) == read_accounts(both[1])

    change(f"updateAclConfig -b {{broker}} -a {new.access_key} -s {new.secret_key} -i DENY -u SUB -t {TOPIC}=PUB")
    assert [ask(accounts, cluster, "send", "new") for cluster in both] == ["SEND_OK", "SEND_OK"]
    change(
        f"updateAclConfig -b {{broker}} -a {new.access_key} -s {new.secret_key} -m true"
        f" -t {TOPIC}=SUB,other=PUB|SUB -g {GROUP}=SUB -w 10.1.1.1"
    )
    refusal = f"1 {REFUSED}No default permission for topic:{TOPIC}"
    assert [ask(accounts, cluster, "send", "new") for cluster in both] == [refusal, refusal]
    change("updateGlobalWhiteAddr -b {broker} -g 10.1.1.1,10.1.2.*")
    change(f"deleteAclConfig -b {{broker}} -a {new.access_key}")
    assert ask(accounts, both[0], "send", "new") == f"1 {REFUSED}Check signature failed for accessKey=new-account"

    # What is wrong has Java's code, and never the secret.
    for line in (
        "updateAclConfig -b {broker} -a short -s hidden-secret",
        "updateAclConfig -b {broker} -a long-enough -s hidde",
        "updateAclConfig -b {broker} -a long-enough -s hidden-secret -t orders",
        "deleteAclConfig -b {broker} -a nobody-has-this",
    ):
        eruca, java = run_both(mqadmin, both, line, tools)
        assert eruca["error"] and java["error"], line
        assert "hidde" not in eruca["error"]
    versions = run_both(mqadmin, both, "clusterAclConfigVersion -b {broker}", tools)
    assert [side["error"] for side in versions] == ["", ""]
    # Removed in 4.9.8, because it shows secrets.
    shown = run_both(mqadmin, both, "getAclConfig -b {broker}", tools)
    assert "not supported" in shown[0]["error"] and shop.secret_key not in shown[0]["out"]
    assert shop.secret_key in shown[1]["out"]

    # An account that is not an admin: Java's broker lets everyone with an account change accounts.
    by_shop = write_tools(tmp_path / "shop.yml", shop)
    eruca, java = run_both(mqadmin, both, "deleteAclConfig -b {broker} -a nobody-has-this", by_shop)
    assert "Need admin permission for request code=51" in eruca["error"]
    assert java["error"] and "permission" not in java["error"]


# What needs the admin right in Java's broker too, and what only in Eruca.
FOR_ADMINS = {
    "updateTopic -b {broker} -t made-by-all -r 2 -w 2": True,
    "updateSubGroup -b {broker} -g made-by-all": True,
    "deleteSubGroup -b {broker} -g made-by-all": True,
    "cleanUnusedTopic -b {broker}": False,
    "topicStatus -t " + TOPIC: None,
    "brokerStatus -b {broker}": None,
}


@pytest.mark.parametrize("who", WHO)
def test_mqadmin_with_each_account(
    both: tuple[Guarded, Guarded], mqadmin: JavaProgram, tmp_path: Path, who: str
) -> None:
    account = WHO[who]
    tools = None if account is None else write_tools(tmp_path / "tools.yml", account)
    is_admin = who in ("admin", "limited admin")
    for line, needs_admin in FOR_ADMINS.items():
        eruca, java = [side["error"] for side in run_both(mqadmin, both, line, tools)]
        if who == "unknown":
            assert "Check signature failed for accessKey=who-is-this" in eruca
            assert "No acl config for who-is-this" in java
        elif needs_admin is False and not is_admin and not java:
            assert "Need admin permission for request code=316" in eruca
        elif needs_admin and who == "from here":
            assert "Need admin permission" in eruca and not java
        else:
            assert eruca == java, line
        assert bool(eruca) == (who in BAD or (needs_admin is not None and not is_admin))


# --- the Go client and ours -------------------------------------------------------------------------------------------


def sign_in_go(who: str) -> dict[str, str]:
    """The keys of an account, as the Go program takes them."""
    account = WHO[who]
    return {} if account is None else {"accessKey": account.access_key, "secretKey": account.secret_key}


def send_from_go(stage: Stage, who: str) -> str:
    """Send a message with an account; return the result, or the refusal."""
    producer = stage.start_producer(retries=0, **sign_in_go(who))
    try:
        (row,) = producer.send({"topic": TOPIC, "body": f"from Go by {who}"})
    except PeerError as error:
        refusal = re.search(r"CODE: (\d+), +DESC: ([^\n\"']+)", str(error))
        assert refusal is not None, error
        return f"{refusal[1]} {tell(refusal[2])}"
    finally:
        stage.stop(producer.name)
    assert row["status"] == 0
    return "SEND_OK"


@pytest.mark.needs("go")
def test_go_client(both: tuple[Guarded, Guarded], accounts: JavaProgram, tmp_path: Path) -> None:
    """What it hears is what Java's client hears."""
    for cluster in both:
        with ClientProgram("go", build_go(), tmp_path / f"go-{cluster.kind}", cluster) as program:
            stage = Stage(program, f"accounts-{cluster.kind}")
            for who in WHO:
                assert send_from_go(stage, who) == ask(accounts, cluster, "send", who), (cluster.kind, who)
            consumer = stage.start_consumer(TOPIC, group=GROUP, **sign_in_go("billing"))
            stage.wait_for_bodies([consumer], ["from Go by shop"])
            stage.close()


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("what", DEEDS)
async def test_our_clients(both: tuple[Guarded, Guarded], accounts: JavaProgram, way: str, what: str, who: str) -> None:
    """What they hear is what the official client hears."""
    for cluster in both:
        heard = await ask_ours(cluster, what, who, tls=way == "tls")
        assert heard == await asyncio.to_thread(ask, accounts, cluster, what, who)


async def test_our_consumer(both: tuple[Guarded, Guarded], way: str) -> None:
    for cluster in both:
        body = f"ours to {cluster.kind}, {way}".encode()
        async with Producer(group="shop", options=sign_in(cluster, "shop", tls=way == "tls")) as producer:
            await producer.send(TOPIC, body)
        came: asyncio.Queue[bytes] = asyncio.Queue()
        consumer = Consumer(group=GROUP, start="earliest", options=sign_in(cluster, "billing", tls=way == "tls"))
        consumer.handler(TOPIC)(lambda message, into=came: into.put_nowait(message.body))
        seen = []
        async with consumer, asyncio.timeout(PATIENCE_S):
            while body not in seen:
                seen.append(await came.get())
        assert seen[-1] == body


async def test_other_clients_of_a_name_server_with_accounts(
    guarded_names: ErucaCluster, accounts: JavaProgram, mqadmin: JavaProgram, way: str, tmp_path: Path
) -> None:
    cluster, admin = guarded_names, WHO["admin"]
    assert admin is not None

    def run(line: str, tools: Path | None) -> str:
        request = {"do": "run", "nameServer": cluster.name_server, "arguments": line.split()}
        (row,) = mqadmin.ask(request if tools is None else request | {"tools": str(tools)})
        return f"{row['out']} {row.get('error')}"

    assert await asyncio.to_thread(ask, accounts, cluster, "createTopic", "admin") == "created"
    assert await ask_ours(cluster, "send", "shop", tls=way == "tls") == "SEND_OK"
    refused = await ask_ours(cluster, "send", "wrong secret", tls=way == "tls")
    assert refused.endswith("Check signature failed for accessKey=the-shop")
    tools = await asyncio.to_thread(write_tools, tmp_path / "tools.yml", admin)
    assert "broker-a" in await asyncio.to_thread(run, "clusterList", tools)
    stranger = await asyncio.to_thread(write_tools, tmp_path / "stranger.yml", Credentials("the-admin", "a-guess"))
    assert "Check signature failed" in await asyncio.to_thread(run, "clusterList", stranger)


@pytest.mark.needs("go")
def test_go_client_of_a_name_server_with_accounts(
    guarded_names: ErucaCluster, accounts: JavaProgram, tmp_path: Path
) -> None:
    assert ask(accounts, guarded_names, "createTopic", "admin") == "created"
    with ClientProgram("go", build_go(), tmp_path / "go", guarded_names) as program:
        stage = Stage(program, "names")
        assert send_from_go(stage, "shop") == "SEND_OK"
        stage.close()
