"""The Compose files are valid, and their commands and variables are those of the servers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from eruca._cli.optionlist import list_options
from tests.needs import needs
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S
from tests.shipping.programs import COMPOSE, fetch_module
from tests.torture.killedbroker import make_environment

FOLDER = REPOSITORY / "deploy" / "compose"
FILES = sorted(FOLDER.glob("*.yaml"))
_VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")


def load(path: Path) -> dict[str, Any]:
    """Read a file with the defaults of its variables."""
    document: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(r"\1", path.read_text(encoding="utf-8")))
    return document


def list_ours(path: Path) -> dict[str, dict[str, Any]]:
    """The services with our image, but for those that run a command."""
    services = load(path)["services"]
    return {
        name: service
        for name, service in services.items()
        if service["image"] == "eruca" and not service.get("profiles")
    }


@needs("go")
@pytest.mark.whole
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_schema_of_compose_accepts_it(path: Path) -> None:
    schema = json.loads((fetch_module(COMPOSE) / "schema" / "compose-spec.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(load(path))
    wrong = load(path)
    next(iter(wrong["services"].values()))["prots"] = []
    with pytest.raises(jsonschema.ValidationError, match="prots"):
        jsonschema.Draft202012Validator(schema).validate(wrong)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_name_and_file_is_there(path: Path) -> None:
    document = load(path)
    services, volumes = document["services"], document["volumes"]
    used = set()
    for service in services.values():
        assert set(service.get("depends_on", [])) <= services.keys()
        for mount in service.get("volumes", []):
            source = mount.partition(":")[0]
            if source.startswith("."):
                assert (FOLDER / source).exists(), source
            else:
                used.add(source)
    assert used == volumes.keys()
    targets = re.findall(r'"([\w-]+):5557"', (FOLDER / "monitoring" / "prometheus.yml").read_text())
    assert path.stem == "one" or set(targets) == list_ours(path).keys() - {"console"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_can_be_reached_from_other_machines(path: Path) -> None:
    """There are no accounts, so what is published is published on loopback."""
    ports = [port for service in load(path)["services"].values() for port in service.get("ports", [])]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)
    for name, service in list_ours(path).items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"], name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_servers_understand_their_commands(path: Path, tmp_path: Path) -> None:
    known = {facts.environment for facts in list_options()} | {"NAMESRV_ADDR"}
    for name, service in list_ours(path).items():
        variables = {key: str(value) for key, value in service["environment"].items()}
        assert variables.keys() <= known, name
        command = [sys.executable, "-m", "eruca", *service["command"], "--print-config", "--output", "json"]
        done = subprocess.run(
            command,
            env={**make_environment(), **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), f"{name}: {done.stderr}"
        options = {row["key"]: row["value"] for row in map(json.loads, done.stdout.splitlines())}
        # The console has no metrics of its own.
        assert options["consoleBindAddress" if name == "console" else "metricsBindAddress"] == "0.0.0.0"
        ports = [port for port in service.get("ports", []) if port.endswith(":8080")]
        assert bool(ports) == (options.get("consoleBindAddress", "127.0.0.1") == "0.0.0.0"), name
    assert os.listdir(tmp_path) == []
