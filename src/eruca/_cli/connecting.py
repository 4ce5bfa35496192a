"""How commands find a cluster and sign in: `-n`, `--account`, TLS, and their variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from eruca._net.addresses import check_addresses
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from eruca._client.options import ClientOptions
    from eruca._net.tls import Tls
    from eruca._wire.signature import Credentials

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_NAMESERVER = "127.0.0.1:9876"
# The timeout of a send or of one request to a server. People wait a little longer than programs.
TIMEOUT_S = 5.0
_ACCOUNT_VARIABLE = "ERUCA_ACCOUNT_FILE"
# Where the account of a command is kept while it runs, and its file.
_ACCOUNT = "eruca.account"
_ACCOUNT_FILE = "eruca.account.file"
# Where the options of TLS are kept in the context of a command.
_TLS = "eruca.tls"
_FILE: dict[str, Any] = {"type": click.Path(dir_okay=False), "metavar": "FILE"}
_TLS_FLAGS: dict[str, dict[str, Any]] = {
    "--tls": {"is_flag": True, "help": "Use TLS [default: ERUCA_TLS]. The other options of TLS imply it."},
    "--tls-ca": {**_FILE, "help": "CA certificates to trust [default: ERUCA_TLS_CA, or those of the system]."},
    "--tls-cert": {**_FILE, "help": "The certificate to present [default: ERUCA_TLS_CERT, or none]."},
    "--tls-key": {**_FILE, "help": "The private key of that certificate [default: ERUCA_TLS_KEY]."},
    "--tls-no-verify": {"is_flag": True, "help": "Accept any certificate, also that of an impostor."},
}


class ClusterOption(click.Option):
    """An option that leads to a cluster. The help of every command has them; they are in a section of their own."""


def add_tls_options(function: Function) -> Function:
    """Add the options of TLS to a command. They are not parameters of its function; `choose_tls` reads them."""

    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:
            context.meta.setdefault(_TLS, {})[parameter.name] = value

    for flag, facts in reversed(_TLS_FLAGS.items()):
        function = click.option(flag, cls=ClusterOption, expose_value=False, callback=keep, **facts)(function)
    return function


def choose_tls() -> Tls | None:
    """Return how the current command uses TLS, by its options and the environment; None: not at all."""
    from eruca._net.tls import read_tls_environment

    told: dict[str, Any] = click.get_current_context().meta.get(_TLS, {})
    named = {"tls_ca": "ca", "tls_cert": "certificate", "tls_key": "key"}
    given: dict[str, Any] = {named[name]: value for name, value in told.items() if name in named}
    if "tls_no_verify" in told:
        given["verify"] = False
    return read_tls_environment(enabled="tls" in told, **given)


def add_nameserver_option(function: Function) -> Function:
    """Add `-n`, `--account` and the options of TLS, with the variables that set them, to a command."""
    function = click.option(
        "--account",
        cls=ClusterOption,
        metavar="FILE",
        envvar=_ACCOUNT_VARIABLE,
        type=click.Path(path_type=Path, dir_okay=False),
        expose_value=False,
        callback=_take_account,
        help="File with accessKey and secretKey, such as tools.yml of mqadmin"
        " [default: ERUCA_ACCESS_KEY and ERUCA_SECRET_KEY].",
    )(function)
    return click.option(
        "-n",
        "--namesrv-addr",
        "nameservers",
        cls=ClusterOption,
        metavar="HOST:PORT",
        envvar=["ERUCA_NAMESRV_ADDR", "NAMESRV_ADDR"],
        default=DEFAULT_NAMESERVER,
        callback=lambda _context, _parameter, text: parse_nameservers(text),
        help=f"Name servers, separated by `;` [default: NAMESRV_ADDR or {DEFAULT_NAMESERVER}].",
    )(add_tls_options(function))


def parse_nameservers(text: str) -> str:
    """Return the list unchanged. Raises an error that shows what an address looks like."""
    check_addresses("namesrvAddr", text)
    return text


def _take_account(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """Read the file of an account at once, so that a wrong one is reported before anything else."""
    if path is not None:
        from eruca._client.accountfile import read_account_file

        context.meta[_ACCOUNT] = read_account_file(path)
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
            context.meta[_ACCOUNT_FILE] = str(path)


def use_account_file(path: Path) -> None:
    """Use the account in a file for the current command, unless one was named."""
    context = click.get_current_context()
    if _ACCOUNT not in context.meta:
        from eruca._client.accountfile import read_account_file

        context.meta[_ACCOUNT] = read_account_file(path)


def make_options(nameservers: str) -> ClientOptions:
    """Return the client options of a command; the account is that of `--account`, or of the environment."""
    from eruca._client.options import ClientOptions

    try:
        options = ClientOptions(nameservers=nameservers, call_timeout=TIMEOUT_S, tls=choose_tls())
    except ConfigError as error:
        what = str(error.args[0])
        if not what.startswith("nameservers="):
            raise
        hint = "for example -n 127.0.0.1:9876; the variable ERUCA_ADDRESS_SERVER names an address server"
        raise ConfigError(what.replace("nameservers=", "-n ", 1), hint=hint) from None
    context = click.get_current_context(silent=True)
    account: Credentials | None = None if context is None else context.meta.get(_ACCOUNT)
    if account is None:
        return options
    return replace(
        options,
        access_key=account.access_key,
        secret_key=account.secret_key,
        security_token=account.security_token,
    )


def name_cluster() -> list[str]:
    """Return the words of the current command that say which cluster, account and TLS it uses.

    A command that is printed for the same cluster needs them. What variables set is left out.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return []
    words: list[str] = []
    if context.get_parameter_source("nameservers") is ParameterSource.COMMANDLINE:
        words += ["-n", str(context.params["nameservers"])]
    if _ACCOUNT_FILE in context.meta:
        words += ["--account", context.meta[_ACCOUNT_FILE]]
    for name, value in context.meta.get(_TLS, {}).items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag] if value is True else [flag, str(value)]
    return words
