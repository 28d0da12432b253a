"""Kubernetes and KServe manifests match each other, the service, and the official schemas."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.clients import client_programs
from tests.support.pod_security import pod_specs
from tests.support.prometheus_rule import prometheus_rule
from tests.support.promql import missing_series
from tests.support.virtualenvs import ROOT, installed_programs, run_client
from turnpike.common.distribution import VERSION
from turnpike.service.config.settings import Settings
from turnpike.service.repository.scan import scan

DEPLOY = ROOT / "deploy/kubernetes"
KSERVE = ROOT / "deploy/kserve"
SCHEMAS = ("kubernetes", "kubernetes-validate==1.37.0")
COMPONENTS = ("models", "prometheus", "keys", "gateway")
# kinds of the Prometheus operator and of the Gateway API
FOREIGN_KINDS = ("PodMonitor", "PrometheusRule", "Gateway", "HTTPRoute", "GRPCRoute")


def read(name: str, folder: Path = DEPLOY) -> Any:
    return yaml.safe_load((folder / name).read_text(encoding="utf-8"))


def expect_hardened(container: dict[str, Any]) -> None:
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]


def settings(container: dict[str, Any]) -> dict[str, str]:
    """The container's variables; each must be a setting of the service, or onnxruntime's switch."""
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    known = {f"TURNPIKE_{name.upper()}" for name in Settings.model_fields}
    assert set(variables) <= known | {"ORT_DISABLE_TELEMETRY"}
    return variables


def drain_seconds(container: dict[str, Any]) -> tuple[float, float]:
    """Seconds before and after the port closes."""
    variables = settings(container)
    return float(variables["TURNPIKE_DRAIN_WAIT"]), float(variables["TURNPIKE_DRAIN_SECONDS"])


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    """The pod of the Deployment."""
    return read("deployment.yaml")["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["containers"]
    return container


def test_the_pod_is_hardened(pod: dict[str, Any], container: dict[str, Any]) -> None:
    """No root user, token or capability; only /tmp can be written to; no variables about other Services."""
    expect_hardened(container)
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False


def test_the_pod_has_time_to_drain(pod: dict[str, Any], container: dict[str, Any]) -> None:
    """The pod has more time than both drains, and is seen as not ready before its port closes."""
    wait, seconds = drain_seconds(container)
    assert pod["terminationGracePeriodSeconds"] > wait + seconds
    probe = container["readinessProbe"]
    assert probe["httpGet"]["path"] == "/v2/health/ready"
    assert probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"] < wait
    assert container["livenessProbe"]["httpGet"]["path"] == "/v2/health/live"
    assert read("deployment.yaml")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_onnxruntime_sends_no_reports(container: dict[str, Any]) -> None:
    """So the service opens no connections, as network.yaml says; KServe's runtime has no such policy."""
    (of_kserve,) = read("runtime.yaml", KSERVE)["spec"]["containers"]
    assert settings(container)["ORT_DISABLE_TELEMETRY"] == "1"
    assert settings(of_kserve)["ORT_DISABLE_TELEMETRY"] == "1"
    policy = read("network.yaml")["spec"]
    assert "Egress" in policy["policyTypes"]
    assert "egress" not in policy


