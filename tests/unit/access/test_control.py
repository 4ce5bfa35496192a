"""Access control: who is refused, with which words, and how changes of the files take effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eruca._access.control import AccessControl
from eruca._access.options import AccessOptions
from eruca._net.handlers import refuse_unknown
from eruca._net.link import Handler, Link
from eruca._net.networks import WHITE_LISTED
from eruca._wire import headers as h
from eruca._wire.catalog import find_spec
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.command import Command, make_request
from eruca._wire.frame import FrameBuffer, encode_command
from eruca._wire.signature import ACCESS_KEY, SIGNATURE, Credentials, build_content, sign_content
from eruca.errors import ConfigError, RequestRefused
from tests.accounts import ADMIN, describe, enable_accounts, signed, write_accounts

SHOP = Credentials("shop-account", "secret-of-the-shop")
BROKER = Credentials("broker-account", "secret-of-the-broker")
BOUND = Credentials("bound-account", "secret-of-the-bound")
PRINT = "0a" * 32
JAVA = "org.apache.rocketmq.acl.common.AclException: "


class Owner:
    """Collects what links complain about."""

    def __init__(self) -> None:
        self.handlers: Mapping[int, Handler] = {}
        self.handle_unknown: Handler = refuse_unknown
        self.unsent_bytes_max = 0
        self.reports: list[str] = []

    def on_open(self, link: Link) -> None: ...
    def on_close(self, link: Link) -> None: ...
    def on_held(self, link: Link, size: int) -> None: ...
    def on_stray(self, link: Link) -> None: ...

    def on_refused(self, link: Link, error: Exception) -> Exception:
        return error

    def report(self, link: Link, reason: str) -> None:
        self.reports.append(reason)


def make_link(host: str = "127.0.0.1", certificate: str | None = None) -> Link:
    link = Link(Owner(), serves=True)
    link.peer_host = (host, 5000)
    link.certificate = certificate
    return link


@pytest.fixture
def options(tmp_path: Path) -> AccessOptions:
    shop = describe(SHOP, topicPerms=["orders=PUB|SUB"], groupPerms=["billing=SUB"])
    return enable_accounts(
        tmp_path,
        shop,
        describe(BROKER, broker=True),
        describe(BOUND, certificate=PRINT, topicPerms=["orders=SUB"]),
        globalWhiteRemoteAddresses=["10.9.*.*"],
        brokerRemoteAddresses=["10.8.8.8"],
        reload_ms=10_000,
    )


@pytest.fixture
async def access(options: AccessOptions) -> AsyncIterator[AccessControl]:
    control = AccessControl(options)
    await control.start()
    yield control
    await control.stop()


def check(access: AccessControl, link: Link, command: Command, topics: dict[int, str] | None = None) -> None:
    """Check a request as it arrives: as bytes."""
    (arrived,) = FrameBuffer().feed(encode_command(command))
    authorize = access.guard((topics or {}).get)
    assert authorize is not None
    authorize(link, arrived, find_spec(arrived.code))


def refused(access: AccessControl, link: Link, command: Command, topics: dict[int, str] | None = None) -> str:
    with pytest.raises(RequestRefused) as caught:
        check(access, link, command, topics)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert caught.value.remark.startswith(JAVA)
    return caught.value.remark.removeprefix(JAVA)


def pull(topic: str = "orders", group: str = "billing") -> Command:
    return make_request(
        RequestCode.PULL_MESSAGE,
        h.PullMessageHeader(
            consumer_group=group,
            topic=topic,
            queue_id=0,
            queue_offset=0,
            max_message_nums=1,
            sys_flag=0,
            commit_offset=0,
            suspend_timeout_ms=0,
            subscription_version=0,
        ),
    )


def send(topic: str = "orders") -> Command:
    header = h.SendMessageV2Header("producers", topic, "TBW102", 4, 0, 0, 1, 0)
    return make_request(RequestCode.SEND_MESSAGE_V2, header, b"body")


def test_without_accounts_there_is_no_check() -> None:
    assert AccessControl(AccessOptions()).guard() is None


async def test_signed_requests(access: AccessControl) -> None:
    link = make_link()
    accounts = [link.account]
    for command, account in (
        (send(), SHOP),
        (pull(), SHOP),
        (make_request(RequestCode.GET_BROKER_CONFIG), ADMIN),
    ):
        check(access, link, signed(command, account))
        accounts.append(link.account)
    assert accounts == [None, SHOP.access_key, SHOP.access_key, ADMIN.access_key]


async def test_unsigned_and_badly_signed_requests(access: AccessControl) -> None:
    link = make_link()
    assert refused(access, link, send()) == "No accessKey is configured"
    assert refused(access, link, make_request(RequestCode.GET_BROKER_RUNTIME_INFO)) == "No accessKey is configured"
    wrong = Credentials(SHOP.access_key, "another-secret")
    unknown = Credentials("who-is-this", SHOP.secret_key)
    # The same words for both: they do not tell which accounts exist.
    assert refused(access, link, signed(send(), wrong)) == "Check signature failed for accessKey=shop-account"
    assert refused(access, link, signed(send(), unknown)) == "Check signature failed for accessKey=who-is-this"
    changed = signed(send(), SHOP)
    changed.body = b"other"
    assert "Check signature failed" in refused(access, link, changed)
    for signature in (None, "", "AAAA", "\x00ÿ"):
        command = send()
        command.ext = {**command.ext_dict(), ACCESS_KEY: SHOP.access_key}
        if signature is not None:
            command.ext[SIGNATURE] = signature
        assert "Check signature failed" in refused(access, link, command)
    assert link.account is None


async def test_who_tries_secrets_is_a_stranger_again(access: AccessControl) -> None:
    """The number of refused requests is limited for strangers only, so an account must not help to guess another."""
    link = make_link()
    for _ in range(3):
        check(access, link, signed(send(), SHOP))
        assert link.account == SHOP.access_key
        assert "Need admin permission" in refused(
            access, link, signed(make_request(RequestCode.GET_BROKER_CONFIG), SHOP)
        )
        assert link.account == SHOP.access_key
        guess = signed(make_request(RequestCode.GET_BROKER_CONFIG), Credentials(ADMIN.access_key, "a-guessed-secret"))
        assert "Check signature failed" in refused(access, link, guess)
        assert link.account is None


async def test_an_unknown_account_costs_a_signature_too(access: AccessControl, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []

    def verify(ext: Any, body: Any, secret: str) -> bool:
        checked.append(secret)
        return False

    monkeypatch.setattr("eruca._access.control.verify", verify)
    refused(access, make_link(), signed(send(), Credentials("who-is-this", "whatever")))
    refused(access, make_link(), signed(send(), SHOP))
    assert len(checked) == 2 and checked[1] == SHOP.secret_key and len(checked[0]) > 20


async def test_a_query_by_unique_key_may_be_signed_in_either_way(access: AccessControl) -> None:
    header = h.QueryMessageHeader("orders", "key", 1, 0, 9, unique_key_query=True)
    check(access, make_link(), signed(make_request(RequestCode.QUERY_MESSAGE, header), SHOP))
    # As Java's client does it: the mark is signed too.
    command = make_request(RequestCode.QUERY_MESSAGE, header)
    ext = {**command.ext_dict(), ACCESS_KEY: SHOP.access_key}
    content = build_content(ext, b"", with_unique_key_query=True)
    assert content != build_content(ext, b"")
    command.ext = {**ext, SIGNATURE: sign_content(content, SHOP.secret_key)}
    check(access, make_link(), command)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (send("other"), "No default permission for topic:other"),
        (send("%RETRY%other"), "No default permission for group:other"),
        (pull("other"), "No default permission for topic:other"),
        (pull(group="other"), "No default permission for group:other"),
        (pull("%RETRY%other"), "No default permission for group:other"),
        (make_request(RequestCode.GET_BROKER_CONFIG), "Need admin permission for request code=26"),
        (make_request(RequestCode.UNREGISTER_BROKER), "Need broker permission for request code=104"),
        (make_request(RequestCode.REGISTER_MESSAGE_FILTER_CLASS), "Need upload permission for request code=302"),
        (make_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED), "Need server permission for request code=40"),
    ],
)
async def test_requests_of_an_account_without_the_right(access: AccessControl, command: Command, problem: str) -> None:
    link = make_link()
    assert refused(access, link, signed(command, SHOP)).startswith(problem)
    assert link.account is None


async def test_an_admin_is_neither_a_broker_nor_an_uploader(access: AccessControl) -> None:
    for code in (RequestCode.REGISTER_BROKER, RequestCode.REGISTER_MESSAGE_FILTER_CLASS):
        assert "permission for request code" in refused(access, make_link(), signed(make_request(code), ADMIN))
    check(access, make_link(), signed(make_request(RequestCode.REGISTER_BROKER), BROKER))


async def test_the_topic_at_a_position_counts(access: AccessControl) -> None:
    view = signed(make_request(RequestCode.VIEW_MESSAGE_BY_ID, h.ViewMessageHeader(7)), SHOP)
    check(access, make_link(), view, {7: "orders"})
    assert refused(access, make_link(), view, {7: "other"}) == "No default permission for topic:other"
    # There is nothing to read: the handler says so.
    check(access, make_link(), view, {})
    back = signed(make_request(RequestCode.CONSUMER_SEND_MSG_BACK, h.SendBackHeader(7, "billing", 0)), SHOP)
    check(access, make_link(), back, {7: "orders"})
    # Otherwise a group could read every message by giving it back to itself.
    assert refused(access, make_link(), back, {7: "other"}) == "No default permission for topic:other"
    end = signed(make_request(RequestCode.END_TRANSACTION, h.EndTransactionHeader("p", 1, 7, 8, "id")), SHOP)
    check(access, make_link(), end, {7: "orders"})
    assert refused(access, make_link(), end, {7: "other"}) == "No default permission for topic:other"


async def test_white_addresses(access: AccessControl) -> None:
    link = make_link("10.9.1.1")
    check(access, link, send("anything"))
    check(access, link, make_request(RequestCode.UPDATE_BROKER_CONFIG))
    assert link.account == WHITE_LISTED
    # Even there a broker needs an account: codes 50 to 53 let an admin change the list.
    for code in (RequestCode.REGISTER_BROKER, RequestCode.REGISTER_MESSAGE_FILTER_CLASS):
        assert refused(access, link, make_request(code)) == "No accessKey is configured"
    assert refused(access, make_link("10.10.1.1"), send()) == "No accessKey is configured"


async def test_addresses_of_brokers(access: AccessControl) -> None:
    link = make_link("10.8.8.8")
    for code in (RequestCode.REGISTER_BROKER, RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ROUTEINFO_BY_TOPIC):
        check(access, link, make_request(code))
    assert refused(access, link, send()) == "No accessKey is configured"
    assert refused(access, link, make_request(RequestCode.UPDATE_BROKER_CONFIG)) == "No accessKey is configured"
    # With an account, the account counts.
    assert "Need broker" in refused(access, link, signed(make_request(RequestCode.REGISTER_BROKER), SHOP))


async def test_the_white_address_of_an_account(access: AccessControl, tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    await asyncio.to_thread(write_accounts, path, describe(SHOP, whiteRemoteAddress="10.7.7.{7,8}"))
    await access.reload()
    link, elsewhere = make_link("10.7.7.8"), make_link("10.7.7.9")
    unsigned = send()
    unsigned.ext = {**unsigned.ext_dict(), ACCESS_KEY: SHOP.access_key}
    for _ in range(2):
        check(access, link, unsigned)
        assert link.account == SHOP.access_key
        assert "Check signature failed" in refused(access, elsewhere, unsigned)
    # As in Java it replaces the signature and the permissions; unlike there it makes nobody an admin.
    config = make_request(RequestCode.GET_BROKER_CONFIG)
    config.ext = {ACCESS_KEY: SHOP.access_key}
    assert "Need admin permission" in refused(access, link, config)


async def test_an_account_bound_to_a_certificate(access: AccessControl) -> None:
    at_home, elsewhere, nowhere = make_link(certificate=PRINT), make_link(certificate="0b" * 32), make_link()
    check(access, at_home, signed(pull_without_group(), BOUND))
    # On such a connection, requests without a signature are the account's.
    check(access, at_home, pull_without_group())
    assert at_home.account == BOUND.access_key
    assert refused(access, at_home, send()) == "No default permission for topic:orders"
    for link in (elsewhere, nowhere):
        assert "Check signature failed" in refused(access, link, signed(pull_without_group(), BOUND))
        assert refused(access, link, pull_without_group()) == "No accessKey is configured"
    # The signature of another account counts there too, and a wrong one is refused.
    check(access, at_home, signed(send(), SHOP))
    wrong = Credentials(BOUND.access_key, "another-secret")
    assert "Check signature failed" in refused(access, at_home, signed(pull_without_group(), wrong))


def pull_without_group() -> Command:
    return make_request(RequestCode.GET_MAX_OFFSET, h.QueueHeader("orders", 0))


async def test_refusals_are_reported_without_secrets_and_control_characters(access: AccessControl) -> None:
    link = make_link()
    refused(access, link, signed(send("a\nb\x1b[2J"), SHOP))
    refused(access, link, signed(send(), Credentials("x\n" * 400, SHOP.secret_key)))
    owner = link._owner
    assert isinstance(owner, Owner)
    assert owner.reports[0] == r"was refused: No default permission for topic:a\nb\x1b[2J (account shop-account)"
    assert all(line.isprintable() and len(line) < 300 for line in owner.reports)
    assert SHOP.secret_key not in str(owner.reports) + repr(access.book) + repr(access.options)


async def test_a_header_that_cannot_be_read_is_refused(access: AccessControl) -> None:
    command = make_request(RequestCode.GET_MAX_OFFSET)
    command.ext = msgspec.Raw(b'{"topic":["orders"]}')
    with pytest.raises(Exception, match="extFields"):
        check(access, make_link(), command)


async def test_changed_files_are_read_again_as_a_whole(
    access: AccessControl, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, link = tmp_path / "plain_acl.yml", make_link()
    check(access, link, signed(send(), SHOP))
    before = access.book
    await access.reload()
    assert access.book is before

    await asyncio.to_thread(write_accounts, path, describe(SHOP, topicPerms=["orders=PUBLISH"]))
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"account shop-account: topicPerms .* the accounts stay as they were"):
            await access.reload()
    assert access.book is before
    check(access, link, signed(send(), SHOP))

    await asyncio.to_thread(path.unlink)
    with pytest.raises(ConfigError, match="does not exist"):
        await access.reload()
    check(access, link, signed(send(), SHOP))

    with caplog.at_level(logging.INFO):
        await asyncio.to_thread(write_accounts, path, describe(SHOP, topicPerms=["orders=SUB"]))
        await access.reload()
    assert refused(access, link, signed(send(), SHOP)) == "No default permission for topic:orders"
    assert f"read 2 accounts from {path}" in caplog.text
    await asyncio.to_thread(write_accounts, path)
    await access.reload()
    assert "Check signature failed" in refused(access, link, signed(send(), SHOP))


async def test_a_start_needs_accounts(tmp_path: Path) -> None:
    control = AccessControl(AccessOptions(enabled=True, file=str(tmp_path / "none.yml")))
    with pytest.raises(ConfigError, match=r"none.yml does not exist \(`eruca init`"):
        await control.start()
    await asyncio.to_thread((tmp_path / "none.yml").write_text, "accounts: []")
    with pytest.raises(ConfigError, match=r"none.yml has no accounts \(`eruca init`"):
        await control.start()
    await control.stop()


# --- brokers among themselves ---------------------------------------------------------------------------------------


@pytest.fixture
def members(tmp_path: Path) -> AccessOptions:
    bound = describe(BOUND, broker=True, certificate=PRINT)
    return enable_accounts(tmp_path, describe(SHOP), describe(BROKER, broker=True), bound)


async def test_only_the_account_of_a_broker_has_a_secret_for_replication(members: AccessOptions) -> None:
    access = AccessControl(members)
    await access.start()
    try:
        assert access.find_broker_secret(BROKER.access_key, None) == BROKER.secret_key
        assert access.find_broker_secret(BROKER.access_key, PRINT) == BROKER.secret_key
        for other in (SHOP.access_key, ADMIN.access_key, "nobody-at-all"):
            assert access.find_broker_secret(other, PRINT) is None
        # An account that is bound to a certificate needs it here too.
        assert access.find_broker_secret(BOUND.access_key, PRINT) == BOUND.secret_key
        assert access.find_broker_secret(BOUND.access_key, None) is None
        assert access.find_certified_broker(PRINT) == BOUND.access_key
        assert access.find_certified_broker("0b" * 32) is None and access.find_certified_broker(None) is None
    finally:
        await access.stop()


def test_both_keys_of_a_server_are_needed() -> None:
    for parts in ({"broker_access_key": "members"}, {"broker_secret_key": "secret of them"}):
        with pytest.raises(ConfigError, match="belong together"):
            AccessOptions(**parts)  # type: ignore[arg-type]
    own = AccessOptions(broker_access_key="members", broker_secret_key="secret of them").credentials
    assert own == Credentials("members", "secret of them") and AccessOptions().credentials is None
