"""A graph as bytes: checked, anonymous, with its manifest inside, the same each time."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform

import numpy as np
import onnx
import onnx_ir as ir

from export.errors import ExportError
from service.artifact.manifest import METADATA_KEY, Manifest
from service.artifact.protobuf import content_digest

# what protobuf can hold in one message
MAX_FILE_BYTES = 2**31 - 1

TOOLS = ("turnpike", "torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy")


def to_bytes(model: ir.Model) -> bytes:
    """The graph as it will be opened, checked with full shape inference."""
    model.producer_name, model.producer_version = "turnpike", importlib.metadata.version("turnpike")
    size = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value)
    if size > MAX_FILE_BYTES:
        raise ExportError(
            f"the weights are {size / 2**30:.1f} GiB, and one .onnx file holds at most 2 GiB: "
            "export the network in parts"
        )
    proto = ir.to_proto(model)
    data = proto.SerializeToString(deterministic=True)
    try:
        onnx.checker.check_model(data, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"onnx's checker found fault with the graph: {error}") from error
    return data


def embed_manifest(data: bytes, manifest: Manifest) -> bytes:
    """The same file, with what it says of itself, and a digest of all else in it."""
    manifest = manifest.model_copy(update={"content": content_digest(data)})
    model = onnx.load_from_string(data)
    kept = [entry for entry in model.metadata_props if entry.key != METADATA_KEY]
    del model.metadata_props[:]
    model.metadata_props.extend(
        [*kept, onnx.StringStringEntryProto(key=METADATA_KEY, value=manifest.to_json())]
    )
    return model.SerializeToString(deterministic=True)


def weights_digest(model: ir.Model) -> str:
    """SHA-256 over every initializer: name, dtype, shape and values, in the order of their names."""
    digest = hashlib.sha256()
    for name, value in sorted(model.graph.initializers.items()):
        array = np.ascontiguousarray(value.const_value.numpy()) if value.const_value else np.empty(0)
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def tool_versions() -> dict[str, str]:
    """The versions of everything that had a hand in the file."""
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in TOOLS}
