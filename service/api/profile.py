"""What a model's file says of its gates, as JSON."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import orjson

from service.artifact.manifest import Gate, Profile
from service.inference_types import Array
from service.registry.model import Model


def profile(model: Model) -> bytes:
    """Gates with their biases, how they behaved on the rows of the export, and the lesion curve."""
    manifest = model.manifest
    about = {"model_name": model.name, "model_version": str(model.version)}
    told = {} if manifest is None else manifest.model_dump(include={"gates", "lesion"})
    if manifest is not None and manifest.profile is not None:
        told["profile"] = _layer_by_layer(manifest.profile)
    else:
        told["profile"] = None
    biases = {gate.name: bias_of(gate, model.biases) for gate in model.gates}
    return orjson.dumps(about | told | {"biases": biases}, option=orjson.OPT_SERIALIZE_NUMPY)


def bias_of(gate: Gate, biases: Mapping[str, Array]) -> Array | None:
    """The bias of each unit, in the sense of T: the higher, the more open; None where nobody may move it."""
    if not gate.levers:
        return None
    own = gate.levers[0]
    return (own.sign * biases[own.tensor].reshape(-1)[own.start : own.stop]).astype(np.float32)


def _layer_by_layer(profile: Profile) -> dict[str, object]:
    """A layer at a time, between which other threads may run: of hundreds of wide ones it takes long."""
    told: dict[str, object] = profile.model_dump(exclude={"layers"})
    return told | {"layers": [orjson.Fragment(layer.model_dump_json().encode()) for layer in profile.layers]}
