"""The Helm chart as Helm renders it, and the processes that Kubernetes would start from it."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S
from tests.shipping.programs import HELM, build_program

CHART: Final = REPOSITORY / "deploy" / "helm" / "eruca"
RELEASE, NAMESPACE = "shop", "messages"
ETCD = "http://etcd-0.etcd:2379"
# What is rendered and checked: each is a set of `--set` of `helm template`.
VALUES: Final[Mapping[str, Sequence[str]]] = {
    "one": (),
    "three": ("broker.replicas=3", f"etcd.endpoints={{{ETCD}}}"),
    "all": (
        "broker.replicas=3",
        "etcd.endpoints={https://etcd-0:2379,https://etcd-1:2379}",
        "etcd.existingSecret=etcd-login",
        "etcd.tlsSecret=etcd-tls",
        "etcd.clientCertificate=true",
        "tls.existingSecret=eruca-tls",
        "tls.mode=enforcing",
        "metrics.serviceMonitor.enabled=true",
        "metrics.serviceMonitor.labels.release=prometheus",
        "broker.options.fileReservedTime=168",
        "broker.storage.className=fast",
        "image.pullSecrets={registry}",
        "networkPolicy.clients[0].namespaceSelector.matchLabels.team=shop",
        "networkPolicy.monitoring[0].namespaceSelector.matchLabels.team=watch",
        "broker.nodeSelector.disk=nvme",
        "nameserver.replicas=3",
    ),
    "open": ("accounts.enabled=false", "networkPolicy.enabled=false", "podDisruptionBudget.enabled=false"),
    "second": (
        "nameserver.addresses={10.0.0.9:9876,names.shop:9876}",
        "broker.name=broker-b",
        "accounts.existingSecret=mine",
    ),
}

Manifest = dict[str, Any]


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm; the caller looks at what came of it."""
    command = [str(build_program(HELM)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def render(*settings: str) -> str:
    """Return all manifests of the chart."""
    flags = [part for setting in settings for part in ("--set", setting)]
    done = run_helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", "1.34.0", *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def load(text: str) -> list[Manifest]:
    """Parse manifests."""
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def find(manifests: Sequence[Manifest], kind: str, name: str = "") -> Manifest:
    """The one manifest of a kind, and with a name that ends like this."""
    (found,) = [each for each in manifests if each["kind"] == kind and each["metadata"]["name"].endswith(name)]
    return found


@dataclass
class Pod:
    """A pod of a StatefulSet: what Kubernetes starts."""

    name: str
    number: int
    host: str
    container: Manifest
    # Files by the path at which the container sees them.
    files: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def arguments(self) -> list[str]:
        return [str(argument) for argument in self.container["args"]]


def list_pods(manifests: Sequence[Manifest], component: str) -> Iterator[Pod]:
    """The pods of a StatefulSet, with variables and files as Kubernetes fills them in."""
    parts = find(manifests, "StatefulSet", component)
    spec = parts["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    secrets = {each["metadata"]["name"]: _read_secret(each) for each in manifests if each["kind"] == "Secret"}
    for number in range(parts["spec"]["replicas"]):
        name = f"{parts['metadata']['name']}-{number}"
        service = parts["spec"]["serviceName"]
        pod = Pod(name, number, f"{name}.{service}.{NAMESPACE}.svc.cluster.local", container)
        labels = {"apps.kubernetes.io/pod-index": str(number)}
        for variable in container["env"]:
            pod.environment[variable["name"]] = _resolve(variable, pod, labels, secrets)
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        for volume in spec["volumes"] or []:
            for item in volume["secret"].get("items", []):
                pod.files[f"{mounts[volume['name']]}/{item['path']}"] = secrets[volume["secret"]["secretName"]][
                    item["key"]
                ]
        yield pod


def _resolve(variable: Manifest, pod: Pod, labels: Mapping[str, str], secrets: Mapping[str, Mapping[str, str]]) -> str:
    if "value" in variable:
        return re.sub(r"\$\((\w+)\)", lambda match: pod.environment[match[1]], variable["value"])
    wanted = variable["valueFrom"]
    if "secretKeyRef" in wanted:
        return secrets[wanted["secretKeyRef"]["name"]][wanted["secretKeyRef"]["key"]]
    path = wanted["fieldRef"]["fieldPath"]
    if path == "metadata.name":
        return pod.name
    label = re.fullmatch(r"metadata\.labels\['(.+)'\]", path)
    assert label, path
    return labels[label[1]]


def _read_secret(manifest: Manifest) -> dict[str, str]:
    encoded = {key: base64.b64decode(text).decode() for key, text in manifest.get("data", {}).items()}
    return {**encoded, **manifest.get("stringData", {})}


def write_manifests(folder: Path, text: str) -> Path:
    """Write rendered manifests for a checker."""
    path = folder / "manifests.yaml"
    path.write_text(text, encoding="utf-8")
    return path
