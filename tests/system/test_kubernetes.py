"""The manifests fit each other, the service, and the schemas of Kubernetes and KServe."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.config.settings import Settings
from tests.support.promql import missing_series
from tests.support.virtualenvs import ROOT, installed_programs, run_client

DEPLOY = ROOT / "deploy/kubernetes"
KSERVE = ROOT / "deploy/kserve"
SCHEMAS = ("kubernetes", "kubernetes-validate==1.37.0")
KSERVE_CLIENT = ("kserve", "kserve==0.21.0")
COMPONENTS = ("models", "prometheus", "keys")


def read(name: str, folder: Path = DEPLOY) -> Any:
    """One manifest."""
    return yaml.safe_load((folder / name).read_text(encoding="utf-8"))


def hardened(container: dict[str, Any]) -> None:
    """What every container of ours is kept from."""
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]


def settings(container: dict[str, Any]) -> dict[str, str]:
    """The container's variables, each of which is a setting of the service."""
    found = {variable["name"]: variable["value"] for variable in container["env"]}
    known = {f"TURNPIKE_{name.upper()}" for name in Settings.model_fields}
    assert set(found) <= known
    return found


def drains(container: dict[str, Any]) -> tuple[float, float]:
    """Seconds before the port closes, and after."""
    found = settings(container)
    return float(found["TURNPIKE_DRAIN_WAIT"]), float(found["TURNPIKE_DRAIN_SECONDS"])


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    """What the Deployment makes."""
    return read("deployment.yaml")["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    """The one container of a pod."""
    (one,) = pod["containers"]
    return one


def test_the_pod_is_hardened(pod: dict[str, Any], container: dict[str, Any]) -> None:
    """No root, no token, no capability, nothing to write to but /tmp, no settings of Kubernetes' making."""
    hardened(container)
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False


def test_it_may_drain(pod: dict[str, Any], container: dict[str, Any]) -> None:
    """The pod is given more time than both drains, and is known to be not ready before its port closes."""
    wait, seconds = drains(container)
    assert pod["terminationGracePeriodSeconds"] > wait + seconds
    probe = container["readinessProbe"]
    assert probe["httpGet"]["path"] == "/v2/health/ready"
    assert probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"] < wait
    assert container["livenessProbe"]["httpGet"]["path"] == "/v2/health/live"
    assert read("deployment.yaml")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_all_mean_the_same_pods(container: dict[str, Any]) -> None:
    """Whatever selects pods selects those of the Deployment, and its ports are theirs."""
    deployment = read("deployment.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert read("service.yaml")["spec"]["selector"] == labels
    assert read("disruption.yaml")["spec"]["selector"]["matchLabels"] == labels
    assert read("network.yaml")["spec"]["podSelector"]["matchLabels"] == labels
    assert read("prometheus/podmonitor.yaml")["spec"]["selector"]["matchLabels"] == labels
    assert read("autoscaler.yaml")["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    ports = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in read("service.yaml")["spec"]["ports"]} == ports
    assert {port["port"] for port in read("network.yaml")["spec"]["ingress"][0]["ports"]} == ports
    assert {one["port"] for one in read("prometheus/podmonitor.yaml")["spec"]["podMetricsEndpoints"]} == ports


def test_alerts_and_dashboard_know_the_pods() -> None:
    """Prometheus calls them by the job that both ask for."""
    label = read("prometheus/podmonitor.yaml")["spec"]["jobLabel"]
    assert read("deployment.yaml")["spec"]["template"]["metadata"]["labels"][label] == "turnpike"


def test_every_manifest_is_used() -> None:
    """Each file is named by its folder's kustomization, but for the values of the adapter's chart."""
    for folder in (DEPLOY, *(DEPLOY / name for name in COMPONENTS)):
        kustomization = read("kustomization.yaml", folder)
        named = set(kustomization.get("resources", []))
        named |= {patch["path"] for patch in kustomization.get("patches", []) if "path" in patch}
        there = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml", "adapter.yaml"}
        assert named == there, folder


def adapter() -> dict[str, Any]:
    """The one rule of the adapter."""
    (rule,) = read("prometheus/adapter.yaml")["rules"]["custom"]
    return rule


def adapted(matchers: str, by: str) -> str:
    """The query that the adapter makes of its rule."""
    query = adapter()["metricsQuery"].replace("<<.LabelMatchers>>", matchers).replace("<<.GroupBy>>", by)
    assert "<<" not in query
    return query


def test_the_autoscaler_asks_for_what_the_adapter_makes() -> None:
    """Of one name, and made of what the service exposes."""
    (metric,) = read("autoscaler.yaml")["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == adapter()["name"]["as"]
    assert missing_series(adapted("", "instance")) == []


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_what_the_autoscaler_sees(tmp_path: Path) -> None:
    """The mean wait of each pod in milliseconds, and 0 rather than nothing of one without requests."""
    series = {
        'turnpike_model_queue_seconds_sum{namespace="n", pod="busy", model="one"}': "0+12x10",
        'turnpike_model_queue_seconds_count{namespace="n", pod="busy", model="one"}': "0+600x10",
        'turnpike_model_queue_seconds_sum{namespace="n", pod="busy", model="two"}': "0+6x10",
        'turnpike_model_queue_seconds_count{namespace="n", pod="busy", model="two"}': "0+300x10",
        'turnpike_model_queue_seconds_sum{namespace="n", pod="idle", model="one"}': "5x10",
        'turnpike_model_queue_seconds_count{namespace="n", pod="idle", model="one"}': "99x10",
        'turnpike_model_queue_seconds_sum{namespace="other", pod="busy", model="one"}': "0+900x10",
        'turnpike_model_queue_seconds_count{namespace="other", pod="busy", model="one"}': "0+900x10",
    }
    query = adapted('namespace="n",pod=~"busy|idle"', "pod")
    case = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f"round({query}, 0.001)",
                "eval_time": "2m",
                "exp_samples": [
                    {"labels": '{pod="busy"}', "value": 20},
                    {"labels": '{pod="idle"}', "value": 0},
                ],
            }
        ],
    }
    file = tmp_path / "adapter_test.yml"
    file.write_text(json.dumps({"tests": [case]}))
    result = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def built(tmp_path: Path, components: tuple[str, ...]) -> list[dict[str, Any]]:
    """All that `kubectl apply -k` would send, with these components."""
    shutil.copytree(DEPLOY, tmp_path / "kubernetes")
    file = tmp_path / "kubernetes/kustomization.yaml"
    kustomization = yaml.safe_load(file.read_text()) | {"components": list(components)}
    file.write_text(json.dumps(kustomization))
    result = subprocess.run(
        ["kubectl", "kustomize", tmp_path / "kubernetes"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return list(yaml.safe_load_all(result.stdout))


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_components_come_in_where_they_are_named(tmp_path: Path) -> None:
    """A volume of models and a file of keys for the service, and one of them for Prometheus."""
    everything = {one["kind"]: one for one in built(tmp_path, COMPONENTS)}
    pod = everything["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    hardened(container)
    variables = settings(container)
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(mounts) == set(volumes) == {"tmp", "models", "keys"}
    assert variables["TURNPIKE_MODELS"] == mounts["models"]
    (item,) = volumes["keys"]["secret"]["items"]
    assert variables["TURNPIKE_API_KEYS_FILE"] == f"{mounts['keys']}/{item['path']}"
    claim = everything["PersistentVolumeClaim"]["metadata"]["name"]
    assert volumes["models"]["persistentVolumeClaim"] == {"claimName": claim, "readOnly": True}
    (endpoint,) = everything["PodMonitor"]["spec"]["podMetricsEndpoints"]
    credentials = endpoint["authorization"]["credentials"]
    assert credentials == {"name": volumes["keys"]["secret"]["secretName"], "key": "metrics_key"}


def test_kserve_runs_the_same_service() -> None:
    """Its runtime is hardened alike, reads where KServe puts models, and drains in KServe's 30 seconds."""
    runtime = read("runtime.yaml", KSERVE)
    (container,) = runtime["spec"]["containers"]
    hardened(container)
    # the name that KServe looks for
    assert container["name"] == "kserve-container"
    assert container["securityContext"]["runAsNonRoot"] is True
    assert [*container["command"], *container["args"]] == ["turnpike", "serve", "--models=/mnt/models"]
    assert sum(drains(container)) < 30
    model = read("digits.yaml", KSERVE)["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    (form,) = runtime["spec"]["supportedModelFormats"]
    assert model["modelFormat"] == {"name": form["name"], "version": form["version"]}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.parametrize("components", [(), COMPONENTS])
def test_the_schemas_of_kubernetes(tmp_path: Path, components: tuple[str, ...]) -> None:
    """All that is sent is valid, to the last field's name; PodMonitor is no kind of Kubernetes' own."""
    manifests = [one for one in built(tmp_path, components) if one["kind"] != "PodMonitor"]
    bad = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": {"container": []}}
    said = run_client(
        "kubernetes_schemas.py",
        installed_programs(*SCHEMAS),
        "1.37",
        stdin=yaml.safe_dump_all([*manifests, bad]),
    )
    assert said.pop("Pod bad")
    assert {kind.split()[0] for kind in said} >= {
        "Deployment",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
    }
    assert set(said.values()) == {None}, said


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_classes_of_kserve() -> None:
    """Both manifests are what KServe's own classes take; a name that they do not know is found."""
    runtime, digits = read("runtime.yaml", KSERVE), read("digits.yaml", KSERVE)
    environment = installed_programs(*KSERVE_CLIENT)
    said = run_client("kserve_schemas.py", environment, stdin=yaml.safe_dump_all([runtime, digits]))
    assert said == {"ServingRuntime": [], "InferenceService": []}
    runtime["spec"]["containers"][0]["securityContext"]["readOnlyRoot"] = True
    del digits["spec"]["predictor"]["model"]["modelFormat"]
    digits["spec"]["predictor"]["model"]["storageURI"] = "s3://models"
    said = run_client("kserve_schemas.py", environment, stdin=yaml.safe_dump_all([runtime, digits]))
    assert len(said["ServingRuntime"]) == 1
    assert said["ServingRuntime"][0].startswith("ServingRuntime.spec.containers.0: ")
    unknown, missing = said["InferenceService"]
    assert unknown == "InferenceService.spec.predictor.model.storageURI"
    assert "model_format" in missing