def test_images_have_the_version_as_their_tag() -> None:
    """In the one file that says where they are, and in the commands that build and push them."""
    images = read("kustomization.yaml", ROOT / "deploy/images")["images"]
    names = {image["name"]: f"{image['newName']}:{image['newTag']}" for image in images}
    expected = {
        name: f"registry.example.org/{name}:{VERSION}" for name in ("turnpike-service", "turnpike-ray")
    }
    assert names == expected
    for page in ("deploy", "ray"):
        document = (ROOT / f"docs/how-to/{page}.md").read_text(encoding="utf-8")
        found = set(re.findall(r"registry\.example\.org/\S+:\S+", document))
        assert found
        assert found <= set(names.values())


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.parametrize("folder", ["kubernetes", "kserve", "kuberay"])
def test_every_image_comes_from_that_file(tmp_path: Path, folder: str) -> None:
    """Also in the resources of KServe and KubeRay, whatever registry and version it has."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    file = tmp_path / "deploy/images/kustomization.yaml"
    file.write_text(
        file.read_text().replace("registry.example.org", "r.test/own").replace(f'"{VERSION}"', "t1")
    )
    built = kustomize(tmp_path / "deploy" / folder)
    images = re.findall(r"image: (\S+)", json.dumps(built).replace('"', ""))
    assert {image.rstrip(",") for image in images} <= {
        "r.test/own/turnpike-service:t1",
        "r.test/own/turnpike-ray:t1",
    }
    assert images


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.parametrize("folder", ["kubernetes", "kserve"])
def test_every_container_of_the_service_has_all_probes(folder: str) -> None:
    """test_kuberay.py checks those of Ray."""
    (pod,) = (pod for manifest in kustomize(ROOT / "deploy" / folder) for pod in pod_specs(manifest))
    (container,) = pod["containers"]
    probes = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert probes == {
        "startupProbe": "/v2/health/live",
        "readinessProbe": "/v2/health/ready",
        "livenessProbe": "/v2/health/live",
    }


def test_all_selectors_select_the_same_pods(container: dict[str, Any]) -> None:
    """Every selector selects the pods of the Deployment, and names their ports."""
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
    endpoints = read("prometheus/podmonitor.yaml")["spec"]["podMetricsEndpoints"]
    assert {endpoint["port"] for endpoint in endpoints} == {"http"}


def test_the_job_label_is_that_of_alerts_and_dashboard() -> None:
    """Prometheus gives them the job that alerts and dashboard select."""
    label = read("prometheus/podmonitor.yaml")["spec"]["jobLabel"]
    assert read("deployment.yaml")["spec"]["template"]["metadata"]["labels"][label] == "turnpike"


def test_every_manifest_is_used() -> None:
    """The kustomization of its folder names it. The values of the adapter's chart are an exception."""
    ray = ROOT / "deploy/kuberay"
    for folder in (DEPLOY, *(DEPLOY / name for name in COMPONENTS), ray):
        kustomization = read("kustomization.yaml", folder)
        # others are folders
        named = {name for name in kustomization.get("resources", []) if name.endswith(".yaml")}
        named |= {patch["path"] for patch in kustomization.get("patches", []) if "path" in patch}
        files = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml", "adapter.yaml"}
        assert named == files, folder


