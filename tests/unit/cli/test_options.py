"""Where settings come from, which goes over which, and what is said about keys that mean nothing here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eruca._access.options import AccessOptions
from eruca._broker.options import BrokerOptions, BrokerRole
from eruca._cli.main import main
from eruca._cli.optionlist import Role, list_options, name_environment, name_flag, options_of
from eruca._cli.settings import (
    Settings,
    build_access_options,
    build_broker_options,
    build_store_options,
    choose_told_address,
    gather_settings,
    is_loopback,
    require_loopback,
)
from eruca._ground.config import FlushMode, StoreOptions
from eruca._ground.javaconf import parse_conf
from eruca._nameserver.options import NameServerOptions
from eruca._store.messagestore import open_store
from eruca._storetools.verify import verify_store
from eruca._wire.record import Record
from eruca.errors import ConfigError, InvalidName, MessageIllegal
from tests.paths import GOLDEN
from tests.store_samples import OPTIONS as SMALL
from tests.store_samples import fill_store

# What Apache RocketMQ 4.9 ships in conf/, without the licence above it.
BROKER_CONF = """
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""
SHIPPED = {
    "broker.conf": BROKER_CONF,
    "2m-noslave/broker-b.properties": BROKER_CONF.replace(" = ", "=").replace("broker-a", "broker-b"),
    "2m-2s-async/broker-a-s.properties": BROKER_CONF.replace(" = ", "=")
    .replace("brokerId=0", "brokerId=1")
    .replace("ASYNC_MASTER", "SLAVE"),
    "2m-2s-sync/broker-a.properties": BROKER_CONF.replace(" = ", "=").replace("ASYNC_MASTER", "SYNC_MASTER"),
    "dledger/broker-n0.conf": """
brokerClusterName = RaftCluster
brokerName=RaftNode00
listenPort=30911
namesrvAddr=127.0.0.1:9876
storePathRootDir=/tmp/rmqstore/node00
storePathCommitLog=/tmp/rmqstore/node00/commitlog
enableDLegerCommitLog=true
dLegerGroup=RaftNode00
dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913
## must be unique
dLegerSelfId=n0
sendMessageThreadPoolNums=16
""",
}


def gather(
    *roles: Role,
    text: str | None = None,
    directory: Path | None = None,
    environment: dict[str, str] | None = None,
    **others: Any,
) -> Settings:
    config = None
    if text is not None:
        assert directory is not None
        config = directory / "file.conf"
        config.write_text(text, encoding="utf-8")
    return gather_settings(*(roles or (Role.BROKER,)), config=config, environment=environment or {}, **others)


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "variable", "flag"),
    [
        ("listenPort", "ERUCA_LISTEN_PORT", "--listen-port"),
        ("brokerIP1", "ERUCA_BROKER_IP1", "--broker-ip1"),
        ("checkCRCOnRecover", "ERUCA_CHECK_CRC_ON_RECOVER", "--check-crc-on-recover"),
        ("mappedFileSizeCommitLog", "ERUCA_MAPPED_FILE_SIZE_COMMIT_LOG", "--mapped-file-size-commit-log"),
    ],
)
def test_a_key_is_a_variable_and_a_flag(key: str, variable: str, flag: str) -> None:
    assert (name_environment(key), name_flag(key)) == (variable, flag)


@pytest.mark.parametrize("roles", [(Role.BROKER,), (Role.NAMESERVER,), (Role.BROKER, Role.NAMESERVER)])
def test_names_are_told_apart(roles: tuple[Role, ...]) -> None:
    options = options_of(*roles).values()
    assert len({facts.environment for facts in options}) == len(options)
    assert len({facts.flag for facts in options}) == len(options)


@pytest.mark.parametrize(("code", "role"), [(26, Role.BROKER), (319, Role.NAMESERVER)])
def test_every_key_a_java_server_has_is_known(code: int, role: Role) -> None:
    rows = [json.loads(line) for line in (GOLDEN / "frames.jsonl").read_text(encoding="utf-8").splitlines()]
    (body,) = [row["bodyHex"] for row in rows if row["requestCode"] == code and row["kind"] == "response"]
    keys = parse_conf(bytes.fromhex(body).decode())
    assert len(keys) >= 20
    assert set(keys) - set(options_of(role)) == set()


