"""Every code of every server: refused without the right, and then nothing has changed; with the right, it works.

The codes are those of the tables of running servers, so none can be forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from eruca._access.options import AccessOptions
from eruca._wire.catalog import Right, find_spec
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.command import Command, make_request
from eruca._wire.headers import UpdateConsumerOffsetHeader
from eruca._wire.signature import Credentials
from tests.accounts import ADMIN, signed, write_accounts
from tests.integration.broker.conftest import excuse_new_files
from tests.security.guarded import (
    ACCOUNTS,
    FORGERIES,
    OTHER_TOPIC,
    REFUSED,
    RUN,
    SECRETS,
    SHOP,
    STRANGER,
    Guarded,
    forge,
    list_holders,
    list_lacking,
    make_access,
    run_broker,
)
from tests.security.samples import GROUP, TOPIC, Sample
from tests.unit.net.rawpeer import turn_until


@pytest.fixture(autouse=True)
def allow_new_files(forbid_blocking_calls: BlockBuster) -> None:
    """Let the stores of this test make files."""
    excuse_new_files(forbid_blocking_calls)


@pytest.fixture
def access(tmp_path: Path) -> AccessOptions:
    return make_access(tmp_path, reload_ms=20)


@pytest.fixture(params=RUN)
async def server(request: pytest.FixtureRequest, tmp_path: Path, access: AccessOptions) -> AsyncIterator[Guarded]:
    """Each server, one after the other."""
    run: Callable[..., AbstractAsyncContextManager[Guarded]] = RUN[request.param]
    async with run(tmp_path, access) as running:
        yield running


def is_refused(answer: Command) -> bool:
    """Whether an answer says that the sender lacks the right, as Java's broker says it."""
    return answer.code == ResponseCode.SYSTEM_ERROR and (answer.remark or "").startswith(REFUSED)


async def test_every_code_has_a_sample_and_a_right(server: Guarded) -> None:
    assert {RequestCode(code).name for code in server.codes} == {code.name for code in server.samples}
    assert all(find_spec(code).right not in (Right.NOBODY, Right.SERVER) for code in server.codes)


@pytest.mark.parametrize("how", FORGERIES)
async def test_nobody_gets_in_without_an_account(server: Guarded, how: str) -> None:
    before, let_in = server.digest(), []
    for address in server.addresses:
        for code, sample in server.list_requests():
            if address != server.addresses[0] and code == RequestCode.PULL_MESSAGE:
                continue  # the fast port has no pulls
            answer = await server.ask(forge(sample.build(code), how), address)
            if not is_refused(answer) or answer.body or server.digest() != before:
                let_in.append((code.name, answer.code, answer.remark))
    assert let_in == []


async def test_an_account_without_the_right_is_refused(server: Guarded) -> None:
    before, let_in, count = server.digest(), [], 0
    for code, sample in server.list_requests():
        spec = find_spec(code)
        for who in list_lacking(spec):
            count += 1
            answer = await server.ask(signed(sample.build(code), who))
            if not is_refused(answer) or answer.body or server.digest() != before:
                let_in.append((code.name, who.access_key, answer.code, answer.remark))
    assert let_in == []
    assert count >= len([code for code in server.codes if find_spec(code).right not in (Right.ACCOUNT, Right.INSPECT)])


async def test_the_group_alone_is_not_enough(server: Guarded) -> None:
    """An account with the group is refused for the topic."""
    asked = set()
    for code, sample in server.list_requests():
        if OTHER_TOPIC in list_lacking(find_spec(code)):
            asked.add(int(code))
            answer = await server.ask(signed(sample.build(code), OTHER_TOPIC))
            assert is_refused(answer) and TOPIC in (answer.remark or ""), (code.name, answer.remark)
    if RequestCode.REGISTER_MESSAGE_FILTER_CLASS in server.codes:
        assert asked == {11, 302}
    elif RequestCode.PULL_MESSAGE in server.codes:
        assert asked >= {11, 14, 15, 34, 36, 41, 42, 46}
    else:
        assert asked == set()


async def test_an_account_with_the_right_gets_what_it_asks_for(server: Guarded) -> None:
    before, failed = server.digest(), []
    for code, sample in server.list_requests():
        answer = await server.ask(signed(sample.build(code), list_holders(find_spec(code))[0]))
        if answer.code != sample.expected:
            failed.append((code.name, answer.code, answer.remark))
    assert failed == []
    assert server.digest() != before


async def test_no_other_account_that_has_the_right_is_refused(server: Guarded) -> None:
    failed = []
    for code, sample in server.list_requests():
        for who in list_holders(find_spec(code))[1:]:
            answer = await server.ask(signed(sample.build(code), who))
            if is_refused(answer):
                failed.append((code.name, who.access_key, answer.remark))
    assert failed == []


