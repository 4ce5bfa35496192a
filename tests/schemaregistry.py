"""A schema registry for tests: a real HTTP server that speaks the part of Confluent's REST API that clients use.

Confluent's own server cannot be installed as a package. The serializers of its Python client can: they register schemas
here and write bodies (`tests/spark/test_decoding_registry.py`).
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.authority import Pair


@dataclass
class Registry:
    """Schemas by id and by subject, and how requests are answered."""

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    # The ids of the versions of each subject.
    subjects: dict[str, list[int]] = field(default_factory=dict)
    # User and password, where they are asked for.
    login: tuple[str, str] | None = None
    # Files of Protobuf that are returned compiled, by id.
    compiled: dict[int, bytes] = field(default_factory=dict)
    # What is answered instead, one for each request: a status, or bytes as they are.
    faults: list[int | bytes] = field(default_factory=list)
    # Seconds between two bytes of an answer.
    drip_s: float = 0.0
    # The paths of all requests.
    asked: list[str] = field(default_factory=list)

    def register(self, subject: str, schema: dict[str, Any], schema_id: int | None = None) -> int:
        """Add a version of a subject; returns the id of its schema."""
        for known, there in self.schemas.items():
            if there == schema:
                schema_id = known
        if schema_id is None:
            schema_id = max(self.schemas, default=0) + 1
        self.schemas[schema_id] = schema
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """Answer a GET."""
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["schemas", "ids", number]:
                schema = self.schemas.get(int(number))
                if schema is None:
                    return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
                if query.get("format") == ["serialized"] and int(number) in self.compiled:
                    return 200, {**schema, "schema": base64.b64encode(self.compiled[int(number)]).decode()}
                return 200, schema
            case ["subjects", subject, "versions", version]:
                ids = self.subjects.get(subject)
                if ids is None:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                at = len(ids) if version == "latest" else int(version)
                if not 1 <= at <= len(ids):
                    return 404, {"error_code": 40402, "message": f"Version {version} not found."}
                return 200, {"subject": subject, "version": at, "id": ids[at - 1], **self.schemas[ids[at - 1]]}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


class RegistryServer:
    """Serves a registry on a free port of this machine."""

    def __init__(self, *, tls: Pair | None = None, login: tuple[str, str] | None = None) -> None:
        self.registry = registry = Registry(login=login)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry.asked.append(self.path)
                parts = urlsplit(self.path)
                if self._is_welcome():
                    self._send(*registry.answer(parts.path, parse_qs(parts.query)))

            def do_POST(self) -> None:
                registry.asked.append(self.path)
                schema = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not self._is_welcome():
                    return
                parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
                kept = {name: value for name, value in schema.items() if name in ("schema", "schemaType", "references")}
                kept = {name: value for name, value in kept.items() if value}
                number = registry.register(parts[1], kept)
                self._send(
                    200, {"id": number, "version": len(registry.subjects[parts[1]]), "subject": parts[1], **kept}
                )

            def _is_welcome(self) -> bool:
                if registry.faults:
                    fault = registry.faults.pop(0)
                    if isinstance(fault, bytes):
                        self.wfile.write(fault)
                        self.close_connection = True
                    else:
                        self._send(fault, {"error_code": fault, "message": "as the test wants it"})
                    return False
                told = self.headers.get("Authorization", "")
                if registry.login is None:
                    return True
                if told == "Basic " + base64.b64encode(":".join(registry.login).encode()).decode():
                    return True
                self._send(401, {"error_code": 401, "message": "Unauthorized"})
                return False

            def _send(self, status: int, answer: dict[str, Any]) -> None:
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if not registry.drip_s:
                    self.wfile.write(data)
                    return
                # Slower than anybody waits for; the peer ends it.
                pause = threading.Event()
                for at in range(len(data)):
                    self.wfile.write(data[at : at + 1])
                    pause.wait(registry.drip_s)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Peers hang up, and some do not accept the certificate."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.certificate, tls.key)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if tls is None else "https"
        self.address = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def frame(schema_id: int, datum: bytes, indexes: bytes = b"") -> bytes:
    """A body as serializers write it."""
    return b"\x00" + schema_id.to_bytes(4, "big") + indexes + datum


def measure(work: Any) -> float:
    """How long something takes, in seconds."""
    began = time.monotonic()
    work()
    return time.monotonic() - began