# --- layers ---------------------------------------------------------------------------------------------------------


def test_flags_go_over_variables_over_the_file_over_defaults(tmp_path: Path) -> None:
    text = "brokerName=file\nbrokerClusterName=file\nlistenPort=1\nflushDiskType=SYNC_FLUSH\nnamesrvAddr=f:1\n"
    environment = {
        "ERUCA_BROKER_CLUSTER_NAME": "variable",
        "ERUCA_LISTEN_PORT": "2",
        "ERUCA_REGION_ID": "variable",
        "NAMESRV_ADDR": "java:1",
    }
    settings = gather(
        text=text,
        directory=tmp_path,
        environment=environment,
        overrides=["regionId=override", "listenPort=3"],
        flags={"listenPort": "4", "brokerName": None},
    )
    options = build_broker_options(settings)
    assert (options.name, options.cluster, options.region, options.port) == ("file", "variable", "override", 4)
    assert options.nameservers == "f:1"
    assert options.topic_queue_nums == 8
    assert settings.build(StoreOptions).flush_mode is FlushMode.SYNC
    assert settings.found["listenPort"].source == "--listen-port"
    assert settings.found["regionId"].source == "--option regionId"
    assert settings.found["brokerClusterName"].source == "the variable ERUCA_BROKER_CLUSTER_NAME"
    assert settings.found["brokerName"].source == str(tmp_path / "file.conf")
    assert settings.notes == []


def test_javas_variable_names_the_name_servers_where_nothing_else_does() -> None:
    assert gather(environment={"NAMESRV_ADDR": "a:1;b:2"}).build(BrokerOptions).nameservers == "a:1;b:2"
    both = gather(environment={"NAMESRV_ADDR": "a:1", "ERUCA_NAMESRV_ADDR": "b:2"})
    assert both.build(BrokerOptions).nameservers == "b:2"
    # `eruca up` has its own name server, and must not register with that of a cluster somebody works with.
    for settings, left in ((gather(environment={"NAMESRV_ADDR": "a:1"}), ""), (both, "b:2")):
        settings.forget("namesrvAddr", "NAMESRV_ADDR")
        assert settings.build(BrokerOptions).nameservers == left


