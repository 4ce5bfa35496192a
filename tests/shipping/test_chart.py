"""The Helm chart: its checkers accept it, its schema refuses what is wrong, servers know its options."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from eruca._cli.optionlist import Role, options_of
from tests.figures import note_figures
from tests.needs import needs
from tests.patience import PATIENCE_S
from tests.shipping.charts import CHART, VALUES, Manifest, find, list_pods, load, render, run_helm, write_manifests
from tests.shipping.programs import (
    KUBECONFORM,
    build_program,
    list_kubernetes_versions,
    write_kubernetes_schemas,
    write_monitor_schema,
)
from tools.project import read_version

OLDEST = (1, 28)


def read_chart(name: str) -> dict[str, object]:
    document: dict[str, object] = yaml.safe_load((CHART / name).read_text(encoding="utf-8"))
    return document


def test_chart_and_package_have_one_version() -> None:
    chart = read_chart("Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (read_version(), read_version())


def test_every_value_has_a_type() -> None:
    """The schema knows exactly the values of values.yaml, and refuses others at every level."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(values: object, part: dict[str, object], path: str) -> None:
        properties = part.get("properties")
        if not isinstance(values, dict) or not isinstance(properties, dict):
            return
        assert part["additionalProperties"] is False, path
        assert set(values) == set(properties) - {"global"}, path
        for key, value in values.items():
            compare(value, properties[key], f"{path}.{key}")

    compare(read_chart("values.yaml"), schema, "values")


def test_every_file_for_connections_to_etcd_can_be_given() -> None:
    template = (CHART / "templates" / "broker.yaml").read_text(encoding="utf-8")
    given = {name for name in re.findall(r"--option=(etcd\w+)=/", template)}
    assert given == {name for name in options_of(Role.BROKER) if re.fullmatch(r"etcd\w+File", name)}


@pytest.mark.whole
@needs("go")
def test_members_show_etcd_their_certificate() -> None:
    """Only where the values say that the secret has one: a member does not start without a file that it was told."""
    folder = "/etc/eruca/etcd"
    for settings, expected in (
        (
            VALUES["all"],
            {f"etcd{n}File={folder}/{f}" for n, f in (("Ca", "ca.crt"), ("Cert", "tls.crt"), ("Key", "tls.key"))},
        ),
        ([*VALUES["all"], "etcd.clientCertificate=false"], {f"etcdCaFile={folder}/ca.crt"}),
    ):
        spec = find(load(render(*settings)), "StatefulSet", "broker")["spec"]["template"]["spec"]
        arguments = spec["containers"][0]["args"]
        assert {text.removeprefix("--option=") for text in arguments if folder in text} == expected


