"""Accounts: listed without their secrets, created, changed, deleted. They run on systems with access control."""

from __future__ import annotations

import msgspec
import pytest

from eruca.admin import Account
from eruca.errors import ConfigError
from tests.admin.stage import BROKER, Stage, covers, outcomes


@covers("accounts.list", "accounts.versions", "accounts.white_addresses")
async def case_accounts_are_listed(stage: Stage) -> None:
    """With their permissions, and without their secrets."""
    accounts = stage.admin.accounts
    listed = await accounts.list()
    by_key = {account.access_key: account for account in listed.items}
    assert by_key["the-billing"] == Account(
        broker=BROKER, access_key="the-billing", topics={"orders": "SUB"}, groups={"billing": "SUB"}
    )
    assert by_key["the-admin"].admin and by_key["from-elsewhere"].white_addresses == "10.1.1.*"
    assert b"secret-of" not in msgspec.json.encode(listed) and "secret-of" not in repr(listed)
    (version,) = (await accounts.versions()).items
    assert (version.broker, version.cluster) == (BROKER, "DefaultCluster") and version.file.endswith("plain_acl.yml")
    (white,) = (await accounts.white_addresses()).items
    assert white.broker == BROKER


@covers("accounts.create", "accounts.update", "accounts.delete", "accounts.list")
async def case_life_of_an_account(stage: Stage) -> None:
    """It is created, changed and deleted."""
    accounts, key, secret = stage.admin.accounts, stage.name("shop"), "secret-of-the-new-shop"

    async def find() -> Account | None:
        return next((each for each in (await accounts.list()).items if each.access_key == key), None)

    planned = await accounts.create(key, secret, topics={"orders": "PUB"}, dry_run=True)
    assert outcomes(planned) == ["planned"] and await find() is None
    created = await accounts.create(key, secret, topics={"orders": "PUB"}, default_group="SUB")
    expected = Account(broker=BROKER, access_key=key, topics={"orders": "PUB"}, default_group="SUB")
    assert created.changes[0].after == expected == await find()
    assert secret not in repr(created)
    with pytest.raises(ConfigError, match=f"{BROKER} has an account {key}"):
        await accounts.create(key, secret)
    # Java's broker wants the secret with every change.
    kept = secret if stage.is_java else None
    updated = await accounts.update(key, secret_key=kept, topics={"orders": "PUB|SUB"})
    assert updated.changes[0].before == expected
    assert updated.changes[0].after == msgspec.structs.replace(expected, topics={"orders": "PUB|SUB"})
    if not stage.is_java:
        await stage.undo(updated)
        assert await find() == expected
    assert outcomes(await accounts.delete(key, dry_run=True)) == ["planned"]
    assert outcomes(await accounts.delete(key)) == ["done"]
    assert await find() is None
    for change in (accounts.delete, accounts.update):
        with pytest.raises(ConfigError, match=f"no broker has an account {key}"):
            await change(key)


@covers("accounts.put", "accounts.list", "accounts.delete")
async def case_account_put(stage: Stage) -> None:
    """It is created or changed, whatever is there; what is not named stays."""
    accounts, key, secret = stage.admin.accounts, stage.name("shop"), "secret-of-the-put-shop"
    assert outcomes(await accounts.put(key, secret, dry_run=True)) == ["planned"]
    created = await accounts.put(key, secret, topics={"orders": "PUB"})
    assert created.changes[0].before is None and created.changes[0].after is not None
    changed = await accounts.put(key, secret, default_group="SUB")
    (found,) = [each for each in (await accounts.list()).items if each.access_key == key]
    assert found == Account(broker=BROKER, access_key=key, topics={"orders": "PUB"}, default_group="SUB")
    assert changed.changes[0].after == found and secret not in repr(changed)
    assert outcomes(await accounts.delete(key)) == ["done"]


@covers("accounts.set_white_addresses", "accounts.white_addresses")
async def case_white_addresses(stage: Stage) -> None:
    """They are replaced, and replaced again."""
    accounts = stage.admin.accounts
    (before,) = (await accounts.white_addresses()).items
    wanted = ["10.7.7.7" if stage.name("").startswith("plain") else "10.9.9.9", "10.8.8.*"]
    assert outcomes(await accounts.set_white_addresses(wanted, dry_run=True)) == ["planned"]
    changed = await accounts.set_white_addresses(wanted)
    (after,) = (await accounts.white_addresses()).items
    assert sorted(after.addresses) == sorted(wanted)
    assert changed.changes[0].before == before
    if before.addresses:
        await stage.undo(changed)
