"""Accounts of access control: list without secrets, create, change, delete; addresses that need no account."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import (
    LIMIT,
    Change,
    Changed,
    Listed,
    Problem,
    Undo,
    cut_list,
    fail_silent,
    name_outcome,
    read_time,
)
from eruca._admin.targets import BrokerRow, ask_each, change_each, find_targets, one_or_all
from eruca._client.session.calls import explain_refusal
from eruca._wire.bodies import AccountInfo, AccountList, DataVersion, decode_json
from eruca._wire.catalog import build_request
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import (
    AccessKeyHeader,
    AclVersionAnswerHeader,
    EmptyHeader,
    UpdateAccountHeader,
    WhiteAddressesHeader,
)
from eruca.errors import ConfigError, RequestRefused, WireError


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account on one broker, without its secret, which no method returns."""

    broker: str
    access_key: str
    admin: bool = False
    # Addresses from which it needs no signature.
    white_addresses: str = ""
    # `PUB`, `SUB`, `PUB|SUB` or `DENY`.
    default_topic: str = "DENY"
    default_group: str = "DENY"
    topics: dict[str, str] = {}
    groups: dict[str, str] = {}


class WhiteAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses that need no account on one broker."""

    broker: str
    addresses: list[str]


class AccountVersion(msgspec.Struct, frozen=True, kw_only=True):
    """How new the account files of one broker are."""

    broker: str
    address: str
    cluster: str
    # The path of a file, how often it was changed, and when.
    file: str
    counter: int
    changed_at: datetime | None


class Accounts:
    """Lists, creates, changes and deletes accounts: `admin.accounts`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, *, broker: str | None = None, limit: int = LIMIT) -> Listed[Account]:
        """Return the accounts of each broker, masters and slaves, without their secrets.

        Brokers without access control are left out.
        """
        found, problems = await self._read(await self._find(one_or_all(broker), None))
        accounts = [account for where, table in found.items() for account in _describe_all(where, table).values()]
        return cut_list(accounts, limit, problems)

    async def white_addresses(self, *, broker: str | None = None) -> Listed[WhiteAddresses]:
        """Return the addresses that need no account, on each broker."""
        found, problems = await self._read(await self._find(one_or_all(broker), None))
        items = [WhiteAddresses(broker=where, addresses=table.global_white_addrs) for where, table in found.items()]
        return Listed(items=items, problems=list(problems))

    async def versions(self, *, broker: str | None = None, cluster: str | None = None) -> Listed[AccountVersion]:
        """Return how new the account files of brokers are. Brokers without access control are left out."""
        connection = self._connection
        guarded, problems = await self._find_guarded(await self._find(one_or_all(broker), cluster))
        found, others = await ask_each(
            guarded, lambda row: connection.ask(row.address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        )
        rows = [
            AccountVersion(
                broker=row.where,
                address=row.address,
                cluster=row.cluster,
                file=file,
                counter=version.counter,
                changed_at=read_time(version.timestamp),
            )
            for row, (header, _) in found
            if isinstance(header, AclVersionAnswerHeader)
            for file, version in _read_versions(header).items()
        ]
        return Listed(items=rows, problems=[*problems, *others])

    async def create(
        self,
        access_key: str,
        secret_key: str,
        *,
        admin: bool = False,
        white_addresses: str = "",
        default_topic: str = "DENY",
        default_group: str = "DENY",
        topics: Mapping[str, str] | None = None,
        groups: Mapping[str, str] | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[Account]:
        """Create an account on all brokers, on those of a cluster, or on the named ones.

        Raises ConfigError if a broker has it; `update` changes it.
        """
        header = _make_header(
            access_key, secret_key, admin, white_addresses, default_topic, default_group, topics or None, groups or None
        )

        def check(known: Mapping[str, Account | None]) -> None:
            if owners := [where for where, account in known.items() if account is not None]:
                raise ConfigError(
                    f"{', '.join(owners)} has an account {access_key}", hint="eruca acl update changes it"
                )

        return await self._put(access_key, header, check, brokers, cluster, dry_run=dry_run)

    async def update(
        self,
        access_key: str,
        *,
        secret_key: str | None = None,
        admin: bool | None = None,
        white_addresses: str | None = None,
        default_topic: str | None = None,
        default_group: str | None = None,
        topics: Mapping[str, str] | None = None,
        groups: Mapping[str, str] | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[Account]:
        """Change an account; what is None stays. Raises ConfigError if no broker has it.

        Java's brokers need the secret with every change, and cannot take the last permission of a topic or group away.
        """
        header = _make_header(
            access_key, secret_key, admin, white_addresses, default_topic, default_group, topics, groups
        )

        def check(known: Mapping[str, Account | None]) -> None:
            if all(account is None for account in known.values()):
                raise _explain_unknown(access_key)

        return await self._put(access_key, header, check, brokers, cluster, dry_run=dry_run)

    async def put(
        self,
        access_key: str,
        secret_key: str,
        *,
        admin: bool | None = None,
        white_addresses: str | None = None,
        default_topic: str | None = None,
        default_group: str | None = None,
        topics: Mapping[str, str] | None = None,
        groups: Mapping[str, str] | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[Account]:
        """Create an account, or change it where a broker has it; what is None stays."""
        header = _make_header(
            access_key, secret_key, admin, white_addresses, default_topic, default_group, topics, groups
        )
        return await self._put(access_key, header, lambda _: None, brokers, cluster, dry_run=dry_run)

    async def delete(
        self,
        access_key: str,
        *,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[Account]:
        """Delete an account. Its secret is not kept anywhere, so this cannot be undone.

        Raises ConfigError if no broker has it.
        """
        connection = self._connection
        found, problems = await self._read(rows := await self._find(brokers, cluster))
        known = {where: _describe_all(where, table).get(access_key) for where, table in found.items()}
        if not problems and all(account is None for account in known.values()):
            raise _explain_unknown(access_key)

        async def delete(row: BrokerRow) -> Change[Account]:
            was = known[row.where]
            if not dry_run:
                header = AccessKeyHeader(access_key=access_key)
                await connection.ask(row.address, RequestCode.DELETE_ACL_CONFIG, header)
            return Change(where=row.where, before=was, after=None, outcome=name_outcome(was, None, dry_run=dry_run))

        owners = [row for row in rows if known.get(row.where) is not None]
        changes = await change_each(owners, delete, known)
        return Changed(name=access_key, changes=changes + fail_silent(problems))

    async def set_white_addresses(
        self,
        addresses: Sequence[str],
        *,
        file: str | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[WhiteAddresses]:
        """Replace the addresses that need no account: in the first file of each broker, or in a certain one."""
        connection = self._connection
        found, problems = await self._read(rows := await self._find(brokers, cluster))
        known = {
            where: WhiteAddresses(broker=where, addresses=table.global_white_addrs) for where, table in found.items()
        }
        header = WhiteAddressesHeader(global_white_addrs=",".join(addresses), acl_file_full_path=file)

        async def change(row: BrokerRow) -> Change[WhiteAddresses]:
            was, after = known[row.where], WhiteAddresses(broker=row.where, addresses=[*addresses])
            if not dry_run and was != after:
                await connection.ask(row.address, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)
            return Change(where=row.where, before=was, after=after, outcome=name_outcome(was, after, dry_run=dry_run))

        changes = await change_each([row for row in rows if row.where in known], change, known)
        undo = [
            Undo(
                method="accounts.set_white_addresses",
                arguments={"addresses": each.before.addresses, "file": file, "brokers": [each.where]},
            )
            for each in changes
            if each.before is not None and each.outcome in ("done", "planned")
        ]
        return Changed(name="white addresses", changes=changes + fail_silent(problems), undo=undo)

    # -- steps -------------------------------------------------------------------------------------------------------

    async def _find(self, brokers: Sequence[str] | None, cluster: str | None) -> Sequence[BrokerRow]:
        """Return the brokers an operation is for. Each has files of its own, slaves too."""
        return await find_targets(self._connection, brokers, cluster, slaves=True)

    async def _find_guarded(self, rows: Sequence[BrokerRow]) -> tuple[Sequence[BrokerRow], Sequence[Problem]]:
        """Return the brokers that have access control: Java's do not answer these requests without it."""

        async def ask(row: BrokerRow) -> bool:
            _, options = await self._connection.ask(row.address, RequestCode.GET_BROKER_CONFIG)
            return isinstance(options, dict) and options.get("aclEnable") == "true"

        found, problems = await ask_each(rows, ask)
        return [row for row, is_guarded in found if is_guarded], problems

    async def _read(self, rows: Sequence[BrokerRow]) -> tuple[Mapping[str, AccountList], Sequence[Problem]]:
        """Return the accounts of brokers by name."""
        guarded, problems = await self._find_guarded(rows)
        found, others = await ask_each(guarded, lambda row: _read_accounts(self._connection, row))
        return {row.where: table for row, table in found}, [*problems, *others]

    async def _put(
        self,
        access_key: str,
        header: UpdateAccountHeader,
        check: Callable[[Mapping[str, Account | None]], None],
        brokers: Sequence[str] | None,
        cluster: str | None,
        *,
        dry_run: bool,
    ) -> Changed[Account]:
        connection = self._connection
        found, problems = await self._read(rows := await self._find(brokers, cluster))
        if not found and not problems:
            raise ConfigError("no broker has access control", hint="set aclEnable=true in broker.conf")
        known = {where: _describe_all(where, table).get(access_key) for where, table in found.items()}
        check(known)

        async def change(row: BrokerRow) -> Change[Account]:
            was = known[row.where]
            if dry_run:
                return Change(where=row.where, before=was, after=_preview(row, was, header), outcome="planned")
            await connection.ask(row.address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)
            after = _describe_all(row.where, await _read_accounts(connection, row)).get(access_key)
            return Change(where=row.where, before=was, after=after, outcome="done")

        changes = await change_each([row for row in rows if row.where in known], change, known)
        changed = [each for each in changes if each.outcome in ("done", "planned")]
        undo = [Undo(method="accounts.update", arguments=_name_fields(each.before)) for each in changed if each.before]
        if created := [each.where for each in changed if each.before is None]:
            undo.append(Undo(method="accounts.delete", arguments={"access_key": access_key, "brokers": created}))
        return Changed(name=access_key, changes=changes + fail_silent(problems), undo=undo)


async def _read_accounts(connection: Connection, row: BrokerRow) -> AccountList:
    try:
        _, body = await connection.ask(row.address, RequestCode.LIST_ACCOUNTS)
    except RequestRefused as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        # Java's answer has the secrets; they are not read.
        request = build_request(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, EmptyHeader())
        answer = await connection.calls.call(row.address, request)
        if answer.code != ResponseCode.SUCCESS:
            raise explain_refusal(answer, f"broker {row.address}") from None
        return decode_json(AccountList, answer.body)
    return body if isinstance(body, AccountList) else AccountList()


def _describe_all(where: str, table: AccountList) -> dict[str, Account]:
    return {each.access_key: _describe(where, each) for each in table.plain_access_configs}


def _describe(where: str, info: AccountInfo) -> Account:
    return Account(
        broker=where,
        access_key=info.access_key,
        admin=info.admin,
        white_addresses=info.white_remote_address or "",
        default_topic=info.default_topic_perm or "DENY",
        default_group=info.default_group_perm or "DENY",
        topics=_split(info.topic_perms),
        groups=_split(info.group_perms),
    )


def _split(permissions: Sequence[str] | None) -> dict[str, str]:
    parts = [text.partition("=") for text in permissions or ()]
    return {name.strip(): permission.strip() for name, _, permission in parts}


def _join(permissions: Mapping[str, str] | None) -> str | None:
    return None if permissions is None else ",".join(f"{name}={bits}" for name, bits in permissions.items())


def _make_header(
    access_key: str,
    secret_key: str | None,
    admin: bool | None,
    white_addresses: str | None,
    default_topic: str | None,
    default_group: str | None,
    topics: Mapping[str, str] | None,
    groups: Mapping[str, str] | None,
) -> UpdateAccountHeader:
    return UpdateAccountHeader(
        access_key=access_key,
        secret_key=secret_key,
        white_remote_address=white_addresses,
        admin=admin,
        default_topic_perm=default_topic,
        default_group_perm=default_group,
        topic_perms=_join(topics),
        group_perms=_join(groups),
    )


def _preview(row: BrokerRow, was: Account | None, header: UpdateAccountHeader) -> Account:
    """Return an account as it will be."""
    given = {
        "admin": header.admin,
        "white_addresses": header.white_remote_address,
        "default_topic": header.default_topic_perm,
        "default_group": header.default_group_perm,
        "topics": None if header.topic_perms is None else _split(header.topic_perms.split(",")),
        "groups": None if header.group_perms is None else _split(header.group_perms.split(",")),
    }
    before = was or Account(broker=row.where, access_key=header.access_key)
    return msgspec.structs.replace(before, **{name: value for name, value in given.items() if value is not None})


def _name_fields(account: Account) -> dict[str, Any]:
    """Return an account as the arguments of `update`."""
    fields = msgspec.structs.asdict(account)
    broker = fields.pop("broker")
    return {**fields, "brokers": [broker]}


def _read_versions(header: AclVersionAnswerHeader) -> dict[str, DataVersion]:
    if not header.all_acl_file_version:
        return {"": decode_json(DataVersion, header.version.encode())}
    try:
        return msgspec.json.decode(header.all_acl_file_version, type=dict[str, DataVersion], strict=False)
    except msgspec.DecodeError as error:
        raise WireError(f"the versions of account files cannot be read: {error}") from error


def _explain_unknown(access_key: str) -> ConfigError:
    return ConfigError(f"no broker has an account {access_key}", hint="eruca acl list shows the accounts")
