"""The two systems of the matrix: Eruca, and the official proxy 5.5.0 with the broker in its process.

Both are started on free loopback ports with the same settings, without accounts or with one account that may do
everything.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tests.authority import Pair
from tests.grpc.remote import Account, Remote
from tests.interop.javapeer import (
    LOGGING,
    LOOPBACK,
    SETUP_SECONDS_MAX,
    START_SECONDS_MAX,
    JavaNameServer,
    JavaProcess,
    Peer,
    PeerError,
    find_broker_port,
    find_ports,
)
from tests.paths import PEER

PROXY_VERSION = "5.5.0"
BROKER_NAME = "broker-a"
ADMIN = Account("the-admin", "secret-of-the-admin")
# What differs from the defaults of the one or the other, or would be too slow for a test.
SETTINGS: Mapping[str, object] = {
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 3000,
}
# Only the official broker has these. It refuses what it could not begin with in 200 ms, on a busy machine too often.
JAVA_SETTINGS: Mapping[str, object] = {
    "enableMixedMessageType": "true",
    "waitTimeMillsInSendQueue": 20_000,
    "waitTimeMillsInPullQueue": 20_000,
    "waitTimeMillsInTransactionQueue": 20_000,
    "waitTimeMillsInAckQueue": 20_000,
    "osPageCacheBusyTimeOutMills": 20_000,
    "bindAddress": LOOPBACK,
    "mappedFileSizeCommitLog": 1 << 26,
    "fileReservedTime": 999_999,
    "diskMaxUsedSpaceRatio": 95,
}
_AUTH = "org.apache.rocketmq.auth"
_LOCAL = f"{_AUTH}.%s.provider.Local%sMetadataProvider"
_PROXY = "org.apache.rocketmq.proxy.auth.Proxy%sMetadataProvider"


class Server(Protocol):
    """A running system with a port for gRPC."""

    # `eruca` or `proxy`.
    kind: str
    account: Account | None

    @property
    def endpoints(self) -> str:
        """Where gRPC clients connect."""

    @property
    def remote(self) -> Remote:
        """Where topics and groups are made."""


# --- the official proxy -----------------------------------------------------------------------------------------


def prepare_proxy() -> Peer:
    """Fetch the jars of the official proxy, unless an earlier run did."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    work = Path(os.environ.get("PEER_WORK") or cache / "rocketmq-peer")
    work.mkdir(parents=True, exist_ok=True)
    jars = work / "lib5"
    with open(work / ".eruca-setup", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (jars / f"rocketmq-proxy-{PROXY_VERSION}.jar").is_file():
            done = subprocess.run(
                [str(PEER / "setup.sh")],
                env=os.environ | {"PEER_WORK": str(work), "V": "5"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SETUP_SECONDS_MAX,
                check=False,
            )
            if done.returncode:
                raise PeerError(f"setup.sh ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return Peer(jars, jars)


class OfficialProxy(JavaProcess):
    """The official proxy in LOCAL mode, with its broker, and a name server beside it.

    Its port for gRPC is open on every address of the machine: the proxy has no setting for that.
    """

    kind = "proxy"

    def __init__(self, peer: Peer, home: Path, pair: Pair, account: Account | None = None) -> None:
        self.account = account
        self._pair = pair
        self._port, self._broker_port = find_ports(), find_broker_port()
        home.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            names = stack.enter_context(JavaNameServer(peer, home / "namesrv"))
            self._names = names.address
            super().__init__(self._write_configuration(peer, home, names.address), home / "proxy.log")
            stack.push(super().__exit__)
            self.wait_for(lambda line: "startup successfully" in line, START_SECONDS_MAX)
            self._stack = stack.pop_all()

    def _write_configuration(self, peer: Peer, home: Path, names: str) -> list[str]:
        broker = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": BROKER_NAME,
            "brokerId": 0,
            "brokerIP1": LOOPBACK,
            "brokerIP2": LOOPBACK,
            "namesrvAddr": names,
            "listenPort": self._broker_port,
            "haListenPort": self._broker_port + 1,
            "storePathRootDir": home / "store",
            "storePathCommitLog": home / "store" / "commitlog",
            **SETTINGS,
            **JAVA_SETTINGS,
            **_describe_accounts(self.account, at_proxy=False),
        }
        proxy = {
            "rocketMQClusterName": "DefaultCluster",
            "proxyClusterName": "DefaultCluster",
            "namesrvAddr": names,
            "proxyMode": "LOCAL",
            "grpcServerPort": self._port,
            "remotingListenPort": find_ports(),
            "localServeAddr": LOOPBACK,
            "tlsTestModeEnable": False,
            "tlsCertPath": str(self._pair.certificate),
            "tlsKeyPath": str(self._pair.key),
            **_describe_accounts(self.account, at_proxy=True),
        }
        properties = home / "broker.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in broker.items()), encoding="utf-8")
        described = home / "proxy.json"
        described.write_text(json.dumps(proxy), encoding="utf-8")
        command = peer.command(
            "org.apache.rocketmq.proxy.ProxyStartup",
            *("-pm", "local", "-n", names, "-bc", str(properties), "-pc", str(described)),
            home=home,
            heap="768m",
            system={"rmq.log.level": "WARN", "tls.server.mode": "permissive"},
        )
        # Its own logging would write hundreds of files.
        for name in ("rmq.broker", "rmq.proxy", "rmq.namesrv", "rmq.client"):
            shutil.copyfile(LOGGING, home / "conf" / f"{name}.logback.xml")
        # The classes are the jars; this folder comes before them.
        at = command.index("-cp") + 1
        command[at] = f"{home / 'conf'}:{peer.jars}/*"
        return command

    @property
    def endpoints(self) -> str:
        """Where gRPC clients connect."""
        return f"{LOOPBACK}:{self._port}"

    @property
    def remote(self) -> Remote:
        """Where topics and groups are made."""
        return Remote(f"{LOOPBACK}:{self._broker_port}", self._names, self.account)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def _describe_accounts(account: Account | None, *, at_proxy: bool) -> dict[str, object]:
    """The settings that make the proxy and the broker in it ask for a signature."""
    if account is None:
        return {}
    inner = {"accessKey": "inner", "secretKey": "secret-of-inner"}
    settings: dict[str, object] = {"innerClientAuthenticationCredentials": json.dumps(inner)}
    for room, word in (("authentication", "Authentication"), ("authorization", "Authorization")):
        settings[f"{room}Enabled"] = True if at_proxy else "true"
        settings[f"{room}Provider"] = f"{_AUTH}.{room}.provider.Default{word}Provider"
        settings[f"{room}MetadataProvider"] = _PROXY % word if at_proxy else _LOCAL % (room, word)
    if not at_proxy:
        first = {"username": account.access_key, "password": account.secret_key}
        settings["initAuthenticationUser"] = json.dumps(first)
    return settings
