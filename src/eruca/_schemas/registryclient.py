"""A client of schema registries: the part of Confluent's REST API that reads schemas.

Answers are bounded, requests are limited in time, and redirects are not followed: they could lead the password
elsewhere. A request that fails for lack of an answer is tried again.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from eruca._ground.backoff import Backoff
from eruca._ground.durations import to_seconds
from eruca._ground.limits import SCHEMA_BYTES_MAX, SCHEMA_REFERENCES_MAX
from eruca._ground.yamlfiles import read_yaml
from eruca._net.tls import Tls, explain_failure, make_client_context
from eruca._schemas.bodies import BadBody
from eruca._schemas.registry import AVRO, PROTOBUF, Registered, SchemaRegistry
from eruca.errors import CallTimeout, ConfigError, ConnectFailed, ErucaError, NetError

log = logging.getLogger(__name__)

_RETRIES: Final = Backoff(0.2, 5.0, jitter=0.2)
_READ_BYTES: Final = 65536
_OK, _NOT_FOUND, _TOO_MANY = 200, 404, 429
_REFUSED: Final = (401, 403)
# No such subject, version or schema.
_UNKNOWN: Final = (40401, 40402, 40403)
_SHOWN_CHARS: Final = 200
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
# Not decompressed: a few compressed bytes could become gigabytes.
_HEADERS: Final = {
    "Accept": "application/vnd.schemaregistry.v1+json, application/json",
    "Accept-Encoding": "identity",
    "Connection": "close",
}
# A compiled Protobuf file needs no compiler here. Registries that do not know this return the text, or an error.
_COMPILED: Final = "?format=serialized"


class RegistryClient:
    """Asks one registry for schemas."""

    def __init__(self, registry: SchemaRegistry, *, sleep: Callable[[float], None] = time.sleep) -> None:
        parts = urlsplit(str(registry.place))
        self._name = str(registry.place)
        self._host, self._port = str(parts.hostname), parts.port
        self._path = parts.path.rstrip("/")
        self._timeout_s = to_seconds("timeout", registry.timeout)
        self._retries = registry.retries
        self._sleep = sleep
        self._context = make_client_context(registry.tls or Tls()) if parts.scheme == "https" else None
        self._headers = dict(_HEADERS)
        user, password = read_login(registry.login_file)
        if user:
            self._headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
            if self._context is None and self._host not in _LOOPBACK:
                log.warning("the password of registry user %s is sent without TLS; use https://", user)

    def find(self, schema_id: int) -> Registered:
        """Return a schema and those it refers to. Raises BadBody if there is none."""
        return self._resolve(self._ask_id(schema_id), _Budget(f"schema {schema_id}"))

    def find_latest(self, subject: str) -> Registered:
        """Return the newest schema of a subject. Raises ConfigError if there is none."""
        try:
            found = self._ask_version(subject, "latest")
            return self._resolve(found, _Budget(f"the newest schema of {subject}"))
        except BadBody as error:
            raise ConfigError(
                f"subject {subject} of the registry {self._name}: {error}",
                hint="by default, the subject of a topic is its name with -value",
            ) from None

    # -- schemas -----------------------------------------------------------------------------------------------------

    def _ask_id(self, schema_id: int) -> dict[str, Any]:
        path = f"/schemas/ids/{schema_id}"
        found = self._ask(path)
        if found is None:
            raise BadBody(f"the registry has no schema {schema_id}")
        if found.get("schemaType") != PROTOBUF:
            return found
        descriptor = self._ask(path + _COMPILED, is_optional=True)
        return found if descriptor is None else descriptor

    def _ask_version(self, subject: str, version: object) -> dict[str, Any]:
        found = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}")
        if found is None:
            raise BadBody(f"the registry has no version {version} of it")
        # The id has the file compiled, a version has it as text.
        if found.get("schemaType") == PROTOBUF and isinstance(found.get("id"), int):
            return self._ask_id(found["id"])
        return found

    def _resolve(self, answer: dict[str, Any], budget: _Budget) -> Registered:
        text, references = answer.get("schema"), answer.get("references") or []
        if not isinstance(text, str) or not isinstance(references, list):
            raise self._complain("its answer has no schema")
        found = []
        for each in references:
            budget.spend()
            try:
                name, subject, version = str(each["name"]), str(each["subject"]), int(each["version"])
            except (KeyError, TypeError, ValueError):
                raise self._complain("its answer has a reference without name, subject and version") from None
            found.append((name, self._resolve(self._ask_version(subject, version), budget)))
        return Registered(str(answer.get("schemaType") or AVRO), text, tuple(found))

    # -- requests ----------------------------------------------------------------------------------------------------

    def _ask(self, path: str, *, is_optional: bool = False) -> dict[str, Any] | None:
        """Return the answer; None if there is no such schema. Raises NetError when it was tried in vain.

        Raises ConfigError for an answer that no further try would change. If the answer is optional, the result is None
        instead.
        """
        failures = 0
        while True:
            try:
                return self._ask_once(path, is_optional)
            except NetError:
                failures += 1
                if failures > self._retries:
                    raise
            self._sleep(_RETRIES.after(failures))

    def _ask_once(self, path: str, is_optional: bool) -> dict[str, Any] | None:
        try:
            status, data = self._fetch(self._path + path)
        except TimeoutError:
            raise CallTimeout(f"the schema registry {self._name} did not answer within {self._timeout_s:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise ConnectFailed(
                f"the schema registry {self._name} cannot be reached: {explain_failure(error)}",
                hint="the bodies are not at fault, so the task fails; it continues when the registry is back",
            ) from None
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            answer = None
        if status == _OK:
            if not isinstance(answer, dict):
                raise self._complain("its answer is not a JSON object")
            return answer
        # The registry's own codes: a wrong address is answered with 404 too, but without them.
        code = answer.get("error_code") if isinstance(answer, dict) else None
        if is_optional or (status == _NOT_FOUND and code in _UNKNOWN):
            return None
        said = answer.get("message") if isinstance(answer, dict) else None
        text = f"the schema registry {self._name} answers {status}" + (f": {said!s:.{_SHOWN_CHARS}}" if said else "")
        if status in _REFUSED:
            raise ConfigError(
                text, hint="set ERUCA_REGISTRY_USER and ERUCA_REGISTRY_PASSWORD on every node, or give login_file="
            )
        if status >= 500 or status == _TOO_MANY:
            raise ConnectFailed(text)
        raise ConfigError(text, hint="is this the address of a registry with Confluent's REST API?")

    def _fetch(self, path: str) -> tuple[int, bytes]:
        deadline = time.monotonic() + self._timeout_s
        connection = (
            http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
            if self._context is None
            else http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._context)
        )
        try:
            connection.request("GET", path, headers=self._headers)
            response = connection.getresponse()
            data = bytearray()
            while chunk := response.read1(_READ_BYTES):
                data += chunk
                if len(data) > SCHEMA_BYTES_MAX:
                    raise BadBody(f"the registry answers with more than {SCHEMA_BYTES_MAX} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError
            if response.length:
                raise http.client.IncompleteRead(bytes(data), response.length)
            return response.status, bytes(data)
        finally:
            connection.close()

    def _complain(self, what: str) -> ErucaError:
        return ConfigError(
            f"the schema registry {self._name}: {what}", hint="does it have the REST API of Confluent's registry?"
        )


class _Budget:
    """Limits how many schemas are fetched for one."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._left = SCHEMA_REFERENCES_MAX

    def spend(self) -> None:
        """Count one reference. Raises BadBody."""
        self._left -= 1
        if self._left < 0:
            raise BadBody(f"{self._what} refers to more than {SCHEMA_REFERENCES_MAX} others")


def read_login(file: str | Path) -> tuple[str, str]:
    """Return user and password, from the file or from the environment; both are empty if there are none."""
    if not file:
        return os.environ.get("ERUCA_REGISTRY_USER", ""), os.environ.get("ERUCA_REGISTRY_PASSWORD", "")
    document = read_yaml(Path(file))
    found = [document.get(name) for name in ("user", "password")]
    if not all(isinstance(value, str) and value for value in found):
        raise ConfigError(f"{file}: user or password is missing", hint="it has two lines, user: ... and password: ...")
    return str(found[0]), str(found[1])