async def test_codes_that_no_server_has_stay_unknown(server: Guarded) -> None:
    """Accounts with their secrets (54, removed in 4.9.8) and constants that nobody uses."""
    is_nameserver = RequestCode.REGISTER_BROKER in server.codes
    for code in RequestCode:
        if find_spec(code).right is not Right.NOBODY or is_nameserver:
            continue
        answer = await server.ask(signed(make_request(code), ADMIN))
        assert (answer.code, answer.body) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, b""), code.name
    assert RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG not in server.codes


# --- one way, large bodies, other kinds of headers --------------------------------------------------------------------


async def test_requests_without_an_answer_are_checked_too(tmp_path: Path, access: AccessOptions) -> None:
    async with run_broker(tmp_path, access) as server:
        before = server.digest()

        async def commit(offset: int, who: Credentials | None) -> None:
            header = UpdateConsumerOffsetHeader(GROUP, TOPIC, 0, offset)
            command = signed(make_request(RequestCode.UPDATE_CONSUMER_OFFSET, header, oneway=True), who)
            await server.caller.notify(server.addresses[0], command)

        for who in (None, STRANGER, Credentials(SHOP.access_key, "a-guessed-secret")):
            await commit(2, who)
        # Requests of one connection are handled in order: after this answer the others are done.
        assert (await server.ask(signed(make_request(RequestCode.GET_BROKER_RUNTIME_INFO), STRANGER))).code == 0
        assert server.digest() == before
        await commit(2, SHOP)
        await server.ask(signed(make_request(RequestCode.GET_BROKER_RUNTIME_INFO), STRANGER))
        assert server.digest() != before


# --- addresses --------------------------------------------------------------------------------------------------------


async def test_white_listed_addresses_need_no_account(tmp_path: Path, access: AccessOptions) -> None:
    path = Path(access.file)
    await asyncio.to_thread(write_accounts, path, *ACCOUNTS, globalWhiteRemoteAddresses=["10.0.0.1", "127.0.0.*"])
    async with run_broker(tmp_path, access) as server:
        refused = []
        for code, sample in server.list_requests():
            if find_spec(code).right is Right.ADMIN:
                continue  # the next requests need what these change
            answer = await server.ask(sample.build(code))
            if is_refused(answer):
                refused.append(code)
        assert refused == [RequestCode.REGISTER_FILTER_SERVER]
        config = await server.ask(make_request(RequestCode.GET_BROKER_CONFIG))
        assert config.code == ResponseCode.SUCCESS


async def test_the_list_of_addresses_can_be_emptied_while_it_runs(
    tmp_path: Path, access: AccessOptions, caplog: pytest.LogCaptureFixture
) -> None:
    path, everyone = Path(access.file), ["*"]
    ask_config = Sample()
    await asyncio.to_thread(write_accounts, path, *ACCOUNTS, globalWhiteRemoteAddresses=everyone)
    async with run_broker(tmp_path, access) as server:
        code = RequestCode.GET_BROKER_CONFIG
        assert (await server.ask(ask_config.build(code))).code == ResponseCode.SUCCESS
        await asyncio.to_thread(write_accounts, path, *ACCOUNTS)

        async def is_closed() -> bool:
            return is_refused(await server.ask(ask_config.build(code)))

        while not await is_closed():
            pass

        # A bad file changes nothing, and is reported in one line.
        with caplog.at_level(logging.ERROR):
            # In one step, so that no half of it is read.
            bad = path.with_suffix(".new")
            await asyncio.to_thread(bad.write_text, "accounts:\n- accessKey: broken\n  secretKey: [hidden-one]\n")
            await asyncio.to_thread(bad.replace, path)
            await turn_until(lambda: "reading the accounts again failed" in caplog.text)
        assert (await server.ask(signed(ask_config.build(code), ADMIN))).code == ResponseCode.SUCCESS
        assert is_refused(await server.ask(ask_config.build(code)))
        assert caplog.text.count("reading the accounts again failed") == 1
        assert f"{path}: account broken: accessKey has 6 characters" in caplog.text
        assert "hidden-one" not in caplog.text


# --- secrets ----------------------------------------------------------------------------------------------------------


async def test_no_answer_and_no_line_of_the_log_has_a_secret(server: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        answers = [
            await server.ask(command)
            for code, sample in server.list_requests()
            for command in (
                forge(sample.build(code), "wrong secret"),
                signed(sample.build(code), STRANGER),
                signed(sample.build(code), list_holders(find_spec(code))[0]),
            )
        ]
    shown = caplog.text + "".join([f"{answer.remark} {answer.ext!r} {answer.body!r}" for answer in answers])
    assert len(shown) > 1000
    assert [secret for secret in (*SECRETS, "a-new-secret", "a-guessed-secret") if secret in shown] == []


def test_objects_that_hold_secrets_hide_them(access: AccessOptions) -> None:
    from eruca._access.accountfiles import read_book

    shown = repr([access, read_book(Path(access.file)), ADMIN, SHOP])
    assert "account-shop" in shown
    assert [secret for secret in SECRETS if secret in shown] == []
