"""Accounts changed by requests (50 to 53), as Java's tools do it."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eruca._access.options import AccessOptions
from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._ground.yamlfiles import read_yaml, write_yaml
from eruca._net.caller import Caller
from eruca._wire import headers as h
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.command import Command, make_request
from eruca._wire.signature import Credentials
from eruca.errors import ConfigError
from tests.accounts import ADMIN, describe, enable_accounts, signed
from tests.integration.broker.conftest import MakePeer
from tests.integration.broker.peer import TIMEOUT_MS, find_port
from tests.security.guarded import SMALL

SHOP = Credentials("shop-account", "secret-of-the-shop")
BROKER = Credentials("broker-account", "secret-of-the-broker")
MORE = Credentials("more-account", "secret-of-more")
UPDATE, DELETE = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG
SET_WHITE, SHOW = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, RequestCode.GET_BROKER_CLUSTER_ACL_INFO


@pytest.fixture
def access(tmp_path: Path) -> AccessOptions:
    """Accounts in two files, with keys that are not ours."""
    shop = describe(SHOP, note="ours", topicPerms=["orders=PUB"])
    options = enable_accounts(tmp_path / "conf", shop, describe(BROKER, broker=True), somethingElse=[1, 2])
    more = tmp_path / "conf" / "acl" / "more.yml"
    more.parent.mkdir()
    more.write_text(f"accounts:\n- accessKey: {MORE.access_key}\n  secretKey: {MORE.secret_key}\n")
    return options


class Operator:
    """Sends requests that are signed by the admin."""

    def __init__(self, broker: Broker, access: AccessOptions) -> None:
        self.broker = broker
        self.path = Path(access.file)
        self._caller = Caller()

    async def ask(self, code: int, header: h.Header | None = None, who: Credentials = ADMIN) -> Command:
        command = signed(make_request(code, header), who)
        return await self._caller.call(self.broker.standing.address, command, TIMEOUT_MS)

    async def read(self, path: Path | None = None) -> dict[str, Any]:
        return await asyncio.to_thread(read_yaml, path or self.path)

    async def close(self) -> None:
        await self._caller.close()


@pytest.fixture
async def operator(tmp_path: Path, access: AccessOptions) -> AsyncIterator[Operator]:
    broker = Broker(BrokerOptions(port=find_port()), SMALL, tmp_path / "store", access=access)
    await broker.start()
    made = Operator(broker, access)
    yield made
    await made.close()
    await broker.stop()


def get_max(topic: str) -> tuple[int, h.Header]:
    return RequestCode.GET_MAX_OFFSET, h.QueueHeader(topic, 0)


async def test_a_new_account_can_be_used_at_once(operator: Operator) -> None:
    new = Credentials("new-account", "12345678")
    header = h.UpdateAccountHeader(
        new.access_key,
        new.secret_key,
        white_remote_address="10.1.1.*",
        admin=False,
        default_topic_perm="DENY",
        default_group_perm="SUB",
        topic_perms="orders=SUB,other=PUB|SUB",
        group_perms="billing=DENY",
    )
    answer = await operator.ask(UPDATE, header)
    assert (answer.code, answer.remark, answer.body) == (ResponseCode.SUCCESS, None, b"")
    assert (await operator.ask(*get_max("orders"), new)).code == ResponseCode.SUCCESS
    refused = await operator.ask(*get_max("third"), new)
    assert refused.remark == "org.apache.rocketmq.acl.common.AclException: No default permission for topic:third"

    document = await operator.read()
    assert document["somethingElse"] == [1, 2]
    assert document["dataVersion"][0]["counter"] == 1
    assert document["accounts"][-1] == {
        "accessKey": "new-account",
        "secretKey": "12345678",
        "whiteRemoteAddress": "10.1.1.*",
        "admin": False,
        "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "SUB",
        "topicPerms": ["orders=SUB", "other=PUB|SUB"],
        "groupPerms": ["billing=DENY"],
    }
    assert stat.S_IMODE((await asyncio.to_thread(operator.path.stat)).st_mode) == 0o600


async def test_the_given_fields_of_an_account_change(operator: Operator) -> None:
    await asyncio.to_thread(operator.path.chmod, 0o644)
    again = Credentials(SHOP.access_key, "another-secret")
    answer = await operator.ask(
        UPDATE, h.UpdateAccountHeader(SHOP.access_key, again.secret_key, topic_perms="orders=SUB")
    )
    assert answer.code == ResponseCode.SUCCESS
    assert "Check signature failed" in ((await operator.ask(*get_max("orders"), SHOP)).remark or "")
    assert (await operator.ask(*get_max("orders"), again)).code == ResponseCode.SUCCESS
    document = await operator.read()
    (shop,) = [one for one in document["accounts"] if one["accessKey"] == SHOP.access_key]
    assert (shop["note"], shop["topicPerms"]) == ("ours", ["orders=SUB"])
    assert stat.S_IMODE((await asyncio.to_thread(operator.path.stat)).st_mode) == 0o600


async def test_an_account_changes_in_the_file_that_it_is_in(operator: Operator) -> None:
    more = operator.path.parent / "acl" / "more.yml"
    before = await operator.read()
    answer = await operator.ask(UPDATE, h.UpdateAccountHeader(MORE.access_key, MORE.secret_key, admin=True))
    assert answer.code == ResponseCode.SUCCESS
    assert await operator.read() == before
    assert (await operator.read(more))["accounts"][0]["admin"] is True
    assert (await operator.ask(RequestCode.GET_BROKER_CONFIG, None, MORE)).code == ResponseCode.SUCCESS


async def test_a_deleted_account_is_refused_at_once(operator: Operator) -> None:
    assert (await operator.ask(DELETE, h.AccessKeyHeader(SHOP.access_key))).code == ResponseCode.SUCCESS
    assert "Check signature failed" in ((await operator.ask(*get_max("orders"), SHOP)).remark or "")
    again = await operator.ask(DELETE, h.AccessKeyHeader(SHOP.access_key))
    assert (again.code, again.remark) == (
        ResponseCode.DELETE_ACL_CONFIG_FAILED,
        "The accesskey[shop-account] corresponding to accessConfig has been deleted failed.",
    )


async def test_white_addresses(operator: Operator) -> None:
    answer = await operator.ask(SET_WHITE, h.WhiteAddressesHeader("10.1.1.1, 127.0.0.*"))
    assert answer.code == ResponseCode.SUCCESS
    assert (await operator.read())["globalWhiteRemoteAddresses"] == ["10.1.1.1", "127.0.0.*"]
    unknown = Credentials("who-is-this", "whatever")
    assert (await operator.ask(*get_max("orders"), unknown)).code == ResponseCode.SUCCESS
    more = operator.path.parent / "acl" / "more.yml"
    assert (await operator.ask(SET_WHITE, h.WhiteAddressesHeader("", str(operator.path)))).code == ResponseCode.SUCCESS
    assert (await operator.ask(SET_WHITE, h.WhiteAddressesHeader("10.1.1.2", str(more)))).code == ResponseCode.SUCCESS
    assert (await operator.read(more))["globalWhiteRemoteAddresses"] == ["10.1.1.2"]
    assert "Check signature failed" in ((await operator.ask(*get_max("orders"), unknown)).remark or "")


@pytest.mark.parametrize("path", ["/etc/passwd", "../../store/config/topics.json", "plain_acl.yml"])
async def test_only_files_of_accounts_are_changed(operator: Operator, path: str) -> None:
    before = await operator.read()
    answer = await operator.ask(SET_WHITE, h.WhiteAddressesHeader("10.1.1.1", path))
    assert answer.code == ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
    assert answer.remark == f"{path} is not a file of accounts"
    assert await operator.read() == before


async def test_versions(operator: Operator) -> None:
    await operator.ask(UPDATE, h.UpdateAccountHeader(MORE.access_key, MORE.secret_key))
    answer = await operator.ask(SHOW)
    header = answer.decode_header(h.AclVersionAnswerHeader)
    assert json.loads(header.version) == {"counter": 0, "timestamp": 0}
    versions = json.loads(header.all_acl_file_version or "")
    more = str(operator.path.parent / "acl" / "more.yml")
    assert {path: version["counter"] for path, version in versions.items()} == {str(operator.path): 0, more: 1}
    assert versions[more]["timestamp"] > 1_700_000_000_000
    options = operator.broker.options
    assert (header.broker_name, header.cluster_name) == (options.name, options.cluster)
    assert header.broker_addr == operator.broker.standing.address


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (h.UpdateAccountHeader("short", "long-enough"), "accessKey has 5 characters"),
        (h.UpdateAccountHeader("long-enough", "hidde"), "secretKey has 5 characters"),
        (h.UpdateAccountHeader("long-enough"), "needs a secretKey"),
        (h.UpdateAccountHeader("long-enough", "hidden\x00\nsecret"), "secretKey has characters that cannot be printed"),
        (h.UpdateAccountHeader("x" * 300, "hidden-secret"), "accessKey has 300 characters"),
        (h.UpdateAccountHeader("long-enough", "hidden-secret", topic_perms="orders"), "'orders' is not NAME=PERM"),
        (h.UpdateAccountHeader("long-enough", "hidden-secret", group_perms="g=ALL"), "'ALL' is not a permission"),
        (h.UpdateAccountHeader("long-enough", "hidden-secret", default_topic_perm="X"), "'X' is not a permission"),
        (h.UpdateAccountHeader("long-enough", "hidden-secret", white_remote_address="x"), "'x' is not an address"),
    ],
)
async def test_what_is_not_valid_changes_nothing(
    operator: Operator, header: h.UpdateAccountHeader, problem: str
) -> None:
    before, book = await operator.read(), operator.broker.access.book
    answer = await operator.ask(UPDATE, header)
    assert answer.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
    assert answer.remark is not None and problem in answer.remark
    assert "hidde" not in answer.remark
    assert await operator.read() == before and operator.broker.access.book is book


async def test_an_admin_cannot_take_the_right_of_a_broker(operator: Operator) -> None:
    """A new secret for its account would do."""
    before = await operator.read()
    taken = await operator.ask(UPDATE, h.UpdateAccountHeader(BROKER.access_key, "known-to-the-admin"))
    assert (taken.code, taken.remark) == (
        ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
        "account broker-account has a right that is changed only in the file of accounts",
    )
    gone = await operator.ask(DELETE, h.AccessKeyHeader(BROKER.access_key))
    assert gone.code == ResponseCode.DELETE_ACL_CONFIG_FAILED
    assert await operator.read() == before


async def test_an_admin_cannot_take_a_right_that_was_just_given(operator: Operator) -> None:
    """The file of accounts has changed, and the broker has not read it again yet."""
    document = await operator.read()
    shop = next(one for one in document["accounts"] if one["accessKey"] == SHOP.access_key)
    shop["broker"] = True
    await operator.broker.access.stop()  # it will not
    await asyncio.to_thread(operator.path.write_bytes, write_yaml(document))
    taken = await operator.ask(UPDATE, h.UpdateAccountHeader(SHOP.access_key, "known-to-the-admin"))
    assert taken.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
    assert "is changed only in the file" in (taken.remark or "")
    assert await operator.read() == document


async def test_a_file_that_is_wrong_meanwhile_is_not_changed(operator: Operator) -> None:
    await asyncio.to_thread(operator.path.write_text, "accounts: [half an edit")
    answer = await operator.ask(UPDATE, h.UpdateAccountHeader("long-enough", "hidden-secret"))
    assert answer.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
    assert f"{operator.path} is not YAML" in (answer.remark or "")
    assert await asyncio.to_thread(operator.path.read_text) == "accounts: [half an edit"


async def test_changes_at_the_same_time_are_all_made(operator: Operator) -> None:
    names = [f"account-{number}" for number in range(20)]
    answers = await asyncio.gather(
        *[operator.ask(UPDATE, h.UpdateAccountHeader(name, f"secret-of-{name}")) for name in names]
    )
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    assert set(names) <= set(operator.broker.access.book.accounts)
    document = await operator.read()
    assert document["dataVersion"][0]["counter"] == len(names)
    assert set(names) <= {one["accessKey"] for one in document["accounts"]}


async def test_without_accounts_there_is_nothing_to_change(broker: Broker, make_peer: MakePeer) -> None:
    peer = make_peer(broker)
    problem = "this broker has no accounts: set aclEnable=true"
    assert await peer.refused(UPDATE, h.UpdateAccountHeader("long-enough", "hidden-secret")) == (209, problem)
    assert await peer.refused(DELETE, h.AccessKeyHeader("long-enough")) == (210, problem)
    assert await peer.refused(SET_WHITE, h.WhiteAddressesHeader("*")) == (211, problem)
    # Java's broker does not answer this at all.
    assert await peer.refused(SHOW) == (1, problem)


async def test_a_start_without_accounts_fails_before_the_store_is_opened(tmp_path: Path) -> None:
    missing = AccessOptions(enabled=True, file=str(tmp_path / "none.yml"))
    broker = Broker(BrokerOptions(port=find_port()), SMALL, tmp_path / "store", access=missing)
    with pytest.raises(ConfigError, match="`eruca init`"):
        await broker.start()
    assert not await asyncio.to_thread((tmp_path / "store").exists)