def test_one_process_with_both_roles_keeps_their_ports_apart() -> None:
    settings = gather(Role.BROKER, Role.NAMESERVER, environment={"ERUCA_ORDER_MESSAGE_ENABLE": "true"})
    settings.suggest("listenPort", "10921")
    options = settings.build(NameServerOptions, without=["listenPort"])
    assert (options.listen_port, options.order_message_enable) == (9876, True)
    assert settings.build(BrokerOptions).port == 10921


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("listenPort=many", r"expected a whole number \(set by --option listenPort\)"),
        ("listenPort=70000", r"the maximum is 65535 \(set by"),
        ("flushDiskType=SOMETIMES", "expected one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("brokerRole=SLAVE", r"needs a brokerId above 0 \(set brokerId=1\)"),
        ("namesrvAddr=nowhere", r"'nowhere' is not host:port \(for example"),
    ],
)
def test_a_bad_value_is_refused_with_its_place(setting: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        settings = gather(overrides=[setting])
        build_broker_options(settings)
        settings.build(StoreOptions)


def test_a_master_has_the_id_of_a_master() -> None:
    settings = gather(overrides=["brokerId=3"])
    assert build_broker_options(settings).broker_id == 0
    assert "brokerId=3 becomes 0" in settings.notes[0]


# --- official files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_official_files_are_read_as_they_are(tmp_path: Path, name: str) -> None:
    settings = gather(text=SHIPPED[name], directory=tmp_path)
    options, store = build_broker_options(settings), settings.build(StoreOptions)
    is_slave = "-s." in name
    assert options.role is (
        BrokerRole.SLAVE if is_slave else BrokerRole.SYNC_MASTER if "sync/" in name and "async" not in name
        else BrokerRole.ASYNC_MASTER
    )  # fmt: skip
    assert options.broker_id == (1 if is_slave else 0)
    assert not any("not a known key" in note for note in settings.notes)
    if name.startswith("dledger"):
        assert (options.port, options.store_root) == (30911, "/tmp/rmqstore/node00")
        assert [note.split()[0] for note in settings.notes] == [
            "enableDLegerCommitLog",
            "dLegerGroup",
            "dLegerPeers",
            "dLegerSelfId",
            "sendMessageThreadPoolNums",
        ]
    else:
        assert store.retention_hours == 48


def test_the_file_of_the_golden_broker_is_read_as_it_is() -> None:
    settings = gather_settings(Role.BROKER, config=GOLDEN / "broker.properties", environment={})
    options, store = build_broker_options(settings), settings.build(StoreOptions)
    assert (options.nameservers, options.store_root) == ("127.0.0.1:9876", "/data/store")
    assert (store.commitlog_segment_bytes, store.index_entries, store.retention_hours) == (262144, 2000, 999_999)
    assert [note.partition(":")[0] for note in settings.notes] == ["haListenPort has no effect here"]


def test_keys_nobody_knows_are_named_with_the_nearest_known_one(tmp_path: Path) -> None:
    text = "listenPrt=1\nflushDiskTyp=x\nwholeNonsenseQ=1\nkvConfigPath=x\nenableLmq=true\n"
    settings = gather(text=text, directory=tmp_path, environment={"ERUCA_LISTENPORT": "1", "ERUCA_SEEDS": "9"})
    said = "\n".join(settings.notes)
    assert "the variable ERUCA_LISTENPORT is not a known one; did you mean ERUCA_LISTEN_PORT?" in said
    assert "listenPrt is not a known key; did you mean listenPort?" in said
    assert "flushDiskTyp is not a known key; did you mean flushDiskType?" in said
    assert "wholeNonsenseQ is not a known key [" in said
    assert "kvConfigPath has no effect here: it is an option of the name server" in said
    assert "enableLmq has no effect here" in said
    assert "ERUCA_SEEDS" not in said
    with pytest.raises(ConfigError, match=r"one of the name server$"):
        gather_settings(Role.BROKER, environment={}, overrides=["maxKVConfigBytes=1"])
    with pytest.raises(ConfigError, match=r"no such option \(did you mean listenPort"):
        gather(overrides=["listenPrt=1"])
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        gather(overrides=["listenPort"])


# --- who can reach us -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_word(host: str) -> None:
    require_loopback("it", host, AccessOptions(), insecure=False)
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "example.org", ""])
def test_wider_addresses_need_accounts_or_an_explicit_word(host: str) -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        require_loopback("it", host, AccessOptions(), insecure=False)
    require_loopback("it", host, AccessOptions(), insecure=True)
    require_loopback("it", host, AccessOptions(enabled=True), insecure=False)
    assert choose_told_address(host) not in ("0.0.0.0", "::")


@pytest.mark.parametrize(
    "arguments",
    [
        ["broker", "--host", "0.0.0.0"],
        ["broker", "--option", "brokerIP1=10.0.0.5"],
        ["broker", "--bind-address", "0.0.0.0"],
        ["nameserver", "--host", "0.0.0.0"],
        ["nameserver", "--bind-address", "10.0.0.5"],
        ["up", "--host", "::"],
    ],
)
def test_no_server_opens_to_others_by_itself(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments, env={"NAMESRV_ADDR": None})
    assert result.exit_code == 1
    assert "--insecure allows everyone" in result.stderr
    assert "without accounts" in result.stderr and "`eruca init`" in result.stderr


def test_accounts_allow_a_wider_address(tmp_path: Path) -> None:
    config = tmp_path / "some.conf"
    config.write_text("aclEnable=true\n", encoding="utf-8")
    for command in ("broker", "nameserver", "up", "filterserver"):
        result = CliRunner().invoke(main, [command, "-c", str(config), "--host", "10.0.0.5", "-p", "-o", "json"])
        assert result.exit_code == 0, result.stderr
        rows = {row["key"]: row["value"] for row in map(json.loads, result.stdout.splitlines())}
        assert (rows["aclEnable"], rows["aclFile"]) == ("true", str(tmp_path / "plain_acl.yml"))


