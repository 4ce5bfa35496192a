"""Access control of one server: checks every request, and follows changes of the files of accounts."""

from __future__ import annotations

import asyncio
import logging
import secrets
from pathlib import Path
from typing import Final, NoReturn

from eruca._access.accountfiles import Stamp, read_book, read_stamp
from eruca._access.accounts import PUB, SUB, Account, AccountBook, match_any
from eruca._access.addresses import parse_address
from eruca._access.options import AccessOptions
from eruca._ground.repeating import Repeating
from eruca._net.handlers import Authorize
from eruca._net.link import Link
from eruca._net.networks import WHITE_LISTED
from eruca._wire.catalog import RequestSpec, Right, find_names
from eruca._wire.codes import ResponseCode
from eruca._wire.command import Command
from eruca._wire.concerns import NOTHING, Names, ReadTopic
from eruca._wire.names import RETRY_PREFIX
from eruca._wire.signature import ACCESS_KEY, verify
from eruca.errors import ConfigError, RequestRefused

log = logging.getLogger(__name__)

# Clients of Java recognize a refusal by its text.
_REFUSED: Final = "org.apache.rocketmq.acl.common.AclException: "
_NOTE: Final = "access"
_LOGGED_CHARS_MAX: Final = 200
# What a broker without an account may do at the addresses that need none.
_RIGHTS_OF_BROKERS: Final = frozenset({Right.ACCOUNT, Right.INSPECT, Right.MEMBER, Right.BROKER})
# Trusting an address is not enough for these.
_NOT_BY_ADDRESS: Final = frozenset({Right.BROKER, Right.UPLOAD, Right.SERVER, Right.NOBODY})


class _Seen:
    """What is known about a connection until the accounts change."""

    __slots__ = ("_address", "book", "bound", "is_broker", "is_white", "white_for")

    def __init__(self, book: AccountBook, link: Link) -> None:
        self.book = book
        self._address = parse_address(link.peer_host[0])
        self.is_white = match_any(book.white_addresses, self._address)
        self.is_broker = match_any(book.broker_addresses, self._address)
        # The account that its certificate stands for.
        self.bound = None if link.certificate is None else book.by_certificate.get(link.certificate)
        # By access key: whether its own white address is this one.
        self.white_for: dict[str, bool] = {}

    def is_white_for(self, account: Account) -> bool:
        pattern = account.white_address
        if not pattern.forms:
            return False
        found = self.white_for.get(account.access_key)
        if found is None:
            found = self.white_for[account.access_key] = match_any((pattern,), self._address)
        return found


