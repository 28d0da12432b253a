"""The profile "restricted" of Kubernetes' Pod Security Standards, for pods of Linux."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral"),
    *("persistentVolumeClaim", "projected", "secret"),
}
SECCOMP = {"RuntimeDefault", "Localhost"}


def pod_specs(value: Any) -> Iterator[dict[str, Any]]:
    """Every specification of a pod in a manifest, however deep: what has containers with images."""
    if isinstance(value, dict):
        containers = value.get("containers")
        if isinstance(containers, list) and all("image" in container for container in containers):
            yield value
        for entry in value.values():
            yield from pod_specs(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from pod_specs(entry)


def violations(pod: dict[str, Any]) -> list[str]:
    """What the profile does not allow, in words."""
    problems = [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
    for volume in pod.get("volumes", ()):
        problems += [f"volume {kind}" for kind in volume.keys() - {"name"} - VOLUMES]
    of_pod = pod.get("securityContext", {})
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        # a container's own fields come before those of its pod
        security = of_pod | container.get("securityContext", {})
        capabilities = security.get("capabilities", {})
        checks = {
            "runAsNonRoot": security.get("runAsNonRoot") is True,
            "runAsUser": security.get("runAsUser") != 0,
            "seccompProfile": security.get("seccompProfile", {}).get("type") in SECCOMP,
            "allowPrivilegeEscalation": security.get("allowPrivilegeEscalation") is False,
            "capabilities.drop": "ALL" in capabilities.get("drop", ()),
            "capabilities.add": set(capabilities.get("add", ())) <= {"NET_BIND_SERVICE"},
            "privileged": not security.get("privileged"),
            "procMount": security.get("procMount", "Default") == "Default",
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", ())),
        }
        problems += [f"{container['name']}: {name}" for name, is_allowed in checks.items() if not is_allowed]
    return problems
