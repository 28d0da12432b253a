"""Serializes a graph: checked, with the manifest embedded, and with the same bytes every time."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform

import numpy as np
import onnx
import onnx_ir as ir

from turnpike.common.distribution import VERSION
from turnpike.export.errors import ExportError, one_line
from turnpike.service.artifact.manifest import METADATA_KEY, Manifest
from turnpike.service.artifact.onnx_file.protobuf import content_digest

# protobuf's limit for one message, in bytes
MAX_FILE_BYTES = 2**31 - 1

# libraries whose versions the manifest records
TOOLS = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy")


def to_bytes(model: ir.Model) -> bytes:
    """Serialize a graph and check it with full shape inference; an ExportError if it is invalid."""
    model.producer_name, model.producer_version = "turnpike", VERSION
    size = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value)
    if size > MAX_FILE_BYTES:
        raise ExportError(
            f"expected weights of at most 2 GiB, the limit of an .onnx file, got {size / 2**30:.1f} GiB: "
            "export the network in parts"
        )
    proto = ir.to_proto(model)
    data = proto.SerializeToString(deterministic=True)
    try:
        onnx.checker.check_model(data, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"onnx's checker rejects the graph: {one_line(error)}") from error
    return data


def embed_manifest(data: bytes, manifest: Manifest) -> bytes:
    """Embed the manifest, with a digest of everything else in the file."""
    manifest = manifest.model_copy(update={"content": content_digest(data)})
    model = onnx.load_from_string(data)
    other_entries = [entry for entry in model.metadata_props if entry.key != METADATA_KEY]
    del model.metadata_props[:]
    model.metadata_props.extend(
        [*other_entries, onnx.StringStringEntryProto(key=METADATA_KEY, value=manifest.to_json())]
    )
    return model.SerializeToString(deterministic=True)


def weights_digest(model: ir.Model) -> str:
    """SHA-256 over name, dtype, shape and values of every initializer, sorted by name."""
    digest = hashlib.sha256()
    for name, value in sorted(model.graph.initializers.items()):
        array = np.ascontiguousarray(value.const_value.numpy()) if value.const_value else np.empty(0)
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def tool_versions() -> dict[str, str]:
    """The versions of Python and of the packages that made the file."""
    ours = {"python": platform.python_version(), "turnpike": VERSION}
    return ours | {name: importlib.metadata.version(name) for name in TOOLS}
