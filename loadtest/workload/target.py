"""What is to be loaded: a server of the Open Inference Protocol, and what it says of one of its models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from loadtest.errors import TargetError, UsageError
from loadtest.plan import Plan
from loadtest.workload.http_client import Fetch, Reply
from loadtest.workload.tensors import Tensor


@dataclass(frozen=True, slots=True)
class Target:
    """One model of one server, which need not tell of inputs and outputs; `lesions` are layers to close."""

    url: str
    server: str
    server_version: str
    model: str
    version: str  # the newest, empty where the server tells of none
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    pinned: bool = False  # whether requests name the version
    binary: bool = False
    v1: bool = False
    gates: bool = False
    lesions: tuple[int, ...] = ()

    @property
    def lesion(self) -> bool:
        return bool(self.lesions)

    @property
    def half(self) -> str | None:
        """The name of a tensor that only the binary form can tell."""
        return next((each.name for each in (*self.inputs, *self.outputs) if each.datatype == "FP16"), None)

    @property
    def path(self) -> str:
        """The model's address after `/v1` or `/v2`."""
        model = f"/models/{quote(self.model, safe='')}"
        return f"{model}/versions/{quote(self.version, safe='')}" if self.pinned else model


def find(plan: Plan, fetch: Fetch) -> Target:
    """The model that the plan is about."""
    server = _told(fetch.get("/v2"), fetch.url, "a server of the Open Inference Protocol at /v2")
    model = _only_model(fetch) if plan.model is None else plan.model
    address = f"/models/{quote(model, safe='')}"
    pinned = plan.version is not None
    versioned = f"{address}/versions/{quote(plan.version or '', safe='')}" if pinned else address
    wanted = f"a model {model!r}" + (f" of version {plan.version}" if pinned else "")
    about = _told(fetch.get(f"/v2{versioned}"), fetch.url, wanted)
    profile = fetch.get(f"/v2{versioned}/gates/profile")
    gates = profile.document().get("gates") if profile.status == 200 else None
    return Target(
        url=fetch.url,
        server=str(server.get("name") or "unknown"),
        server_version=str(server.get("version") or ""),
        model=model,
        version=plan.version or _newest(about.get("versions")),
        inputs=_tensors(about, "inputs", model),
        outputs=_tensors(about, "outputs", model),
        pinned=pinned,
        binary="binary_tensor_data" in (server.get("extensions") or ()),
        v1=fetch.get(f"/v1{address}").status == 200,
        gates=bool(gates),
        lesions=_closable(gates or [], f"{fetch.url}/v2{versioned}/gates/profile"),
    )


def _told(reply: Reply, url: str, wanted: str) -> dict[str, Any]:
    """The object of an answer that must be one."""
    if reply.status == 401 or reply.status == 403:
        raise TargetError(f"{url}: expected to be let in, got {reply.reason}; --api-key-file holds a key")
    document = reply.document()
    if reply.status != 200 or not document:
        raise TargetError(f"{url}: expected {wanted}, got {reply.reason}")
    return document


def _only_model(fetch: Fetch) -> str:
    """The one model that a server has; some list names, others an index of what is ready."""
    reply = fetch.get("/v2/models")
    listed = reply.document().get("models") if reply.status == 200 else None
    if not isinstance(listed, list):
        listed = _index(fetch)
    names = sorted({str(entry.get("name") if isinstance(entry, dict) else entry) for entry in listed})
    if not names:
        raise TargetError(f"{fetch.url}: expected a model that is served, got none")
    if len(names) > 1:
        raise UsageError(f"--model: expected one of {', '.join(names)}, got none")
    return names[0]


def _index(fetch: Fetch) -> list[Any]:
    reply = fetch.post("/v2/repository/index", b'{"ready": true}', {"Content-Type": "application/json"})
    index = reply.json() if reply.status == 200 else None
    if not isinstance(index, list):
        raise UsageError(f"--model: expected a name, since {fetch.url} does not list its models; got none")
    return [entry for entry in index if isinstance(entry, dict) and entry.get("state") in (None, "", "READY")]


def _newest(versions: Any) -> str:
    """The highest of versions that are numbers, else the last that is told."""
    told = [str(version) for version in versions] if isinstance(versions, list) else []
    digits = [version for version in told if version.isdecimal()]
    return max(digits, key=int) if digits else (told[-1] if told else "")


def _tensors(about: dict[str, Any], key: str, model: str) -> tuple[Tensor, ...]:
    """The inputs or outputs of a model's metadata; none where the server leaves them out."""
    found = []
    for index, entry in enumerate(about.get(key) or ()):
        try:
            shape = tuple(int(size) for size in entry["shape"])
            found.append(Tensor(str(entry["name"]), str(entry["datatype"]), shape))
        except (KeyError, TypeError, ValueError) as error:
            raise TargetError(
                f"metadata of {model!r}: {key}[{index}]: expected name, datatype and shape, "
                f"got {str(entry)[:200]}"
            ) from error
    return tuple(found)


def _closable(gates: Iterable[Any], where: str) -> tuple[int, ...]:
    """The layers of which every gate can be moved."""
    movable: dict[int, bool] = {}
    try:
        for gate in gates:
            movable[gate["layer"]] = movable.get(gate["layer"], True) and bool(gate["levers"])
        return tuple(sorted(int(layer) for layer, able in movable.items() if able))
    except (KeyError, TypeError, ValueError) as error:
        raise TargetError(f"{where}: expected gates, each with its layer and levers, got others") from error
