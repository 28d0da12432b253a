"""Compares a file with the graph that was exported here from its source: tensors, gates and weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx_ir as ir

from turnpike.export.claims.checklist import Checklist, shown
from turnpike.export.claims.verified_file import VerifiedFile
from turnpike.export.errors import ParityError
from turnpike.export.output.model_bytes import weights_digest
from turnpike.export.precision.lower import lower
from turnpike.export.prepared_graph import PreparedGraph, with_short_sums
from turnpike.service.artifact.manifest import Gate
from turnpike.service.artifact.onnx_file.protobuf import content_digest

# dtypes of weights that only a lower precision adds to a graph
LOW_DTYPES = {"fp16": {ir.DataType.FLOAT16}, "int8": {ir.DataType.INT8}}


def expect_same_interface(path: Path, model: ir.Model, graph: PreparedGraph) -> None:
    """Raise a ParityError unless a file has the opset, inputs, levers and outputs of the source's graph.

    The inputs may have other names than those of the source.
    """
    expected = graph.model
    if (ours := expected.opset_imports.get("")) != (theirs := model.opset_imports.get("")):
        raise ParityError(f"{path}: opset: expected {ours}, as the source has, got {theirs}")
    for kind, own, others in (
        ("inputs", list(_inputs(expected)), list(_inputs(model))),
        ("levers", list(_levers(expected)), list(_levers(model))),
        ("outputs", list(expected.graph.outputs), list(model.graph.outputs)),
    ):
        names = [str(value.name) for value in own], [str(value.name) for value in others]
        if len(own) != len(others) or (kind != "inputs" and names[0] != names[1]):
            raise ParityError(f"{path}: {kind}: expected {shown(names[0])}, got {shown(names[1])}")
        for value, other in zip(own, others, strict=True):
            if not _fits(value, other):
                raise ParityError(
                    f"{path}: {kind}: {other.name}: expected {_described(value)}, got {_described(other)}"
                )


def check_graph(claims: Checklist, file: VerifiedFile) -> None:
    """Check what the manifest says about tensors, gates and weights, from the most specific to the digest."""
    manifest, fresh = file.manifest, file.graph
    check_gates(claims, fresh.gates.gates, manifest.gates)
    claims.expect("outputs", fresh.public_outputs, manifest.outputs)
    claims.check("plain")  # the graph has the hidden outputs and levers of the source's, or none
    claims.expect("batch_axes", file.network.batch_axes(fresh.public_outputs), manifest.batch_axes)
    claims.expect("batch_coupled", file.proof.batch_coupled, manifest.batch_coupled)
    _check_precision(claims, file)
    digest = weights_digest(file.model if manifest.compression is not None else fresh.model)
    if manifest.weights != digest:  # a differing weight in the file was named before
        raise claims.error("weights", "expected the digest of the source's, got another")
    claims.check("weights")
    claims.expect("content", content_digest(file.path.read_bytes()), manifest.content, "the file's digest")
    claims.check("format")  # there is one


def check_gates(claims: Checklist, expected: Sequence[Gate], gates: Sequence[Gate]) -> None:
    """Check all fields of all gates."""
    if len(expected) != len(gates):
        raise claims.error("gates", f"expected {len(expected)}, as the source has, got {len(gates)}")
    for ours, theirs in zip(expected, gates, strict=True):
        for name, value in ours:
            if (got := getattr(theirs, name)) != value:
                raise claims.error(f"{theirs.name}: {name}", f"expected {shown(value)}, got {shown(got)}")
    claims.check("gates")


def _check_precision(claims: Checklist, file: VerifiedFile) -> None:
    """Check that a file of lower precision is what lowering the source's graph gives."""
    claimed = file.manifest.precision
    if claimed == "fp32":
        claims.check("precision")  # the file itself was proved, with the source's weights bit for bit
        return
    if not (_dtypes(file.model) - _dtypes(file.graph.model)) & LOW_DTYPES[claimed]:
        raise claims.error("precision", f"expected a graph with weights in {claimed}, got one without any")
    forms = (form for form in (with_short_sums(file.graph), file.graph) if form is not None)
    if any(content_digest(lower(form.data, claimed)) == file.manifest.content for form in forms):
        claims.check("precision")
    else:
        claims.claim(f"this version makes another {claimed} graph, so rows alone compare it", "precision")


def _dtypes(model: ir.Model) -> set[ir.DataType]:
    return {value.dtype for value in model.graph.initializers.values() if value.dtype is not None}


def _inputs(model: ir.Model) -> Iterator[ir.Value]:
    return (value for value in model.graph.inputs if value.name not in model.graph.initializers)


def _levers(model: ir.Model) -> Iterator[ir.Value]:
    return (value for value in model.graph.inputs if value.name in model.graph.initializers)


def _fits(value: ir.Value, other: ir.Value) -> bool:
    """Whether two tensors have one dtype, the same number of axes, and equal sizes where both are numbers."""
    if value.dtype != other.dtype:
        return False
    if value.shape is None or other.shape is None:
        return True
    return len(value.shape) == len(other.shape) and all(
        not (isinstance(ours, int) and isinstance(theirs, int)) or ours == theirs
        for ours, theirs in zip(value.shape, other.shape, strict=True)
    )


def _described(value: ir.Value) -> str:
    return f"{value.dtype}{value.shape or ''}"