@pytest.mark.whole
@needs("go")
@pytest.mark.parametrize("name", VALUES)
def test_helm_finds_nothing_wrong(name: str) -> None:
    flags = [part for setting in VALUES[name] for part in ("--set", setting)]
    done = run_helm("lint", "--strict", str(CHART), *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 chart(s) linted, 0 chart(s) failed" in done.stdout


@pytest.mark.whole
@needs("go")
@pytest.mark.parametrize("name", VALUES)
def test_kubernetes_would_accept_it(name: str, tmp_path: Path) -> None:
    text = render(*VALUES[name])
    manifests = load(text)
    path = write_manifests(tmp_path, text)
    monitor = write_monitor_schema(tmp_path / "monitor")
    versions = list_kubernetes_versions(OLDEST)
    for version in versions:
        schemas = write_kubernetes_schemas(tmp_path / version, version, manifests)
        done = run_kubeconform(path, version, schemas, monitor)
        assert done.returncode == 0, done.stdout + done.stderr
        expected = {"valid": len(manifests), "invalid": 0, "errors": 0, "skipped": 0}
        assert json.loads(done.stdout)["summary"] == expected
    wrong = write_manifests(tmp_path, text.replace("serviceName:", "servceName:").replace("endpoints:", "endponts:"))
    done = run_kubeconform(wrong, versions[-1], schemas, monitor)
    kinds = {row["kind"] for row in json.loads(done.stdout)["resources"] if row["status"] == "statusInvalid"}
    assert kinds == {"StatefulSet", *({"ServiceMonitor"} if name == "all" else set())}
    note_figures(f"kubeconform, values {name}: {len(manifests)} valid for Kubernetes {versions[0]} to {versions[-1]}")


def run_kubeconform(manifests: Path, version: str, *folders: Path) -> subprocess.CompletedProcess[str]:
    """Check manifests with the schemas of folders, of Kubernetes and of others."""
    kubernetes, others = folders
    command = [
        *(str(build_program(KUBECONFORM)), "-strict", "-summary", "-output", "json", "-kubernetes-version", version),
        *("-schema-location", f"{kubernetes}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"),
        *("-schema-location", f"{others}/{{{{.ResourceKind}}}}_{{{{.ResourceAPIVersion}}}}.json"),
        str(manifests),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.whole
@needs("go")
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("broker.replicas=3", "etcd"),
        ("broker.replicas=0", "replicas"),
        ("broker.flushDiskType=SOMETIMES", "flushDiskType"),
        ("broker.nmae=x", "nmae"),
        ("broker.name=a/b", "name"),
        ("nameserver.addresses={nowhere}", "addresses"),
        ("etcd.endpoints={etcd:2379}", "endpoints"),
        ("tls.mode=sometimes", "mode"),
        ("broker.storage.size=much", "size"),
    ],
)
def test_values_that_are_wrong_are_refused(setting: str, said: str) -> None:
    done = run_helm("template", "shop", str(CHART), "--kube-version=1.34.0", "--set", setting)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.whole
@needs("go")
@pytest.mark.parametrize("name", VALUES)
def test_servers_know_every_option_of_the_chart(name: str) -> None:
    manifests = load(render(*VALUES[name]))
    components = {"broker": Role.BROKER, **({} if name == "second" else {"nameserver": Role.NAMESERVER})}
    for component, role in components.items():
        known = options_of(role)
        variables = {facts.environment for facts in known.values()}
        pods = list(list_pods(_fill_secrets(manifests), component))
        for pod in pods:
            options = [match[1] for flag in pod.arguments if (match := re.match(r"--option=([^=]+)=", flag))]
            assert set(options) <= known.keys()
            assert {name for name in pod.environment if name.startswith("ERUCA_")} <= variables
        assert pods


def _fill_secrets(manifests: list[Manifest]) -> list[Manifest]:
    """Add the secrets that operators bring."""
    keys = ("plain_acl.yml", "brokerAccessKey", "brokerSecretKey", "metricsToken", "user", "password")
    text = dict.fromkeys(keys, "x")
    given: list[Manifest] = [
        {"kind": "Secret", "metadata": {"name": name}, "stringData": text} for name in ("mine", "etcd-login")
    ]
    return [*manifests, *given]


@pytest.mark.whole
@needs("go")
def test_nothing_of_a_pod_is_more_than_it_needs() -> None:
    manifests = load(render(*VALUES["three"]))
    for component in ("broker", "nameserver"):
        spec = find(manifests, "StatefulSet", component)["spec"]["template"]["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    budgets = [each for each in manifests if each["kind"] == "PodDisruptionBudget"]
    assert [budget["spec"]["maxUnavailable"] for budget in budgets] == [1, 1]
    policy = find(manifests, "NetworkPolicy")
    (log,) = [rule for rule in policy["spec"]["ingress"] if {"port": "replication"} in rule["ports"]]
    assert list(log["from"][0]) == ["podSelector"] and log["from"][0]["podSelector"]["matchLabels"]


@pytest.mark.whole
@needs("go")
def test_secrets_are_random_and_nowhere_else() -> None:
    first, second = (render(*VALUES["three"]) for _ in range(2))
    (secret,) = [each for each in load(first) if each["kind"] == "Secret"]
    hidden = secret["stringData"]["brokerSecretKey"]
    assert len(hidden) >= 40 and hidden not in second
    assert "\n".join(part for part in first.split("\n---") if hidden in part).count("kind: ") == 1
