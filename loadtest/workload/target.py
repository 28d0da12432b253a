"""The target of a load test: a model on an Open Inference Protocol server, and what its metadata says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from turnpike.loadtest.errors import TargetError, UsageError
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.workload.http_client import HttpClient, Reply
from turnpike.loadtest.workload.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class Target:
    """A model of a server. Inputs and outputs are empty if the server does not describe them."""

    url: str
    server: str
    server_version: str
    model: str
    version: str  # the newest; empty if the server does not list versions
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    pinned: bool = False  # whether requests name the version
    binary: bool = False  # whether the server supports binary tensors
    v1: bool = False  # whether the server has /v1/models/...
    gates: bool = False  # whether the model has gates that can be read
    lesion_layers: tuple[int, ...] = ()  # layers whose gates can be closed

    @property
    def fp16_tensor(self) -> str | None:
        """Name of a tensor that only binary requests can hold; None if there is none."""
        return next((spec.name for spec in (*self.inputs, *self.outputs) if spec.datatype == "FP16"), None)

    @property
    def path(self) -> str:
        """The model's path after `/v1` or `/v2`."""
        model = f"/models/{quote(self.model, safe='')}"
        return f"{model}/versions/{quote(self.version, safe='')}" if self.pinned else model


def find_target(plan: LoadPlan, client: HttpClient) -> Target:
    """Ask the server for the model that the plan names, or for its only model."""
    server = _expect_object(client.get("/v2"), client.url, "a server of the Open Inference Protocol at /v2")
    # the model
    model = _only_model(client) if plan.model is None else plan.model
    path = f"/models/{quote(model, safe='')}"
    pinned = plan.version is not None
    versioned = f"{path}/versions/{quote(plan.version or '', safe='')}" if pinned else path
    expected = f"a model {model!r}" + (f" of version {plan.version}" if pinned else "")
    metadata = _expect_object(client.get(f"/v2{versioned}"), client.url, expected)
    # its gates, which only turnpike has
    profile = client.get(f"/v2{versioned}/gates/profile")
    gates = profile.document().get("gates") if profile.status == 200 else None
    return Target(
        url=client.url,
        server=str(server.get("name") or "unknown"),
        server_version=str(server.get("version") or ""),
        model=model,
        version=plan.version or _newest(metadata.get("versions")),
        inputs=_tensor_specs(metadata, "inputs", model),
        outputs=_tensor_specs(metadata, "outputs", model),
        pinned=pinned,
        binary="binary_tensor_data" in (server.get("extensions") or ()),
        v1=client.get(f"/v1{path}").status == 200,
        gates=bool(gates),
        lesion_layers=_lesion_layers(gates or [], f"{client.url}/v2{versioned}/gates/profile"),
    )


def _expect_object(reply: Reply, url: str, expected: str) -> dict[str, Any]:
    """The JSON object of a reply."""
    if reply.status == 401 or reply.status == 403:
        raise TargetError(f"{url}: expected access, got {reply.reason}; pass a key with --api-key-file")
    document = reply.document()
    if reply.status != 200 or not document:
        raise TargetError(f"{url}: expected {expected}, got {reply.reason}")
    return document


def _only_model(client: HttpClient) -> str:
    """The name of the server's only model."""
    reply = client.get("/v2/models")
    models = reply.document().get("models") if reply.status == 200 else None
    if not isinstance(models, list):
        # some servers have an index of ready models instead of a list
        models = _ready_models(client)
    names = sorted({str(entry.get("name") if isinstance(entry, dict) else entry) for entry in models})
    if not names:
        raise TargetError(f"{client.url}: expected at least one model, got none")
    if len(names) > 1:
        raise UsageError(f"--model: expected one of {', '.join(names)}, got none")
    return names[0]


def _ready_models(client: HttpClient) -> list[Any]:
    reply = client.post("/v2/repository/index", b'{"ready": true}', {"Content-Type": "application/json"})
    index = reply.json() if reply.status == 200 else None
    if not isinstance(index, list):
        raise UsageError(f"--model: expected a name, because {client.url} does not list its models; got none")
    return [entry for entry in index if isinstance(entry, dict) and entry.get("state") in (None, "", "READY")]


def _newest(versions: Any) -> str:
    """The highest version that is a number, else the last version; empty if there is none."""
    names = [str(version) for version in versions] if isinstance(versions, list) else []
    numbers = [name for name in names if name.isdecimal()]
    return max(numbers, key=int) if numbers else (names[-1] if names else "")


def _tensor_specs(metadata: dict[str, Any], key: str, model: str) -> tuple[TensorSpec, ...]:
    """The inputs or outputs in a model's metadata; empty if it lists none."""
    specs = []
    for index, entry in enumerate(metadata.get(key) or ()):
        try:
            shape = tuple(int(size) for size in entry["shape"])
            specs.append(TensorSpec(str(entry["name"]), str(entry["datatype"]), shape))
        except (KeyError, TypeError, ValueError) as error:
            raise TargetError(
                f"metadata of {model!r}: {key}[{index}]: expected name, datatype and shape, "
                f"got {str(entry)[:200]}"
            ) from error
    return tuple(specs)


def _lesion_layers(gates: Iterable[Any], url: str) -> tuple[int, ...]:
    """The layers in which every gate has levers."""
    has_levers: dict[int, bool] = {}
    try:
        for gate in gates:
            has_levers[gate["layer"]] = has_levers.get(gate["layer"], True) and bool(gate["levers"])
        return tuple(sorted(int(layer) for layer, movable in has_levers.items() if movable))
    except (KeyError, TypeError, ValueError) as error:
        raise TargetError(
            f"{url}: expected gates, each with its layer and levers, got something else"
        ) from error
