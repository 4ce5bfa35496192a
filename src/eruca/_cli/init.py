"""`eruca init`: a configuration with accounts and a certificate, so that the secure way is one command."""

from __future__ import annotations

import os
import secrets
import shlex
from pathlib import Path

import click

from eruca._access.accountfiles import TOOLS_NAME
from eruca._access.options import ACCOUNTS_NAME
from eruca._cli.connecting import DEFAULT_NAMESERVER
from eruca._cli.grouping import SectionedCommand
from eruca._cli.settings import choose_told_address
from eruca._ground.smallfiles import DIRECTORY_MODE, FILE_MODE
from eruca._net.certificates import list_own_names, write_self_signed
from eruca.errors import ConfigError

_ADMIN = "eruca-admin"
_BROKER = "eruca-broker"
_CERTIFICATE = "tls.crt"
_KEY = "tls.key"
#: Bytes of randomness in a secret.
SECRET_BYTES = 32
_ACCOUNTS = """\
# The accounts of this cluster, in the format of RocketMQ 4.9. Changes take effect within a second.
# globalWhiteRemoteAddresses: addresses that need no account.
globalWhiteRemoteAddresses: []
accounts:
# For operators, mqadmin and the `eruca` commands (tools.yml).
- accessKey: {admin}
  secretKey: {admin_secret}
  admin: true
# For brokers among themselves and at the name server (broker.conf).
- accessKey: {broker}
  secretKey: {broker_secret}
  broker: true
# An application gets its own account with the permissions it needs. Copy this, with another secret:
# - accessKey: my-application
#   secretKey: ...
#   defaultTopicPerm: DENY
#   defaultGroupPerm: DENY
#   topicPerms:
#   - orders=PUB|SUB
#   groupPerms:
#   - billing=SUB
"""
_TOOLS = """\
# The account of the operator: `eruca ... --account {name}`, or conf/tools.yml of mqadmin.
accessKey: {admin}
secretKey: {admin_secret}
"""
_NAMESERVER_CONF = """\
# Every request needs an account of {accounts}, which is read from the directory of this file.
aclEnable=true
{tls}{bind}"""
_BROKER_CONF = """\
# Every request needs an account of {accounts}, which is read from the directory of this file.
aclEnable=true
# The account with which this broker signs its own requests.
brokerAccessKey={broker}
brokerSecretKey={broker_secret}
namesrvAddr={nameserver}
{tls}# The broker connects to name servers over TLS, and verifies their certificate.
tls.enable=true
tls.client.trustCertPath={certificate}
{bind}"""
_TLS_CONF = """\
# The certificate for TLS connections. `tls.server.mode=enforcing` refuses all others.
tls.server.certPath={certificate}
tls.server.keyPath={key}
"""


@click.command(cls=SectionedCommand)
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False), default=Path("conf"))
@click.option(
    "--host", metavar="ADDRESS", help="Address to bind and to announce to clients [default: only this machine]."
)
def init(directory: Path, host: str | None) -> None:
    """Write a configuration with accounts and a certificate into DIR [default: ./conf].

    It has an admin account and an account for brokers, each with a random secret. The files can be read only by you:

    \b
      broker.conf, nameserver.conf   for -c of the servers
      plain_acl.yml                  the accounts, as RocketMQ 4.9 has them
      tools.yml                      the admin account: for --account, and mqadmin
      tls.crt, tls.key               a self-signed certificate, for --tls-ca

    Existing files are never overwritten.

    \b
    Examples:
      eruca init
      eruca init /etc/eruca --host 10.0.0.5
    """
    files = make_files(directory, host)
    existing = [name for name in (*files, _CERTIFICATE, _KEY) if (directory / name).exists()]
    if existing:
        raise ConfigError(
            f"{directory} has {' and '.join(existing)} already", hint="choose another directory, or remove the files"
        )
    try:
        directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        for name, text in files.items():
            write_new(directory / name, text)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be written: {error.strerror}") from error
    names = list_own_names(*([] if host is None else [host, choose_told_address(host)]))
    write_self_signed(directory / _CERTIFICATE, directory / _KEY, names)
    click.echo(f"wrote {', '.join((*files, _CERTIFICATE, _KEY))} to {directory}\n\n{_describe_next(directory)}")


def make_files(directory: Path, host: str | None) -> dict[str, str]:
    """Return the text of each file, with new secrets."""
    told = None if host is None else choose_told_address(host)
    facts = {
        "admin": _ADMIN,
        "broker": _BROKER,
        "admin_secret": secrets.token_urlsafe(SECRET_BYTES),
        "broker_secret": secrets.token_urlsafe(SECRET_BYTES),
        "accounts": ACCOUNTS_NAME,
        "name": shlex.quote(str(directory / TOOLS_NAME)),
        "nameserver": DEFAULT_NAMESERVER if told is None else f"{told}:{DEFAULT_NAMESERVER.rpartition(':')[2]}",
    }
    # Absolute, because a server may be started anywhere.
    place = directory.absolute()
    facts["certificate"] = str(place / _CERTIFICATE)
    facts["tls"] = _TLS_CONF.format(certificate=facts["certificate"], key=place / _KEY)
    bind = "" if host is None else f"bindAddress={host}\n"
    announce = "" if told is None else f"brokerIP1={told}\n"
    return {
        ACCOUNTS_NAME: _ACCOUNTS.format(**facts),
        TOOLS_NAME: _TOOLS.format(**facts),
        "nameserver.conf": _NAMESERVER_CONF.format(**facts, bind=bind),
        "broker.conf": _BROKER_CONF.format(**facts, bind=bind + announce),
    }


def write_new(path: Path, text: str) -> None:
    """Write a file that only its owner can read. Raises FileExistsError if it exists."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w", encoding="utf-8") as file:
        file.write(text)


def _describe_next(directory: Path) -> str:
    config, tools, certificate = (
        shlex.quote(str(directory / name)) for name in ("broker.conf", TOOLS_NAME, _CERTIFICATE)
    )
    return (
        f"Next:\n  eruca up -c {config}\nand in another terminal:\n"
        f'  eruca send --account {tools} hello "my first message"\n'
        f"  eruca tail --account {tools} --tls-ca {certificate} hello"
    )
