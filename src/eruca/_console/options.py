"""The options of the console."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._ground.config import option

#: The value of `consoleListenPort` that means no console.
NO_PORT = -1
#: The port that `eruca up` and `eruca console` use.
USUAL_PORT = 8080


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """Where the console listens and what it keeps."""

    port: int = option(
        USUAL_PORT,
        "consoleListenPort",
        "HTTP port of the web console; -1: none, 0: chosen by the system",
        low=NO_PORT,
        high=65_535,
    )
    bind: str = option("127.0.0.1", "consoleBindAddress", "the address of that port")
    directory: str = option(
        "eruca-console", "consoleDirectory", "where the console keeps users, sessions, its audit log and its history"
    )
    schemas: str = option("", "consoleSchemas", "file that names the Avro and Protobuf schemas of topics; empty: none")
