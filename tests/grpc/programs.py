"""Our programs around the official gRPC clients: built once, started once a session, asked by many scenarios at once.

The sources are in `java`, `go`, `python`, `node` and `rust`. What is built from them, with the client library fetched
by name, lives in the user's cache folder under a name made of what the sources say. All programs take the same lines.

They are started by threads that run cells, whichever test runs meanwhile: only the marks of a cell say what it needs.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.grpc.servers import Server
from tests.interop.clientprograms import build_once, run
from tests.interop.javapeer import ANSWER_SECONDS_MAX, JavaProcess

HERE = Path(__file__).parent
Row = dict[str, Any]


class Refused(Exception):
    """A client reported an error; the text is all that it said."""


# --- building ---------------------------------------------------------------------------------------------------


def build_java() -> list[str]:
    """The Java client, as Maven finds it."""

    def build(folder: Path) -> None:
        shutil.copyfile(HERE / "java" / "pom.xml", folder / "pom.xml")
        run(["mvn", "-q", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'lib'}"], folder)
        sources = [str(path) for path in (HERE / "java" / "src").rglob("*.java")]
        run(["javac", "-nowarn", "-cp", f"{folder / 'lib'}/*", "-d", str(folder / "classes"), *sources], folder)

    made = build_once(HERE / "java", "grpc-java", ["pom.xml", "src/**/*.java"], build)
    return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{made / 'classes'}:{made / 'lib'}/*", "eruca.grpc.Client"]


def build_go() -> list[str]:
    """The Go client, as its module is locked."""

    def build(folder: Path) -> None:
        run(["go", "build", "-trimpath", "-buildvcs=false", "-o", str(folder / "grpc"), "."], HERE / "go")

    return [str(build_once(HERE / "go", "grpc-go", ["*.go", "go.mod", "go.sum"], build) / "grpc")]


def build_python() -> list[str]:
    """The Python client, in an environment of its own: its protobuf classes collide with others in one process."""

    def build(folder: Path) -> None:
        shutil.copyfile(HERE / "python" / "main.py", folder / "main.py")
        requirements = str(HERE / "python" / "requirements.txt")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "--target", str(folder / "lib"), "-r", requirements], folder)

    made = build_once(HERE / "python", "grpc-python", ["main.py", "requirements.txt"], build)
    # -S: nothing of the environment that the tests run in.
    return ["env", f"PYTHONPATH={made / 'lib'}", sys.executable, "-S", str(made / "main.py")]


def build_node() -> list[str]:
    """The Node client, as locked."""

    def build(folder: Path) -> None:
        for name in ("package.json", "package-lock.json", "main.js"):
            shutil.copyfile(HERE / "node" / name, folder / name)
        run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    made = build_once(HERE / "node", "grpc-node", ["main.js", "package.json", "package-lock.json"], build)
    return ["node", str(made / "main.js")]


def build_rust() -> list[str]:
    """The Rust client, with the versions of its manifest."""

    def build(folder: Path) -> None:
        made, manifest = folder / "target", str(HERE / "rust" / "Cargo.toml")
        cargo = ["cargo", "build", "--quiet", "--manifest-path", manifest, "--target-dir", str(made)]
        run(cargo, folder)
        shutil.move(made / "debug" / "eruca-grpc", folder / "grpc")
        shutil.rmtree(made)

    return [str(build_once(HERE / "rust", "grpc-rust", ["Cargo.toml", "src/*.rs"], build) / "grpc")]


BUILDERS: dict[str, Callable[[], list[str]]] = {
    "java": build_java,
    "go": build_go,
    "python": build_python,
    "node": build_node,
    "rust": build_rust,
}


# --- running ----------------------------------------------------------------------------------------------------


class Program(JavaProcess):
    """A running program; any number of threads may ask it at the same time."""

    def __init__(self, language: str, home: Path, roots: Path, *, tls: bool = False) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.language = language
        command = BUILDERS[language]()
        if language == "java":
            command = [command[0], f"-Duser.home={home}", *command[1:]]
        # The Go client reads this when it starts; all others are told.
        settings = [f"HOME={home}", f"user.home={home}", f"rocketmq.client.enableSsl={str(tls).lower()}"]
        # Java and Go trust any certificate; Python and Node look here, and Rust there.
        settings += [f"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH={roots}", f"SSL_CERT_FILE={roots}"]
        super().__init__(["env", *settings, *command, *(["tls"] if tls else [])], home / f"{language}.log", talks=True)
        self._ids = itertools.count(1)
        self._writing = threading.Lock()

    def ask(self, action: str, name: str, /, **fields: Any) -> list[Any]:
        """Ask it to do something; returns the rows of the answer. Raises Refused with the error of the client."""
        with self._writing:
            number, start = next(self._ids), len(self.lines)
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": number, "do": action, "name": name, **fields}).encode() + b"\n")
            self._process.stdin.flush()
        at = self.wait_for(lambda line: _read_id(line) == number, ANSWER_SECONDS_MAX, start=start)
        answer = json.loads(self.lines[at])
        if "error" in answer:
            raise Refused(answer["error"])
        rows: list[Any] = answer["rows"]
        return rows


def _read_id(line: str) -> int:
    return int(json.loads(line)["id"]) if line.startswith("{") else 0


def describe_account(server: Server, **different: str) -> dict[str, str]:
    """The fields of a request that name the server and the account."""
    fields = {"endpoints": server.endpoints}
    if server.account is not None:
        fields |= {"accessKey": server.account.access_key, "secretKey": server.account.secret_key}
    return fields | different