def test_the_alerts_are_those_of_compose() -> None:
    """After a change of the source: `python -m tests.support.prometheus_rule`."""
    assert read("prometheus/rule.yaml") == prometheus_rule()
    names = {rule["alert"] for group in prometheus_rule()["spec"]["groups"] for rule in group["rules"]}
    assert {"TurnpikeErrors", "TurnpikeReplicaLost"} <= names
    # what only docker-compose.yml provides
    assert "turnpike_replicas_expected" not in (DEPLOY / "prometheus/rule.yaml").read_text()


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_the_alert_of_a_lost_replica_fires(tmp_path: Path) -> None:
    """Fewer replicas are available than the Deployment asks for; a rolling update takes less time."""
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(prometheus_rule()["spec"]))
    series = 'kube_deployment_{}{{deployment="turnpike", namespace="n"}}'
    (rule,) = (
        rule
        for group in prometheus_rule()["spec"]["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "TurnpikeReplicaLost"
    )
    annotations = rule["annotations"] | {"summary": "Replicas that answer: 1, and more are expected"}
    labels = {"severity": "critical", "deployment": "turnpike", "namespace": "n"}
    case = {
        "interval": "1m",
        "input_series": [
            {"series": series.format("spec_replicas"), "values": "2x30"},
            {"series": series.format("status_replicas_available"), "values": "2x5 1x4 2x5 1x15"},
        ],
        "alert_rule_test": [
            {"alertname": "TurnpikeReplicaLost", "eval_time": "14m"},
            {
                "alertname": "TurnpikeReplicaLost",
                "eval_time": "25m",
                "exp_alerts": [{"exp_labels": labels, "exp_annotations": annotations}],
            },
        ],
    }
    file = tmp_path / "rules_test.yml"
    file.write_text(json.dumps({"rule_files": ["rules.yml"], "tests": [case]}))
    result = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_the_dashboard_is_the_one_of_compose(tmp_path: Path) -> None:
    """Grafana's sidecar finds it by its label."""
    maps = [
        manifest for manifest in built_manifests(tmp_path, ("prometheus",)) if manifest["kind"] == "ConfigMap"
    ]
    (dashboard,) = maps
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    file = ROOT / "deploy/grafana/dashboards/turnpike.json"
    assert dashboard["data"] == {file.name: file.read_text(encoding="utf-8")}


def test_the_gateway_has_a_host_and_a_port_for_each_protocol() -> None:
    """Gateways refuse routes of HTTP and gRPC for one host. The Service says which port speaks HTTP/2."""
    gateway = read("gateway/gateway.yaml")["spec"]
    routes = yaml.safe_load_all((DEPLOY / "gateway/routes.yaml").read_text(encoding="utf-8"))
    ports = {port["port"]: port for port in read("service.yaml")["spec"]["ports"]}
    listeners = {listener["name"]: listener for listener in gateway["listeners"]}
    assert len({listener["hostname"] for listener in listeners.values()}) == 2
    for route in routes:
        (parent,), (rule,) = route["spec"]["parentRefs"], route["spec"]["rules"]
        (backend,) = rule["backendRefs"]
        assert parent["name"] == read("gateway/gateway.yaml")["metadata"]["name"]
        assert listeners[parent["sectionName"]]["tls"]["certificateRefs"] == [{"name": "turnpike-tls"}]
        assert backend["name"] == read("service.yaml")["metadata"]["name"]
        is_grpc = route["kind"] == "GRPCRoute"
        assert (ports[backend["port"]].get("appProtocol") == "kubernetes.io/h2c") is is_grpc
        assert ports[backend["port"]]["name"] == parent["sectionName"] == ("grpc" if is_grpc else "http")


def adapter_rule() -> dict[str, Any]:
    (rule,) = read("prometheus/adapter.yaml")["rules"]["custom"]
    return rule


def adapter_query(matchers: str, by: str) -> str:
    """The query that the adapter makes from its rule."""
    query = adapter_rule()["metricsQuery"].replace("<<.LabelMatchers>>", matchers).replace("<<.GroupBy>>", by)
    assert "<<" not in query
    return query


def test_the_autoscaler_uses_the_metric_of_the_adapter() -> None:
    """It has the same name, and uses series that the service exposes."""
    (metric,) = read("autoscaler.yaml")["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == adapter_rule()["name"]["as"]
    assert missing_series(adapter_query("", "instance")) == []


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_the_autoscaler_gets_the_mean_wait_of_each_pod(tmp_path: Path) -> None:
    """It is in milliseconds. It is 0 for a pod without requests."""
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
    query = adapter_query('namespace="n",pod=~"busy|idle"', "pod")
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


def built_manifests(tmp_path: Path, components: tuple[str, ...]) -> list[dict[str, Any]]:
    """Everything that `kubectl apply -k` would send, with these components."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    file = tmp_path / "deploy/kubernetes/kustomization.yaml"
    kustomization = yaml.safe_load(file.read_text())
    kustomization["components"] += components
    file.write_text(json.dumps(kustomization))
    return kustomize(file.parent)


def kustomize(folder: Path) -> list[dict[str, Any]]:
    result = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return list(yaml.safe_load_all(result.stdout))


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_components_are_included_if_they_are_named(tmp_path: Path) -> None:
    """A volume of models and a file of keys for the service, and one of the keys for Prometheus."""
    everything = {manifest["kind"]: manifest for manifest in built_manifests(tmp_path, COMPONENTS)}
    pod = everything["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    expect_hardened(container)
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
    """It is hardened in the same way, reads from KServe's folder, and drains in KServe's 30 seconds."""
    runtime = read("runtime.yaml", KSERVE)
    (container,) = runtime["spec"]["containers"]
    expect_hardened(container)
    # KServe looks for this name
    assert container["name"] == "kserve-container"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    command = ["turnpike", "serve", "--models=/mnt/models", f"--grpc-port={ports['h2c']}"]
    assert [*container["command"], *container["args"]] == command
    # KServe sends HTTP to the first port, and gRPC to the one whose name has h2c in it
    assert list(ports) == ["http1", "h2c"]
    assert ports["http1"] == Settings.model_fields["port"].default
    probes = [container[name] for name in container if name.endswith("Probe")]
    assert [probe["httpGet"]["port"] for probe in probes] == [ports["http1"]] * 3
    assert runtime["spec"]["annotations"]["prometheus.kserve.io/port"] == str(ports["http1"])
    assert set(runtime["spec"]["protocolVersions"]) == {"v1", "v2", "grpc-v2"}
    assert sum(drain_seconds(container)) < 30
    model = read("digits.yaml", KSERVE)["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    (supported,) = runtime["spec"]["supportedModelFormats"]
    assert model["modelFormat"] == {"name": supported["name"], "version": supported["version"]}


def test_kserve_clients_find_the_model_by_the_name_of_its_service(tmp_path: Path) -> None:
    """The file that the manifest names is served under the name of the InferenceService.

    KServe copies what is below the storageUri into the folder of the models.
    """
    text = (KSERVE / "digits.yaml").read_text(encoding="utf-8")
    manifest = yaml.safe_load(text)
    uri = manifest["spec"]["predictor"]["model"]["storageUri"]
    (file,) = re.findall(rf"{re.escape(uri)}/(\S+\.onnx)", text)
    copy = tmp_path / file
    copy.parent.mkdir(parents=True)
    copy.write_bytes(b"")
    assert list(scan(tmp_path).models) == [manifest["metadata"]["name"]]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.parametrize("components", [(), COMPONENTS])
def test_manifests_match_the_schemas_of_kubernetes(tmp_path: Path, components: tuple[str, ...]) -> None:
    """Everything is valid, with no unknown field."""
    manifests = built_manifests(tmp_path, components)
    manifests = [manifest for manifest in manifests if manifest["kind"] not in FOREIGN_KINDS]
    bad = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": {"container": []}}
    problems = run_client(
        "kubernetes_schemas.py",
        installed_programs(*SCHEMAS),
        "1.37",
        stdin=yaml.safe_dump_all([*manifests, bad]),
    )
    assert problems.pop("Pod bad")
    assert {kind.split()[0] for kind in problems} >= {
        "Deployment",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
    }
    assert set(problems.values()) == {None}, problems


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_manifests_match_the_classes_of_kserve() -> None:
    """KServe's own classes accept both manifests; an unknown or missing name is found."""
    runtime, digits = read("runtime.yaml", KSERVE), read("digits.yaml", KSERVE)
    environment = client_programs("kserve")
    problems = run_client("kserve_schemas.py", environment, stdin=yaml.safe_dump_all([runtime, digits]))
    assert problems == {"ServingRuntime": [], "InferenceService": []}
    runtime["spec"]["containers"][0]["securityContext"]["readOnlyRoot"] = True
    del digits["spec"]["predictor"]["model"]["modelFormat"]
    digits["spec"]["predictor"]["model"]["storageURI"] = "s3://models"
    problems = run_client("kserve_schemas.py", environment, stdin=yaml.safe_dump_all([runtime, digits]))
    assert len(problems["ServingRuntime"]) == 1
    assert problems["ServingRuntime"][0].startswith("ServingRuntime.spec.containers.0: ")
    unknown, missing = problems["InferenceService"]
    assert unknown == "InferenceService.spec.predictor.model.storageURI"
    assert "model_format" in missing