def test_where_the_accounts_are(tmp_path: Path) -> None:
    assert build_access_options(gather(), tmp_path).file == str(tmp_path / "plain_acl.yml")
    given = gather(overrides=["aclFile=elsewhere.yml", "aclEnable=true"])
    assert build_access_options(given, tmp_path) == AccessOptions(enabled=True, file="elsewhere.yml")


def test_what_is_in_force_is_printed_with_its_source(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(BROKER_CONF + "transferMsgByHeap=false\n", encoding="utf-8")
    arguments = ["broker", "-c", str(config), "--listen-port", "10921", "-p", "-o", "json"]
    result = CliRunner().invoke(main, arguments, env={"ERUCA_REGION_ID": "here", "NAMESRV_ADDR": None})
    assert result.exit_code == 0, result.stderr
    rows = {row["key"]: row for row in map(json.loads, result.stdout.splitlines())}
    assert rows["listenPort"] == {"key": "listenPort", "value": "10921", "source": "--listen-port"}
    assert rows["fileReservedTime"]["source"] == str(config)
    assert rows["regionId"]["value"] == "here"
    assert rows["maxMessageSize"]["source"] == "default"
    assert result.stderr.count("transferMsgByHeap has no effect here") == 1
    assert "--listen-port" in CliRunner().invoke(main, ["broker", "start", "--help"]).stdout


# --- the store's options --------------------------------------------------------------------------------------------


def test_a_store_keeps_the_sizes_it_was_made_with(tmp_path: Path) -> None:
    fill_store(tmp_path)
    settings = gather()
    settings.suggest("mappedFileSizeCommitLog", "67108864")
    found = build_store_options(settings, tmp_path, None)
    assert found.commitlog_segment_bytes == SMALL.commitlog_segment_bytes
    assert found.consumequeue_segment_bytes == SMALL.consumequeue_segment_bytes
    new = build_store_options(settings, tmp_path / "new", None)
    assert new.commitlog_segment_bytes == 67108864
    told = gather(overrides=["mappedFileSizeCommitLog=8192"])
    assert build_store_options(told, tmp_path, None).commitlog_segment_bytes == 8192


def test_lengths_of_3x_can_be_set(tmp_path: Path) -> None:
    long_name, properties = "t" * 255, b"a\x01" + b"b" * 65533
    with pytest.raises(ConfigError, match="the maximum is 255"):
        gather(overrides=["topicNameLengthMax=256"]).build(StoreOptions)
    small = {"mappedFileSizeCommitLog": "1048576", "maxHashSlotNum": "500", "maxIndexNum": "2000"}
    limits = {"topicNameLengthMax": "255", "propertiesLengthMax": "65535"}
    settings = gather(overrides=[f"{key}={text}" for key, text in (small | limits).items()])
    store = open_store(tmp_path, settings.build(StoreOptions))
    store.append(Record(long_name, body=b"x", properties=properties))
    store.append_batch([Record(long_name, body=b"y", properties=properties)])
    with pytest.raises(InvalidName, match="the maximum is 255"):
        store.append(Record("t" * 256))
    with pytest.raises(MessageIllegal, match="the maximum is 65535"):
        store.append(Record(long_name, properties=properties + b"b"))
    store.close()
    (tmp_path / "abort").touch()
    assert verify_store(tmp_path, small).errors == 0
    # Who opens it with the lengths of 4.9 reads all of it and takes no more of that kind.
    store = open_store(tmp_path, gather(overrides=[f"{key}={text}" for key, text in small.items()]).build(StoreOptions))
    assert len(store.reader.read(long_name, 0, 0).slices) == 2
    with pytest.raises(InvalidName, match="the maximum is 127"):
        store.append(Record(long_name))
    with pytest.raises(MessageIllegal, match="the maximum is 32767"):
        store.append(Record("t", properties=properties))
    store.close()


def test_every_option_is_listed_once() -> None:
    keys = [(facts.role, facts.key) for facts in list_options()]
    assert len(keys) == len(set(keys))
    assert {facts.older for facts in list_options() if facts.older} == {"1000", "10000", "85", "255", "65535"}
