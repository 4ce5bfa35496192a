"""Listing and changing accounts by requests (50 to 53, 90103).

As in Java's broker, the files are changed, then read again.

Keys of a file that are not ours stay; comments are lost, as in Java. An account with a right that an admin account does
not have can be changed only in its file: otherwise an admin could take the right by setting a new secret.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eruca._access.accountfiles import (
    ACCOUNTS,
    VERSION,
    WHITE_ADDRESSES,
    check_key,
    list_files,
    make_book,
    parse_permission,
    parse_resource,
    read_stamp,
    read_version,
)
from eruca._access.accounts import PERMISSIONS, Account, AccountBook
from eruca._access.addresses import parse_pattern
from eruca._access.control import AccessControl
from eruca._ground.clock import Clock
from eruca._ground.config import shorten
from eruca._ground.smallfiles import FILE_MODE, replace_file
from eruca._ground.yamlfiles import Document, read_yaml, write_yaml
from eruca._net.handlers import HandlerTable, Reply, Request
from eruca._wire import fastjson
from eruca._wire.bodies import AccountInfo, AccountList
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import AccessKeyHeader, AclVersionAnswerHeader, UpdateAccountHeader, WhiteAddressesHeader
from eruca._wire.names import RETRY_PREFIX
from eruca.errors import ConfigError, RequestRefused

log = logging.getLogger(__name__)

_NAMES: Final = {bits: name for name, bits in PERMISSIONS.items() if name != "SUB|PUB"}
_OFF: Final = "this broker has no accounts: set aclEnable=true"


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The broker that an answer is about."""

    name: str
    address: str
    cluster: str


@dataclass(frozen=True, slots=True, eq=False)
class AccountHandlers:
    """Handles requests that change accounts."""

    _access: AccessControl
    _clock: Clock
    _describe: Callable[[], Whereabouts]

    def register(self, table: HandlerTable) -> None:
        """Register the handlers."""
        table.add(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, self.update_account)
        table.add(RequestCode.DELETE_ACL_CONFIG, self.delete_account)
        table.add(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, self.show_versions)
        table.add(RequestCode.LIST_ACCOUNTS, self.list)
        table.add(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, self.set_white_addresses)

    async def update_account(self, request: Request) -> Reply:
        """Create an account, or change the given fields of one."""
        header: UpdateAccountHeader = request.header

        def change(documents: dict[Path, Document]) -> Path:
            path, account = _find_account(documents, header.access_key)
            fields = _list_fields(header, is_new=account is None)
            if account is None:
                path = self._access.file
                document = documents.setdefault(path, {})
                account = {}
                document[ACCOUNTS] = [*(document.get(ACCOUNTS) or []), account]
            account.update(fields)
            return path

        await self._change(request, header.access_key, change, ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED)
        return Reply()

    async def delete_account(self, request: Request) -> Reply:
        """Delete an account."""
        header: AccessKeyHeader = request.header

        def change(documents: dict[Path, Document]) -> Path:
            path, account = _find_account(documents, header.access_key)
            if account is None:
                name = shorten(header.access_key)
                raise ConfigError(f"The accesskey[{name}] corresponding to accessConfig has been deleted failed.")
            document = documents[path]
            document[ACCOUNTS] = [item for item in document[ACCOUNTS] if item is not account]
            return path

        await self._change(request, header.access_key, change, ResponseCode.DELETE_ACL_CONFIG_FAILED)
        return Reply()

    async def set_white_addresses(self, request: Request) -> Reply:
        """Replace the addresses of one file that need no account."""
        header: WhiteAddressesHeader = request.header

        def change(documents: dict[Path, Document]) -> Path:
            named = header.acl_file_full_path
            path = Path(named) if named else self._access.file
            if path not in documents:
                raise ConfigError(f"{shorten(str(path))} is not a file of accounts")
            addresses = [text.strip() for text in header.global_white_addrs.split(",") if text.strip()]
            for text in addresses:
                parse_pattern(text)
            documents[path][WHITE_ADDRESSES] = addresses
            return path

        await self._change(request, None, change, ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED)
        return Reply()

    def show_versions(self, request: Request) -> Reply:
        """Return the versions of the files, which tools compare between brokers."""
        access, where = self._access, self._describe()
        if not access.is_on:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _OFF)
        versions = access.book.versions
        header = AclVersionAnswerHeader(
            version=fastjson.write(versions[access.file]).decode() if access.file in versions else "{}",
            all_acl_file_version=fastjson.write({str(path): version for path, version in versions.items()}).decode(),
            broker_name=where.name,
            broker_addr=where.address,
            cluster_name=where.cluster,
        )
        return Reply(header)

    def list(self, request: Request) -> Reply:
        """Return the accounts without their secrets, and the addresses that need none."""
        access = self._access
        if not access.is_on:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _OFF)
        book = access.book
        accounts = [_describe(account) for _, account in sorted(book.accounts.items())]
        addresses = [pattern.text for pattern in book.white_addresses]
        return Reply(body=AccountList(global_white_addrs=addresses, plain_access_configs=accounts))

    async def _change(
        self,
        request: Request,
        access_key: str | None,
        change: Callable[[dict[Path, Document]], Path],
        failed: ResponseCode,
    ) -> None:
        """Change a file, take the accounts that are in the files then, and log who did it."""
        access = self._access
        if not access.is_on:
            raise RequestRefused(failed, _OFF)
        async with access.changing:
            try:
                book = await asyncio.to_thread(self._write, access_key, change)
            except ConfigError as error:
                raise RequestRefused(failed, str(error)) from None
            except OSError as error:
                log.error("the accounts cannot be written: %s", error)
                raise RequestRefused(failed, f"the accounts cannot be written: {error.strerror}") from None
            access.take(await asyncio.to_thread(read_stamp, access.file), book)
        log.info("%s changed accounts: %s %s", request.link.peer, failed.name.removesuffix("_FAILED"), access_key or "")

    def _write(self, access_key: str | None, change: Callable[[dict[Path, Document]], Path]) -> AccountBook:
        """Change what the files contain, check all of it, and replace the file that changed."""
        first = self._access.file
        documents = {path: read_yaml(path) for path in list_files(first)}
        # As the files are now: they may have changed since they were read.
        account = make_book(documents, first).accounts.get(access_key or "")
        if account is not None and account.is_set_apart:
            raise ConfigError(f"account {access_key} has a right that is changed only in the file of accounts")
        path = change(documents)
        document = documents[path]
        version = read_version(path, document)
        now_ms = self._clock.now_ms()
        document[VERSION] = [{"counter": version.counter + 1, "timestamp": now_ms}]
        book = make_book(documents, first)
        # The file that a link points to is replaced, and the link stays. A replaced file keeps its mode.
        target = path.resolve()
        if target.exists():
            target.chmod(FILE_MODE)
        replace_file(target, write_yaml(document))
        return book


