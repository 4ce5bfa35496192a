"""Secrets of accounts for `eruca acl`: read from a file or typed, made at random, and never printed."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import click

from eruca._cli.init import SECRET_BYTES, write_new
from eruca._cli.saying import say
from eruca._client.accountfile import read_account_file
from eruca.admin import Account, Changed
from eruca.errors import ConfigError, ErucaError

_FILE = """\
# The account {name}: `eruca ... --account {path}`, or conf/tools.yml of mqadmin.
accessKey: {key}
secretKey: {secret}
"""


@dataclass(slots=True)
class Secret:
    """The secret for an account, and whether no broker has taken it."""

    text: str
    is_refused: bool = False

    def note(self, changed: Changed[Account]) -> Changed[Account]:
        """Keep in mind whether all brokers refused it; returns the change."""
        self.is_refused = bool(changed.changes) and all(change.outcome == "failed" for change in changed.changes)
        return changed


@contextmanager
def find_secret(access_key: str, file: Path | None, new_file: Path | None, *, dry_run: bool) -> Iterator[Secret]:
    """Yield the secret for an account: from a file, a new one in a new file, or typed on the terminal.

    A new file is removed again if no account has its secret: all brokers refused it, one of our errors was raised, or
    the question was answered with no.
    """
    if file is not None and new_file is not None:
        raise click.UsageError("--secret-file and --new-secret are mutually exclusive")
    if file is not None:
        yield Secret(_read(access_key, file))
    elif new_file is None:
        yield Secret(_ask(access_key))
    elif dry_run:
        yield Secret(secrets.token_urlsafe(SECRET_BYTES))
    else:
        secret = Secret(secrets.token_urlsafe(SECRET_BYTES))
        _write(new_file, access_key, secret.text)
        try:
            yield secret
        except (ErucaError, click.Abort):
            secret.is_refused = True
            raise
        finally:
            if secret.is_refused:
                with suppress(OSError):
                    new_file.unlink()
            else:
                say(f"the account is in {new_file}; use it with --account")


def _read(access_key: str, file: Path) -> str:
    account = read_account_file(file)
    if account.access_key != access_key:
        raise ConfigError(f"{file} is the file of another account", hint=f"its accessKey must be {access_key}")
    return account.secret_key


def _ask(access_key: str) -> str:
    if not sys.stdin.isatty():
        raise ConfigError(
            "no secret was given, and standard input is not a terminal",
            hint="--new-secret FILE makes one, --secret-file FILE reads one",
        )
    secret: str = click.prompt(f"Secret of {access_key}", hide_input=True, confirmation_prompt=True, err=True)
    return secret


def _write(path: Path, access_key: str, secret: str) -> None:
    # A JSON text is a YAML text.
    text = _FILE.format(
        name=access_key, path=shlex.quote(str(path)), key=json.dumps(access_key), secret=json.dumps(secret)
    )
    try:
        write_new(path, text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already", hint="choose another file; it would be overwritten") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint="is it writable?") from error
