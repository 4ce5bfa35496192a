"""Files that browsers load: read once, named by their content, so that they can be cached for good."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file: its content, its type and a word that changes with it."""

    data: bytes
    media_type: str
    version: str


@cache
def load_static() -> dict[str, StaticFile]:
    """Return all files by name."""
    found = {}
    for file in files("eruca._console").joinpath("static").iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in _TYPES:
            data = file.read_bytes()
            found[file.name] = StaticFile(data, _TYPES[suffix], hashlib.sha256(data).hexdigest()[:12])
    return found


def find_static(name: str) -> str:
    """Return the address of a file."""
    return f"/static/{name}?v={load_static()[name].version}"


async def serve_static(request: Request) -> Response:
    """Answer a request for a file. Only names that were found at the start exist."""
    file = load_static().get(request.path_params["name"])
    if file is None:
        return Response("not found", status_code=404, media_type="text/plain")
    caching = _FOREVER if request.query_params.get("v") == file.version else "no-cache"
    return Response(file.data, media_type=file.media_type, headers={"Cache-Control": caching, "ETag": file.version})
