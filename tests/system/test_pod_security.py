"""Every pod in deploy/ is allowed in a namespace with the Pod Security profile "restricted"."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.pod_security import pod_specs, violations
from tests.support.virtualenvs import ROOT

MANIFESTS = {
    "deploy/kubernetes/deployment.yaml": 1,
    "deploy/kserve/runtime.yaml": 1,
    # the head and the workers
    "deploy/kuberay/service.yaml": 2,
}


def read_pods(name: str) -> list[dict[str, Any]]:
    documents = yaml.safe_load_all((ROOT / name).read_text(encoding="utf-8"))
    return [pod for document in documents for pod in pod_specs(document)]


def test_these_are_all_manifests_with_pods() -> None:
    found = {
        str(path.relative_to(ROOT)): len(pods)
        for path in sorted(Path(ROOT / "deploy").rglob("*.yaml"))
        if "templates" not in path.parts and (pods := read_pods(str(path.relative_to(ROOT))))
    }
    assert found == MANIFESTS


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_profile_allows_every_pod(name: str) -> None:
    assert [violations(pod) for pod in read_pods(name)] == [[]] * MANIFESTS[name]


def test_the_profile_allows_the_container_that_kuberay_adds() -> None:
    """It has the security context of `autoscalerOptions`, in the pod of the head."""
    cluster = yaml.safe_load((ROOT / "deploy/kuberay/service.yaml").read_text())["spec"]["rayClusterConfig"]
    assert cluster["enableInTreeAutoscaling"] is True
    autoscaler = {"name": "autoscaler", **cluster["autoscalerOptions"]}
    pod = cluster["headGroupSpec"]["template"]["spec"] | {"containers": [autoscaler]}
    assert violations(pod) == []


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("hostNetwork",), True, "hostNetwork"),
        (("volumes", 0), {"name": "tmp", "hostPath": {"path": "/"}}, "volume hostPath"),
        (("securityContext", "runAsNonRoot"), None, "service: runAsNonRoot"),
        (("securityContext", "runAsUser"), 0, "service: runAsUser"),
        (("securityContext", "seccompProfile"), {}, "service: seccompProfile"),
        (
            ("containers", 0, "securityContext", "allowPrivilegeEscalation"),
            None,
            "service: allowPrivilegeEscalation",
        ),
        (("containers", 0, "securityContext", "capabilities"), {}, "service: capabilities.drop"),
        (
            ("containers", 0, "securityContext", "capabilities"),
            {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
            "service: capabilities.add",
        ),
        (("containers", 0, "securityContext", "privileged"), True, "service: privileged"),
        (("containers", 0, "securityContext", "procMount"), "Unmasked", "service: procMount"),
        (("containers", 0, "ports", 0, "hostPort"), 80, "service: hostPort"),
    ],
)
def test_each_rule_finds_a_pod_that_breaks_it(path: tuple[Any, ...], value: object, problem: str) -> None:
    (pod,) = deepcopy(read_pods("deploy/kubernetes/deployment.yaml"))
    *parents, last = path
    part: Any = pod
    for key in parents:
        part = part[key]
    part[last] = value
    assert violations(pod) == [problem]