class AccessControl:
    """The accounts of one server."""

    def __init__(self, options: AccessOptions) -> None:
        self.options = options
        #: The accounts in force; replaced as a whole when the files change.
        self.book = AccountBook()
        self._stamp: Stamp = ()
        self._trouble: ConfigError | None = None
        # One change at a time: of the files by a request, or of the accounts by the files.
        self.changing = asyncio.Lock()
        # An unknown account is checked with this secret, so that it takes as long as a known one.
        self._no_secret = secrets.token_urlsafe(32)
        self._watching = Repeating("reading the accounts again", self.reload, lambda: options.reload_ms / 1000)

    @property
    def is_on(self) -> bool:
        """Whether requests need an account."""
        return self.options.enabled

    @property
    def file(self) -> Path:
        """The first file of accounts."""
        return Path(self.options.file).absolute()

    async def start(self) -> None:
        """Read the accounts and watch their files. Raises ConfigError if there are none."""
        if not self.is_on:
            return
        self._stamp, self.book = await asyncio.to_thread(self._read)
        for note in self.book.notes:
            log.warning("%s", note)
        self._watching.start()

    async def stop(self) -> None:
        """Stop watching the files."""
        await self._watching.stop()

    async def reload(self) -> None:
        """Read the files if they have changed; the accounts change all at once or, if something is wrong, not at all.

        Raises ConfigError on each call until the files are right: the caller logs it once.
        """
        async with self.changing:
            stamp = await asyncio.to_thread(read_stamp, self.file)
            if stamp == self._stamp:
                if self._trouble is not None:
                    raise self._trouble
                return
            try:
                self._stamp, book = await asyncio.to_thread(self._read)
            except ConfigError as error:
                self._stamp = stamp
                self._trouble = ConfigError(f"{error}; the accounts stay as they were")
                raise self._trouble from error
            self.take(self._stamp, book)

    def take(self, stamp: Stamp, book: AccountBook) -> None:
        """Replace the accounts."""
        for note in set(book.notes) - set(self.book.notes):
            log.warning("%s", note)
        self._stamp, self.book, self._trouble = stamp, book, None
        log.info("read %d accounts from %s", len(book.accounts), self.file)

    def _read(self) -> tuple[Stamp, AccountBook]:
        # The stamp comes first: a change while the files are read is noticed by the next look.
        stamp = read_stamp(self.file)
        return stamp, read_book(self.file)

    # -- checking ----------------------------------------------------------------------------------------------------

    def guard(self, read_topic: ReadTopic | None = None) -> Authorize | None:
        """Return the check for a table of handlers; None without accounts.

        `read_topic` finds the topic of the record at a position of the log, at a server that has one.
        """
        if not self.is_on:
            return None

        def authorize(link: Link, command: Command, spec: RequestSpec) -> None:
            self._authorize(link, command, spec, read_topic)

        return authorize

    # -- replication links, which carry no requests --------------------------------------------------------------------

    def find_broker_secret(self, access_key: str, certificate: str | None) -> str | None:
        """Return the secret of an account that may be a broker, on a connection with this certificate, or None."""
        account = self.book.accounts.get(access_key)
        if account is None or not account.broker or account.certificate not in (None, certificate):
            return None
        return account.secret_key

    def find_certified_broker(self, certificate: str | None) -> str | None:
        """Return the account that may be a broker and that a client certificate stands for, or None."""
        account = None if certificate is None else self.book.by_certificate.get(certificate)
        return account.access_key if account is not None and account.broker else None

    # -- what a server sends without being asked -----------------------------------------------------------------------

    def may_publish(self, link: Link, topic: str) -> bool:
        """Return whether the peer of a connection may publish to a topic now, by the account of its last request."""
        return self._may_use(link, topic, PUB)

    def may_subscribe(self, link: Link, topic: str) -> bool:
        """Return whether it may subscribe to a topic."""
        return self._may_use(link, topic, SUB)

    def _may_use(self, link: Link, topic: str, needed: int) -> bool:
        if not self.is_on:
            return True
        seen = self._look_at(link)
        account = self.book.accounts.get(link.account or "")
        if account is None:
            return seen.is_white and link.account is not None
        return seen.is_white or seen.is_white_for(account) or account.may_use_topic(topic, needed)

    # -- requests ----------------------------------------------------------------------------------------------------

    def _look_at(self, link: Link) -> _Seen:
        """Return what is known about a connection."""
        book = self.book
        seen: _Seen | None = link.notes.get(_NOTE)
        if seen is None or seen.book is not book:
            seen = link.notes[_NOTE] = _Seen(book, link)
        return seen

    def _authorize(self, link: Link, command: Command, spec: RequestSpec, read_topic: ReadTopic | None) -> None:
        seen = self._look_at(link)
        book = seen.book
        if seen.is_white and spec.right not in _NOT_BY_ADDRESS:
            link.account = WHITE_LISTED
            return
        ext = command.ext_dict()
        access_key = ext.get(ACCESS_KEY)
        if access_key is None:
            account = seen.bound
            if account is None:
                if seen.is_broker and spec.right in _RIGHTS_OF_BROKERS:
                    link.account = WHITE_LISTED
                    return
                _refuse(link, "No accessKey is configured")
            is_trusted = False
        else:
            account = book.accounts.get(access_key)
            is_trusted = account is not None and seen.is_white_for(account)
            secret = self._no_secret if account is None else account.secret_key
            is_signed = is_trusted or verify(ext, command.body, secret)
            if account is None or not is_signed or account.certificate not in (None, link.certificate):
                # Whoever tries secrets is a stranger again, whose refused requests are limited.
                link.account = None
                # One text for all three: whoever tries names should not learn which ones exist.
                _refuse(link, f"Check signature failed for accessKey={access_key}")
        right = spec.right
        if not _has(account, right):
            code, key = command.code, account.access_key
            _refuse(link, f"Need {right.name.lower()} permission for request code={code}, but accessKey={key} is not")
        # At its white address an account needs no permissions for topics and groups, as in Java.
        if spec.concerns is not NOTHING and not is_trusted:
            lacking = _find_lacking(account, right, find_names(spec, command, ext, read_topic))
            if lacking is not None:
                _refuse(link, f"No default permission for {lacking}", account)
        link.account = account.access_key


def _has(account: Account, right: Right) -> bool:
    """Return whether an account has a right that does not depend on topics and groups."""
    if right is Right.ADMIN:
        return account.admin
    if right is Right.BROKER:
        return account.broker
    if right is Right.MEMBER:
        return account.broker or account.admin
    if right is Right.UPLOAD:
        return account.upload
    return right is not Right.SERVER and right is not Right.NOBODY


def _find_lacking(account: Account, right: Right, names: Names) -> str | None:
    """Return the first topic or group that an account may not use, as Java writes it."""
    needed = PUB if right is Right.PUBLISH else SUB
    for topic in names.topics:
        if not account.may_use_topic(topic, needed):
            is_retry = topic.startswith(RETRY_PREFIX)
            return f"group:{topic.removeprefix(RETRY_PREFIX)}" if is_retry else f"topic:{topic}"
    for group in names.groups:
        if not account.may_use_group(group):
            return f"group:{group}"
    return None


def _refuse(link: Link, problem: str, account: Account | None = None) -> NoReturn:
    who = "" if account is None else f" (account {account.access_key})"
    # The peer chose what is quoted here.
    link.complain(f"was refused: {ascii(problem)[1:-1][:_LOGGED_CHARS_MAX]}{who}")
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, _REFUSED + problem)
