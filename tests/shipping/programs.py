"""Checkers that are Go programs or parts of Go modules, fetched by name and kept in the user's cache folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import yaml

from tests.needs import expect_need

HELM: Final = "helm.sh/helm/v3/cmd/helm@v3.22.0"
KUBECONFORM: Final = "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0"
# Modules that have schemas among their files.
OPERATOR: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
COMPOSE: Final = "github.com/compose-spec/compose-go/v2@v2.16.2"
# Fetching and compiling on a slow machine; afterwards they are there.
_BUILD_SECONDS_MAX: Final = 1500


@cache
def build_program(package: str) -> Path:
    """Compile a Go program of this version, unless an earlier run did."""
    expect_need("go")
    folder = find_cache() / package.replace("/", "_")
    program = folder / package.partition("@")[0].rpartition("/")[2]
    if not program.exists():
        made = folder.with_name(f"{folder.name}.{os.getpid()}")
        _run(["go", "install", package], {"GOBIN": str(made), "GOFLAGS": "-trimpath"})
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return program


@cache
def fetch_module(module: str) -> Path:
    """Return the folder of a Go module of this version."""
    expect_need("go")
    said = _run(["go", "mod", "download", "-json", module], {})
    return Path(json.loads(said)["Dir"])


# A folder for each version of Kubernetes.
_SCHEMAS: Final = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"


def write_kubernetes_schemas(folder: Path, version: str, manifests: Iterable[Mapping[str, Any]]) -> Path:
    """Write the schemas of some manifests as kubeconform reads them, each complete in itself; returns the folder."""
    source = _SCHEMAS / f"v{version}-local-strict"
    shared = json.loads((source / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
    folder.mkdir(parents=True)
    for manifest in manifests:
        group, _, number = manifest["apiVersion"].rpartition("/")
        parts = [manifest["kind"].lower(), *([group.partition(".")[0]] if group else []), number]
        name = f"{'-'.join(parts)}.json"
        if (source / name).exists():
            text = (source / name).read_text(encoding="utf-8").replace("/api/_definitions.json#", "#")
            schema = {key: value for key, value in json.loads(text).items() if key != "$id"}
            (folder / name).write_text(json.dumps({**schema, "$defs": shared}), encoding="utf-8")
    return folder


def list_kubernetes_versions(oldest: tuple[int, int]) -> list[str]:
    """The versions of Kubernetes that have schemas, from one on."""
    names = [path.name.removesuffix("-local").removeprefix("v") for path in _SCHEMAS.glob("v*-local")]
    numbers = sorted(tuple(map(int, name.split("."))) for name in names)
    return [".".join(map(str, number)) for number in numbers if number[:2] >= oldest]


def write_monitor_schema(folder: Path) -> Path:
    """Write the schema of a ServiceMonitor as kubeconform reads it; returns the folder."""
    definitions = fetch_module(OPERATOR) / "example" / "prometheus-operator-crd"
    text = (definitions / "monitoring.coreos.com_servicemonitors.yaml").read_text(encoding="utf-8")
    (version,) = yaml.safe_load(text)["spec"]["versions"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"servicemonitor_{version['name']}.json").write_text(json.dumps(version["schema"]["openAPIV3Schema"]))
    return folder


def find_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eruca-shipping"


def _run(command: list[str], more: dict[str, str]) -> str:
    done = subprocess.run(
        command, env={**os.environ, **more}, capture_output=True, text=True, timeout=_BUILD_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, f"`{' '.join(command)}` failed:\n{done.stderr[-3000:]}"
    return done.stdout
