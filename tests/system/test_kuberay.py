"""The manifest of KubeRay matches the service and the schemas of KubeRay, Kubernetes and Ray Serve."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import requests
import yaml

from tests.support.compose_project import docker, need_engine
from tests.support.ray_cluster import ray_programs
from tests.support.virtualenvs import ROOT, installed_programs, run_client
from tests.support.waiting import wait_until
from turnpike.service.config.resolve import resolve

MANIFEST = ROOT / "deploy/kuberay/service.yaml"
# the fields of KubeRay's API ray.io/v1, without those of Kubernetes inside
SERVICE_FIELDS = {"serveConfigV2", "rayClusterConfig", "serveService"}
CLUSTER_FIELDS = {
    "headGroupSpec",
    "workerGroupSpecs",
    "rayVersion",
    "enableInTreeAutoscaling",
    "autoscalerOptions",
}
HEAD_FIELDS = {"serviceType", "headService", "enableIngress", "rayStartParams", "template"}
WORKER_FIELDS = {
    *("groupName", "replicas", "minReplicas", "maxReplicas", "numOfHosts"),
    *("rayStartParams", "template", "scaleStrategy"),
}


@pytest.fixture
def spec() -> Any:
    return yaml.safe_load(MANIFEST.read_text())["spec"]


def groups(spec: Any) -> list[Any]:
    """The head, and each group of workers."""
    cluster = spec["rayClusterConfig"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def test_all_fields_are_those_of_kuberay(spec: Any) -> None:
    cluster = spec["rayClusterConfig"]
    assert spec.keys() <= SERVICE_FIELDS
    assert cluster.keys() <= CLUSTER_FIELDS
    assert cluster["headGroupSpec"].keys() <= HEAD_FIELDS
    for group in cluster["workerGroupSpecs"]:
        assert group.keys() <= WORKER_FIELDS
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    # Go reads these as strings
    assert all(isinstance(value, str) for group in groups(spec) for value in group["rayStartParams"].values())


@pytest.mark.usefixtures("without_variables")
def test_the_application_is_ours(spec: Any) -> None:
    """Its module exists, its settings are valid, and the models are where it looks for them."""
    (application,) = yaml.safe_load(spec["serveConfigV2"])["applications"]
    module, _, function = application["import_path"].partition(":")
    found = find_spec(module)
    assert found is not None
    assert found.origin is not None
    assert f"def {function}(" in (ROOT / found.origin).read_text()
    arguments = {**application["args"], "models": str(ROOT / "service/default"), "engine": "ray"}
    assert resolve(arguments).settings.max_replicas == application["args"]["max_replicas"]
    for group in groups(spec):
        (container,) = group["template"]["spec"]["containers"]
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert application["args"]["models"] in mounted


def test_containers_are_hardened(spec: Any) -> None:
    """In addition to the profile that test_pod_security.py checks."""
    for group in groups(spec):
        (container,) = group["template"]["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert set(container["resources"]["limits"]) == {"cpu", "memory"}


def probes(spec: Any) -> list[Any]:
    """The path and port of each probe, by name: those of the head, and those of the workers."""
    found = []
    for group in groups(spec):
        (container,) = group["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        asked = {name: container[name]["httpGet"] for name in container if name.endswith("Probe")}
        found.append(
            {name: (get["path"], ports.get(get["port"], get["port"])) for name, get in asked.items()}
        )
    return found


def test_no_probe_needs_a_program_of_the_image(spec: Any) -> None:
    """KubeRay adds probes that run wget, which the image does not have, unless the manifest has its own."""
    node = ("/api/healthz", 52365)
    head = {"startupProbe": node, "readinessProbe": node, "livenessProbe": node}
    assert probes(spec) == [head, head | {"readinessProbe": ("/-/healthz", 8000)}]


def test_only_the_cluster_and_its_operator_reach_the_dashboard(spec: Any) -> None:
    """Whoever reaches it can run code. Everybody reaches the port of the service."""
    policy = yaml.safe_load((MANIFEST.parent / "network.yaml").read_text())["spec"]
    labels = policy["podSelector"]["matchLabels"]
    for group in groups(spec):
        assert group["template"]["metadata"]["labels"] == labels
    assert policy["policyTypes"] == ["Ingress"]
    inside, outside = policy["ingress"]
    assert inside == {
        "from": [
            {"podSelector": {"matchLabels": labels}},
            {
                "namespaceSelector": {},
                "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}},
            },
        ]
    }
    assert outside == {"ports": [{"port": yaml.safe_load(spec["serveConfigV2"])["http_options"]["port"]}]}


def test_libraries_send_no_reports(spec: Any) -> None:
    """Neither onnxruntime nor Ray, on the head and on all workers."""
    for group in groups(spec):
        (container,) = group["template"]["spec"]["containers"]
        variables = {variable["name"]: variable["value"] for variable in container["env"]}
        assert variables == {"ORT_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_manifest_matches_the_schemas(spec: Any) -> None:
    """Pods are checked by Kubernetes' schema, the config file by Ray's; both find a wrong name."""
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": str(number)},
            "spec": group["template"]["spec"],
        }
        for number, group in enumerate(groups(spec))
    ]
    wrong = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wrong"}, "spec": {"container": []}}
    environment = installed_programs("kubernetes", "kubernetes-validate==1.37.0")
    problems = run_client(
        "kubernetes_schemas.py", environment, "1.37", stdin=yaml.safe_dump_all([*pods, wrong])
    )
    assert problems.pop("Pod wrong")
    assert problems == {f"Pod {number}": None for number in range(len(pods))}
    config = spec["serveConfigV2"]
    assert run_client("ray_schemas.py", ray_programs(), stdin=config) is None
    wrong_config = config.replace("import_path", "importpath")
    assert "import_path" in run_client("ray_schemas.py", ray_programs(), stdin=wrong_config)


@pytest.fixture
def node(spec: Any) -> Iterator[str]:
    """The address of a node in a container as the manifest describes it, started by KubeRay's command."""
    need_engine()
    image = "turnpike-ray-test"
    docker("build", "--quiet", "--target", "ray", "--tag", image, str(ROOT))
    (container,) = spec["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"]
    variables = [f"--env={variable['name']}={variable['value']}" for variable in container["env"]]
    mounts = ("--tmpfs=/tmp:exec", "--shm-size=256m", f"--volume={ROOT / 'service/default'}:/models:ro")
    profile = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--user=10001:10001")
    resources = "--num-cpus=2 --memory=2000000000 --object-store-memory=100000000"
    start = f"ulimit -n 65536; ray start --head --block --dashboard-host=0.0.0.0 --port=6379 {resources}"
    command = ("/bin/bash", "-c", "--", f"{start} --dashboard-agent-listen-port=52365")
    number = docker("run", "--detach", *variables, *mounts, *profile, image, *command)
    try:
        yield docker(
            "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", number
        )
    finally:
        docker("rm", "--force", "--volumes", number)


@pytest.mark.thorough
@pytest.mark.containers
@pytest.mark.timeout(900)
def test_a_node_answers_every_probe(spec: Any, node: str) -> None:
    """It starts without rights and on a read-only root. Its proxy answers once the application runs."""
    head, worker = probes(spec)

    def answers(probe: tuple[str, int]) -> bool:
        path, port = probe
        return requests.get(f"http://{node}:{port}{path}", timeout=5).status_code == 200

    def wait_for_answer(probe: tuple[str, int]) -> None:
        wait_until(lambda: answers(probe), 240, requests.RequestException)

    for probe in head.values():
        wait_for_answer(probe)
    with pytest.raises(requests.ConnectionError):
        answers(worker["readinessProbe"])
    # as KubeRay deploys it
    dashboard = f"http://{node}:8265/api/serve/applications/"
    requests.put(dashboard, json=yaml.safe_load(spec["serveConfigV2"]), timeout=60).raise_for_status()
    for probe in worker.values():
        wait_for_answer(probe)
    wait_for_answer(("/v2/health/ready", 8000))
