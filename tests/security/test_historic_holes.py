"""Holes that RocketMQ had, each attacked as it was: the bytes are refused, and nothing on the disk has changed.

CVE-2019-17572: a topic name with `..` made the broker create directories elsewhere.
CVE-2023-33246: a change of the broker's options (rocketmqHome, with filterServerNums) became a shell command.
CVE-2023-37582: a change of the name server's options (configStorePath) wrote any file; changing configBlackList first
    undid the first repair.
CVE-2024-23321: code 54 and answers with options showed the secrets of accounts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from blockbuster import BlockBuster

from eruca import ClientOptions, PullConsumer
from eruca._broker.administering.javakeys import IGNORED
from eruca._broker.options import BrokerOptions
from eruca._ground.config import HIDDEN, StoreOptions, info_of
from eruca._nameserver.options import NameServerOptions
from eruca._wire.catalog import find_spec
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.signature import Credentials
from eruca.admin import Admin
from eruca.errors import NoRoute
from tests.integration.broker.conftest import excuse_new_files
from tests.integration.broker.serving import Serving
from tests.security.attackers import Attacker, Heard, Victims, open_attacker, run_victims, sign_fields

EVIL = [
    "../../../escaped",
    "../escaped",
    "..",
    "/tmp/../escaped",
    "escaped/0",
    "escaped\\..\\x",
    "escaped\x00",
    ".escaped",
]
# Requests that have names in their bodies; `{}` is the name.
BODIES = {
    RequestCode.HEART_BEAT: {
        "clientID": "c",
        "producerDataSet": [{"groupName": "{}"}],
        "consumerDataSet": [
            {
                "groupName": "{}",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{"topic": "{}", "subString": "*", "expressionType": "TAG"}],
            }
        ],
    },
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": "{}", "consumeEnable": True},
    RequestCode.LOCK_BATCH_MQ: {
        "consumerGroup": "{}",
        "clientId": "c",
        "mqSet": [{"topic": "{}", "brokerName": "broker-a", "queueId": 0}],
    },
    RequestCode.UNLOCK_BATCH_MQ: {
        "consumerGroup": "{}",
        "clientId": "c",
        "mqSet": [{"topic": "{}", "brokerName": "broker-a", "queueId": 0}],
    },
    RequestCode.CHECK_CLIENT_CONFIG: {
        "clientId": "c",
        "group": "{}",
        "subscriptionData": {"topic": "{}", "subString": "*", "expressionType": "TAG"},
    },
    RequestCode.QUERY_CORRECTION_OFFSET: {},
    RequestCode.REGISTER_BROKER: {
        "topicConfigSerializeWrapper": {
            "topicConfigTable": {"{}": {"topicName": "{}", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4}}
        },
        "filterServerList": [],
    },
}


@pytest.fixture(autouse=True)
def allow_new_files(forbid_blocking_calls: BlockBuster) -> None:
    """Let the stores of this test make files."""
    excuse_new_files(forbid_blocking_calls)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """`eruca up` in a process of its own."""
    served = Serving(tmp_path)
    yield served
    assert served.end() == 0


# --- CVE-2019-17572 -------------------------------------------------------------------------------------------------


def list_requests(code: int, evil: str) -> Iterator[tuple[dict[str, str], bytes]]:
    """A request with the name in each of its texts at a time, in all of them, and in its body."""
    fields = msgspec.structs.fields(find_spec(code).header)
    usual = {field.encode_name: _make_usual(field) for field in fields}
    texts = [field.encode_name for field in fields if "str" in str(field.type)]
    body = json.dumps(BODIES.get(RequestCode(code), {})).replace("{}", evil.replace("\\", "\\\\")).encode()
    for name in texts:
        yield usual | {name: evil}, body
    yield usual | dict.fromkeys(texts, evil), body
    if not texts:
        yield usual, body


def _make_usual(field: msgspec.structs.FieldInfo) -> str:
    kind = str(field.type)
    if "str" in kind:
        return "T"
    return "false" if "bool" in kind else "0"


async def test_cve_2019_17572_no_name_leads_out_of_the_store(tmp_path: Path) -> None:
    canary = tmp_path / "a" / "b" / "escaped" / "0" / "00000000000000000000"
    await asyncio.to_thread(canary.parent.mkdir, parents=True)
    await asyncio.to_thread(canary.write_bytes, b"precious")
    async with run_victims(tmp_path) as victims:
        before = await asyncio.to_thread(victims.list_paths)
        for address, handlers, probe in (
            (victims.broker.standing.address, victims.broker.ports.handlers, RequestCode.GET_BROKER_RUNTIME_INFO),
            (victims.nameserver.address, victims.nameserver.server.handlers, RequestCode.GET_NAMESRV_CONFIG),
        ):
            assert len(handlers) > 15
            for code in sorted(handlers):
                async with open_attacker(address) as attacker:
                    for evil in EVIL:
                        for fields, body in list_requests(code, evil):
                            await attacker.ask_blindly(code, fields, body, probe)
        names = [*victims.broker.topics.names(), *victims.broker.groups.names()]
        names += [name for pair in victims.broker.offsets.pairs() for name in pair]
        assert [name for name in names if name in EVIL or "escaped" in name] == []
        assert [name for name in victims.nameserver.routes.list_topics() if "escaped" in name] == []
    assert await asyncio.to_thread(canary.read_bytes) == b"precious"
    after = await asyncio.to_thread(victims.list_paths)
    assert {path for path in after - before if not path.startswith("a/b/c/")} == set()
    assert [path for path in after - before if "escaped" in path] == []
    files = await asyncio.to_thread(victims.read_files)
    # The values of the key-value config are free texts; everything else only has names that passed the check.
    told = [path for path, data in files.items() if b"escaped" in data and path not in before]
    assert {Path(path).name.removesuffix(".bak") for path in told} <= {"kvConfig.json"}


@pytest.mark.parametrize("evil", EVIL)
async def test_cve_2019_17572_what_creates_a_topic_or_group_refuses_the_name(tmp_path: Path, evil: str) -> None:
    sent = {"a": "p", "b": evil, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "k": "false"}
    topic = {
        "topic": evil,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    queue = {"consumerGroup": "G", "topic": evil, "queueId": "0", "commitOffset": "1"}
    async with (
        run_victims(tmp_path) as victims,
        open_attacker(victims.broker.standing.address) as attacker,
    ):
        refusals = [
            await attacker.ask(RequestCode.SEND_MESSAGE_V2, sent, b"x"),
            await attacker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic),
            await attacker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, queue),
            await attacker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, queue | {"topic": "T", "consumerGroup": evil}),
            await attacker.ask(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps({"groupName": evil}).encode()
            ),
        ]
        assert [heard.code for heard in refusals if heard.code == ResponseCode.SUCCESS] == []


# --- CVE-2023-33246 -------------------------------------------------------------------------------------------------


async def test_cve_2023_33246_options_of_a_broker_do_not_become_commands(serving: Serving, tmp_path: Path) -> None:
    pwned = tmp_path / "pwned"
    files = await asyncio.to_thread(_read_small_files, serving.directory)
    async with open_attacker(serving.broker) as attacker:
        for home in (f"-c $@|sh . echo touch {pwned};", f"/tmp;touch {pwned};", f"$(touch {pwned})", "-c {touch,x}"):
            for body in (
                f"filterServerNums=1\nrocketmqHome={home}",
                f"rocketmqHome={home}\nfilterServerNums=1\n",
                f"rocketmqHome={home}",
                f"filterServerNums={home}",
                f"filterServerNums=1\\nrocketmqHome\\={home}",
                f" rocketmqHome = {home}",
                "rocketmq\\u0048ome=" + home,
            ):
                heard = await attacker.ask(25, {}, body.encode())
                assert heard.code != ResponseCode.SUCCESS, body
        shown = (await attacker.ask(26)).body.decode()
        assert "rocketmqHome=\n" in shown + "\n" and "filterServerNums=0\n" in shown + "\n"
        # The harmless half of it is an option that can be changed, and starts nothing.
        assert (await attacker.ask(25, {}, b"filterServerNums=1")).code == ResponseCode.SUCCESS
        assert (await attacker.ask(25, {}, b"filterServerNums=0")).code == ResponseCode.SUCCESS
    assert not await asyncio.to_thread(pwned.exists)
    assert await asyncio.to_thread(_list_children, serving.process.pid) == []
    after = await asyncio.to_thread(_read_small_files, serving.directory)
    changed = {path for path in after if after[path] != files.get(path)}
    assert {Path(path).name for path in changed if "options" in path.lower()} == {"erucaOptions.properties"}
    assert not [path for path, data in after.items() if b"rocketmqHome" in data or b"touch" in data]


def _read_small_files(top: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(top)): path.read_bytes()
        for path in top.rglob("*")
        if path.is_file() and path.stat().st_size < 100_000
    }


def _list_children(pid: int) -> list[str]:
    return [
        child
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text(encoding="ascii").split()
    ]


def list_fixed_keys() -> list[str]:
    """Options that must not change while a broker runs: identity, paths, secrets, and all that declare nothing else."""
    fixed = [info.java for part in (BrokerOptions, StoreOptions) for info in info_of(part).values() if not info.mutable]
    return [*fixed, *IGNORED, "brokerConfigPath", "noSuchOption"]


async def test_cve_2023_33246_identity_paths_and_secrets_cannot_be_changed(tmp_path: Path) -> None:
    async with run_victims(tmp_path) as victims, open_attacker(victims.broker.standing.address) as attacker:
        options = victims.broker.options
        for key in list_fixed_keys():
            heard = await attacker.ask(25, {}, f"{key}={tmp_path}/pwned\nbrokerPermission=2".encode())
            assert heard.code == ResponseCode.NO_PERMISSION, (key, heard)
        assert victims.broker.options == options
        assert not await asyncio.to_thread((tmp_path / "a/b/c/broker.conf").exists)
    assert not await asyncio.to_thread((tmp_path / "pwned").exists)


def test_no_secret_or_text_can_be_changed_while_a_server_runs() -> None:
    """A number cannot become a path or a command. The one text is checked, character by character."""
    for options in (BrokerOptions(), StoreOptions(), NameServerOptions()):
        for name, info in info_of(options).items():
            if info.mutable:
                assert not info.secret, info.java
                assert not isinstance(getattr(options, name), str) or info.check is not None, info.java


# --- CVE-2023-37582 -------------------------------------------------------------------------------------------------


async def test_cve_2023_37582_options_of_a_name_server_do_not_become_files(serving: Serving, tmp_path: Path) -> None:
    pwned = tmp_path / "pwned"
    files = await asyncio.to_thread(_read_small_files, serving.directory)
    async with open_attacker(serving.names) as attacker:
        for key in ("configStorePath", "kvConfigPath", "rocketmqHome", "configBlackList", "bindAddress", "listenPort"):
            for body in (
                f"{key}={pwned}\nproductEnvName=x\\n* * * * * root touch {pwned}\\n",
                f"orderMessageEnable=true\n{key}={pwned}",
                f" {key} = {pwned}",
                f"{key}:{pwned}",
                f"{key[0]}\\u{ord(key[1]):04x}{key[2:]}={pwned}",
                f"orderMessageEnable=true\\n{key}\\={pwned}",
            ):
                heard = await attacker.ask(318, {}, body.encode())
                assert heard.code != ResponseCode.SUCCESS, body
        # The first repair was undone by emptying the list of forbidden keys.
        assert (await attacker.ask(318, {}, b"configBlackList=")).code == ResponseCode.NO_PERMISSION
        assert (await attacker.ask(318, {}, f"configStorePath={pwned}".encode())).code == ResponseCode.NO_PERMISSION
        shown = (await attacker.ask(319)).body.decode()
        assert str(pwned) not in shown and "orderMessageEnable=false" in shown
    assert not await asyncio.to_thread(pwned.exists)
    after = await asyncio.to_thread(_read_small_files, serving.directory)
    assert {path for path in after if after[path] != files.get(path) and "namesrv" in path} == set()


# --- CVE-2024-23321 -------------------------------------------------------------------------------------------------


async def test_cve_2024_23321_no_answer_shows_a_secret(tmp_path: Path) -> None:
    secret = "hunter2-in-every-secret-option"
    options = {name: secret for name, info in info_of(BrokerOptions).items() if info.secret}
    for_nameserver = {name: secret for name, info in info_of(NameServerOptions).items() if info.secret}
    assert options
    async with run_victims(tmp_path, for_nameserver, **options) as victims:
        for address, handlers, probe in (
            (victims.broker.standing.address, victims.broker.ports.handlers, RequestCode.GET_BROKER_RUNTIME_INFO),
            (victims.nameserver.address, victims.nameserver.server.handlers, RequestCode.GET_NAMESRV_CONFIG),
        ):
            async with open_attacker(address) as attacker:
                for code in [RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, *sorted(handlers)]:
                    heard = await attacker.ask_blindly(code, {}, b"", probe)
                    assert heard is None or secret.encode() not in heard.everything, code
        async with open_attacker(victims.broker.standing.address) as attacker:
            heard = await attacker.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
            assert heard.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            shown = (await attacker.ask(RequestCode.GET_BROKER_CONFIG)).body.decode()
            assert f"etcdEndpoints={HIDDEN}" in shown


# --- the open name server -------------------------------------------------------------------------------------------


async def test_open_name_server_a_stranger_does_not_take_over_a_broker_name(tmp_path: Path) -> None:
    """Also without accounts: a registered master stays in the routes, whoever claims its name."""
    async with run_victims(tmp_path) as victims, open_attacker(victims.nameserver.address) as attacker:
        victims.broker.topics.create_internal("orders", 4)
        await _wait_for_route(attacker, "orders")
        before = await attacker.ask(105, {"topic": "orders"})
        claim = {
            "brokerName": "broker-a",
            "brokerAddr": "127.0.0.1:9",
            "clusterName": "DefaultCluster",
            "haServerAddr": "127.0.0.1:10",
            "brokerId": "0",
            "compressed": "false",
            "bodyCrc32": "0",
        }
        table: dict[str, Any] = {
            "topicConfigSerializeWrapper": {
                "topicConfigTable": {"orders": {"topicName": "orders", "perm": 6, "readQueueNums": 1}},
                "dataVersion": {"timestamp": 9_999_999_999_999, "counter": 999},
            }
        }
        for more in ({}, {"erucaEpoch": "9223372036854775807"}, {"erucaEpoch": "5000", "erucaStore": "made-up"}):
            heard = await attacker.ask(103, claim | more, json.dumps(table).encode())
            assert heard.code != ResponseCode.SUCCESS, more
        assert (await attacker.ask(105, {"topic": "orders"})).body == before.body
        assert victims.broker.standing.writable


ACCOUNTS = """
accounts:
- {accessKey: brokers-of-a, secretKey: secret-of-brokers, broker: true}
- {accessKey: administrator, secretKey: secret-of-admin, admin: true}
- {accessKey: shopkeeper, secretKey: secret-of-shop, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}
"""


async def test_open_name_server_with_accounts_strangers_change_nothing(tmp_path: Path) -> None:
    """Neither a new broker for a topic of others, nor the end of a broker, nor key-value config, nor options."""
    accounts = tmp_path / "plain_acl.yml"
    await asyncio.to_thread(accounts.write_text, ACCOUNTS)
    environment = {"ERUCA_BROKER_ACCESS_KEY": "brokers-of-a", "ERUCA_BROKER_SECRET_KEY": "secret-of-brokers"}
    more = ["--option", "aclEnable=true", "--option", f"aclFile={accounts}"]
    serving = await asyncio.to_thread(Serving, tmp_path, *more, environment=environment)
    admin = Credentials("administrator", "secret-of-admin")
    try:
        async with open_attacker(serving.names) as watcher, open_attacker(serving.names) as attacker:
            await _wait_for_route(watcher, "TBW102", admin)
            before = (await watcher.ask(106, sign_fields(106, {}, b"", admin))).body
            files = await asyncio.to_thread(_read_small_files, serving.directory)
            name = {"brokerName": "broker-a", "brokerAddr": serving.broker, "clusterName": "DefaultCluster"}
            other = {"brokerName": "evil", "brokerAddr": "127.0.0.1:9", "clusterName": "DefaultCluster"}
            stolen = json.dumps(
                {"topicConfigSerializeWrapper": {"topicConfigTable": {"TBW102": {"topicName": "TBW102", "perm": 7}}}}
            ).encode()
            for code, fields, body in (
                (103, other | {"brokerId": "0", "haServerAddr": "", "compressed": "false", "bodyCrc32": "0"}, stolen),
                (104, name | {"brokerId": "0"}, b""),
                (100, {"namespace": "n", "key": "k", "value": "v"}, b""),
                (102, {"namespace": "n", "key": "k"}, b""),
                (205, {"brokerName": "broker-a"}, b""),
                (216, {"topic": "TBW102"}, b""),
                (318, {}, b"orderMessageEnable=true"),
            ):
                for who in (None, Credentials("administrator", "guessed"), Credentials("shopkeeper", "secret-of-shop")):
                    heard = await attacker.ask(
                        code, fields if who is None else sign_fields(code, fields, body, who), body
                    )
                    assert heard.code != ResponseCode.SUCCESS, (code, who)
            # An administrator is not a broker.
            fields = other | {"brokerId": "0", "haServerAddr": "", "compressed": "false", "bodyCrc32": "0"}
            assert (
                await attacker.ask(103, sign_fields(103, fields, stolen, admin), stolen)
            ).code != ResponseCode.SUCCESS
            assert (await watcher.ask(106, sign_fields(106, {}, b"", admin))).body == before
        after = await asyncio.to_thread(_read_small_files, serving.directory)
        assert {path for path in after if after[path] != files.get(path) and "namesrv" in path} == set()
    finally:
        assert await asyncio.to_thread(serving.end) == 0


async def _wait_for_route(attacker: Attacker, topic: str, account: Credentials | None = None) -> Heard:
    fields = {"topic": topic}
    signed = fields if account is None else sign_fields(105, fields, b"", account)
    while (heard := await attacker.ask(105, signed)).code != ResponseCode.SUCCESS:
        pass
    return heard


# --- forged message ids ---------------------------------------------------------------------------------------------


class Trap:
    """A port that nobody must connect to."""

    def __init__(self) -> None:
        self.visits = 0

    async def open(self) -> int:
        """Listen; return the port."""
        self._server = await asyncio.start_server(self._note, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _note(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        writer.close()

    async def close(self) -> None:
        """Close the port."""
        self._server.close()
        await self._server.wait_closed()


async def _store_one(victims: Victims) -> str:
    async with open_attacker(victims.broker.standing.address) as producer:
        fields = {"a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
        return (await producer.ask(310, fields, b"hello")).fields["msgId"]


async def test_forged_message_ids_lead_to_no_other_address(tmp_path: Path) -> None:
    trap = Trap()
    port = await trap.open()
    async with run_victims(tmp_path) as victims:
        real = await _store_one(victims)
        forged = [
            f"7F000001{port:08X}{real[16:]}",
            f"{'0' * 22}FFFF7F000001{port:08X}{real[16:]}"[-56:],
            f"{'0' * 31}1{port:08X}{real[16:]}",
        ]
        keys = {"access_key": "operator", "secret_key": "do-not-show-me-to-strangers"}
        options = ClientOptions(nameservers=victims.nameserver.address, **keys)  # type: ignore[arg-type]
        async with PullConsumer(group="g", options=options) as consumer:
            for made_up in forged:
                with pytest.raises(NoRoute, match="this cluster has none there"):
                    await consumer.view(made_up)
            assert (await consumer.view(real)).body == b"hello"
        async with Admin(options=options) as admin:
            for made_up in forged:
                with pytest.raises(NoRoute):
                    await admin.connection.reader.view(made_up)
            found = await admin.connection.reader.view(real)
            assert (found.body, found.queue.broker_name) == (b"hello", "broker-a")
    assert trap.visits == 0
    await trap.close()