def _describe(account: Account) -> AccountInfo:
    topics = {name: bits for name, bits in account.permissions.items() if not name.startswith(RETRY_PREFIX)}
    groups = {name.removeprefix(RETRY_PREFIX): bits for name, bits in account.permissions.items() if name not in topics}
    return AccountInfo(
        access_key=account.access_key,
        admin=account.admin,
        default_group_perm=_NAMES[account.default_group],
        default_topic_perm=_NAMES[account.default_topic],
        group_perms=[f"{name}={_NAMES[bits]}" for name, bits in groups.items()],
        topic_perms=[f"{name}={_NAMES[bits]}" for name, bits in topics.items()],
        white_remote_address=account.white_address.text or None,
    )


def _list_fields(header: UpdateAccountHeader, *, is_new: bool) -> dict[str, Any]:
    """Return the fields of a request as a file has them. Raises ConfigError, without the secret.

    Java's broker wants the secret with every change; here an account that exists keeps its own.
    """
    if not header.secret_key and is_new:
        raise ConfigError(f"The accessKey={shorten(header.access_key)} needs a secretKey longer than 6 characters")
    check_key("accessKey", header.access_key)
    fields: dict[str, Any] = {"accessKey": header.access_key}
    if header.secret_key:
        check_key("secretKey", header.secret_key)
        fields["secretKey"] = header.secret_key
    if header.white_remote_address is not None:
        parse_pattern(header.white_remote_address)
        fields["whiteRemoteAddress"] = header.white_remote_address
    if header.admin is not None:
        fields["admin"] = header.admin
    defaults = {"defaultTopicPerm": header.default_topic_perm, "defaultGroupPerm": header.default_group_perm}
    for field, permission in defaults.items():
        if permission:
            parse_permission(permission)
            fields[field] = permission
    for field, resources in {"topicPerms": header.topic_perms, "groupPerms": header.group_perms}.items():
        if resources is not None:
            listed = [text.strip() for text in resources.split(",") if text.strip()]
            for resource in listed:
                parse_resource(resource)
            fields[field] = listed
    return fields


def _find_account(documents: dict[Path, Document], access_key: str) -> tuple[Path, dict[str, Any] | None]:
    for path, document in documents.items():
        for account in document.get(ACCOUNTS) or []:
            if str(account.get("accessKey")) == access_key:
                return path, account
    return Path(), None
