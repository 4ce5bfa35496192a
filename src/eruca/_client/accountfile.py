"""The account of a client in a file: `tools.yml` of mqadmin, or the same as JSON."""

from __future__ import annotations

from pathlib import Path

from eruca._ground.yamlfiles import read_yaml
from eruca._wire.signature import Credentials
from eruca.errors import ConfigError

_FORM = "it has two lines, accessKey: ... and secretKey: ..."


def read_account_file(path: Path) -> Credentials:
    """Read accessKey, secretKey and, if there is one, securityToken. Raises ConfigError."""
    document = read_yaml(path)
    keys = []
    for field in ("accessKey", "secretKey", "securityToken"):
        value = document.get(field, "")
        # Numbers without quotation marks are texts too, as in Java.
        if type(value) is int:
            value = str(value)
        if not isinstance(value, str):
            raise ConfigError(f"{path}: {field} is not a text", hint="put it in quotation marks")
        keys.append(value)
    if not keys[0] or not keys[1]:
        raise ConfigError(f"{path}: accessKey or secretKey is missing", hint=_FORM)
    return Credentials(*keys)
