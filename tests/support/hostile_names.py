"""A model and reports in which every name is text that would run a script if it were taken for markup."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from tests.support.manifests import MANIFEST, PARITY, stored_input
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model
from turnpike.export.output.model_bytes import embed_manifest
from turnpike.service.artifact.manifest import (
    LayerLesion,
    LayerProfile,
    LesionCurve,
    Manifest,
    Profile,
    Sample,
)
from turnpike.service.artifact.proof_records import ParityBatch, TensorParity

if TYPE_CHECKING:
    from playwright.sync_api import Page

# defines the list to which a script that runs adds its place
RECORD_RUNS = "window.ran = []"
# scripts that ran, and elements that only a name can have made
FIND_INJECTED = """() => [
  ...window.ran,
  ...[...document.querySelectorAll(
    "img[src='x'], [onerror], [onload], [onmouseover], main script, main iframe, a[href^='javascript:']"
  )].map((node) => node.outerHTML.slice(0, 300)),
]"""


def hostile(place: str) -> str:
    """A long text that runs a script in each way that pages have fallen for, and turns text around."""
    run = f"ran.push('{place}')"
    return (
        f'{place} <img src=x onerror="{run}"><svg onload={run}>"><script>{run}</script>'
        f"' onmouseover={run} x='${{{run}}}{{{{{run}}}}}</script><script>{run}</script></title></style>"
        f'<a href="javascript:{run}">javascript:{run}</a>\u202e{"w" * 120}'
    )


# folders cannot have a slash in their names, and the service refuses characters that change the direction
MODEL = (
    "model <img src=x onerror=ran.push('model')><svg onload=ran.push('model')>\"' ${ran.push(1)} " + "w" * 90
)


def manifest() -> Manifest:
    """A manifest of `hostile_model`, with every field that holds text."""
    gates = highway().gates
    renamed = tuple(
        gate.model_copy(
            update={
                "name": hostile(gate.name),
                "output": hostile(str(gate.output)),
                "levers": tuple(
                    lever.model_copy(update={"tensor": hostile(lever.tensor)}) for lever in gate.levers
                ),
            }
        )
        for gate in gates
    )
    tensor = TensorParity(name=hostile("tensor"), rms=1e-7, rms_torch=1e-7, max=1e-6, max_torch=1e-6)
    batch = ParityBatch(name=hostile("batch"), rows=3, digest="0" * 64)
    layers = tuple(
        LayerProfile(
            gate=gate.name,
            mean=0.5,
            sd=0.1,
            quantiles=(0.1, 0.5, 0.9),
            closed=0.1,
            open=0.1,
            histogram=(0.1,) * 10,
            units=(0.5,) * 6,
            units_sd=(0.1,) * 6,
        )
        for gate in renamed
    )
    lesions = tuple(
        LayerLesion(layer=layer, accuracy=0.5, loss=1.0, flipped=0.1) for layer in range(len(gates))
    )
    return MANIFEST.model_copy(
        update={
            "name": hostile("name"),
            "version": 1,
            "source": hostile("source"),
            "outputs": (hostile("logits"),),
            "labels": tuple(hostile(f"label {number}") for number in range(3)),
            "gates": renamed,
            "parity": PARITY.model_copy(
                update={
                    "reference": hostile("reference"),
                    "providers": (hostile("provider"),),
                    "tensors": (tensor,),
                    "batches": (batch,),
                }
            ),
            "profile": Profile(
                rows=100,
                digest="0" * 64,
                epsilon=0.05,
                levels=(0.1, 0.5, 0.9),
                layers=layers,
                contrast=((0.1, -0.1, 0.0),) * len(gates),
            ),
            "lesion": LesionCurve(rows=100, accuracy=0.9, loss=0.3, layers=lesions),
            "samples": tuple(
                Sample(
                    label=hostile(f"sample {number}"),
                    inputs=(stored_input(hostile("x"), [number, 1, 2, 3]),),
                )
                for number in range(2)
            ),
            "tools": {hostile("tool"): hostile("version")},
        }
    )


def hostile_model() -> bytes:
    """The tiny highway network with other names of its inputs, outputs, gates, levers and dimensions."""
    model = onnx.load_from_string(highway().model)
    graph = model.graph
    values = [*graph.input, *graph.output]
    shown = {value.name for value in values} | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [hostile(name) if name in shown else name for name in names]
    for named in (*values, *graph.initializer):
        named.name = hostile(named.name)
    for value in values:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = hostile(dim.dim_param)
    return embed_manifest(model.SerializeToString(), manifest())


def create_hostile_repository(root: Path) -> None:
    """The model, a damaged one, and one whose name is refused."""
    put_model(root, MODEL, 1, hostile_model())
    put_model(root, MODEL.replace("model", "broken"), 1, b"no model")
    put_model(root, MODEL[:-90].replace("model", "refused") + "\u202e", 1, b"no model")


def injected(page: Page) -> list[str]:
    """Scripts of names that ran, and elements that names made."""
    return page.evaluate(FIND_INJECTED)
