"""The two systems with the same file of accounts, and everyone who may or may not do something with it."""

from __future__ import annotations

import json
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from eruca._ground.yamlfiles import read_yaml
from eruca._wire.signature import Credentials
from tests.interop.brokers import BROKER_NAME, PATIENCE, SETTINGS, JavaCluster
from tests.interop.javapeer import (
    START_SECONDS_MAX,
    JavaProcess,
    Peer,
    PeerError,
    find_broker_port,
    find_ports,
)

TOPIC, GROUP = "orders", "billing"
ACCOUNTS = f"""\
globalWhiteRemoteAddresses: []
accounts:
- accessKey: the-admin
  secretKey: secret-of-the-admin
  admin: true
- accessKey: limited-admin
  secretKey: secret-of-limited
  admin: true
  topicPerms:
  - {TOPIC}=SUB
- accessKey: the-shop
  secretKey: 12345678
  defaultTopicPerm: DENY
  topicPerms:
  - {TOPIC}=PUB
- accessKey: the-billing
  secretKey: secret-of-billing
  defaultGroupPerm: DENY
  topicPerms:
  - {TOPIC}=SUB
  groupPerms:
  - {GROUP}=SUB
- accessKey: by-default
  secretKey: secret-of-default
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
- accessKey: by-default-denied
  secretKey: secret-of-denied
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  topicPerms:
  - {TOPIC}=DENY
  groupPerms:
  - {GROUP}=DENY
- accessKey: no-permission
  secretKey: secret-of-nobody
# From here, this one needs neither a signature nor permissions.
- accessKey: from-here
  secretKey: secret-of-here
  whiteRemoteAddress: 127.0.0.{{1,2}}
- accessKey: from-elsewhere
  secretKey: secret-of-elsewhere
  whiteRemoteAddress: 10.1.1.*
"""
WHO: dict[str, Credentials | None] = {
    "admin": Credentials("the-admin", "secret-of-the-admin"),
    "limited admin": Credentials("limited-admin", "secret-of-limited"),
    "shop": Credentials("the-shop", "12345678"),
    "billing": Credentials("the-billing", "secret-of-billing"),
    "by default": Credentials("by-default", "secret-of-default"),
    "denied": Credentials("by-default-denied", "secret-of-denied"),
    "without permission": Credentials("no-permission", "secret-of-nobody"),
    "from here": Credentials("from-here", "any-secret-will-do"),
    "from elsewhere": Credentials("from-elsewhere", "wrong-secret"),
    "wrong secret": Credentials("the-shop", "87654321"),
    "unknown": Credentials("who-is-this", "12345678"),
    "nobody": None,
}
# Where Java's exception was thrown follows its text.
_THROWN_AT = re.compile(r", org\.apache\.rocketmq\.acl\.[\w.]+\(\w+\.java:\d+\)$")
_SAID_BY = re.compile(r"^broker \S+ refused: ")
_AT_BROKER = re.compile(r"\bBROKER: \S+$")
REFUSED = "org.apache.rocketmq.acl.common.AclException: "


class GuardedEruca:
    """A name server without accounts, as Java's is, and a broker with them."""

    kind = "eruca"

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.accounts = home / "conf" / "plain_acl.yml"
        self.accounts.parent.mkdir()
        self.accounts.write_text(ACCOUNTS)
        self.accounts.chmod(0o600)
        with ExitStack() as stack:
            names = ["nameserver", "--listen-port", str(find_ports()), "--kv-config-path", str(home / "kv.json")]
            names += ["--option", f"configStorePath={home / 'namesrv.conf'}"]
            self.name_server: str = stack.enter_context(_Server(home, *names)).told["nameserver"]
            options = {
                "brokerName": BROKER_NAME,
                "storePathRootDir": home / "store",
                "listenPort": find_broker_port(),
                "namesrvAddr": self.name_server,
                "aclEnable": "true",
                "aclFile": self.accounts,
                "mappedFileSizeCommitLog": 1 << 24,
                **SETTINGS,
            }
            words = [word for key, value in options.items() for word in ("--option", f"{key}={value}")]
            self.process = stack.enter_context(_Server(home, "broker", *words))
            self.broker: str = self.process.told["broker"]
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


class _Server(JavaProcess):
    """A server of ours in a process of its own."""

    def __init__(self, home: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "eruca", arguments[0], "-o", "json", *arguments[1:]]
        super().__init__(command, home / f"{arguments[0]}.log", talks=True)
        try:
            line = self.wait_for(lambda text: text.startswith("{"), START_SECONDS_MAX)
        except PeerError:
            self.__exit__(None, None, None)
            raise
        self.told: dict[str, Any] = json.loads(self.lines[line])


class GuardedJava(JavaCluster):
    """The official name server, and a broker with accounts."""

    def __init__(self, peer: Peer, home: Path) -> None:
        self.accounts = home / "broker" / "conf" / "plain_acl.yml"
        self.accounts.parent.mkdir(parents=True)
        self.accounts.write_text(ACCOUNTS)
        small = {"mappedFileSizeCommitLog": 1 << 24}
        # Its default, which other tests turn off.
        system = {"tls.server.mode": "permissive"}
        super().__init__(peer, home, {**SETTINGS, **PATIENCE, **small, "aclEnable": "true"}, system=system)


Guarded = GuardedEruca | GuardedJava


def tell(text: str | None) -> str:
    """A refusal without what always differs: where Java's exception was thrown, and the address of the broker."""
    line = ((text or "").splitlines() or [""])[0]
    return _THROWN_AT.sub("", _AT_BROKER.sub("", _SAID_BY.sub("", line.rpartition("DESC: ")[2])).strip())


def read_accounts(cluster: Guarded) -> dict[str, Any]:
    """What the file of accounts of a system says, without when it was changed."""
    return read_accounts_file(cluster.accounts)


def read_accounts_file(path: Path) -> dict[str, Any]:
    """What a file of accounts says, without when it was changed."""
    document = read_yaml(path)
    for version in document.get("dataVersion", []):
        version.pop("timestamp")
    document["accounts"] = {str(one.pop("accessKey")): one for one in document["accounts"]}
    return document


def write_tools(path: Path, who: Credentials) -> Path:
    """An account as mqadmin reads it."""
    path.write_text(f"accessKey: {who.access_key}\nsecretKey: '{who.secret_key}'\n")
    return path
