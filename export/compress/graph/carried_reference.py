"""The graph that a cut one must equal: the whole graph, in which the removed units carry their input.

It is made without the code that cuts: each layer's sum is followed by a choice, unit by unit, between the sum
and the layer's input. So the proof of a cut graph finds mistakes of the cut.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from turnpike.export.compress.graph.removable_layers import RemovableLayer
from turnpike.export.gates.gate_names import rename

# end of the names of values that are replaced
REPLACED_SUFFIX = ".whole"


def carried_reference(
    model: ir.Model,
    public_outputs: Collection[str],
    layers: Sequence[RemovableLayer],
    kept: Mapping[str, Sequence[int]],
) -> onnx.ModelProto:
    """The whole graph with removed units carried; its values have the names of the cut graph's outputs.

    Args:
        model: The whole graph, with hidden outputs and levers.
        public_outputs: The names of its other outputs.
        layers: The layers that are cut.
        kept: Ascending indices of the units that each layer keeps, by the name of its gate.
    """
    model = model.clone()
    graph = model.graph
    values = {str(value.name): value for node in graph for value in node.outputs}
    values |= {str(value.name): value for value in (*graph.inputs, *graph.initializers.values())}
    for layer in layers:
        units = np.array(kept[layer.gate.name], np.int64)
        gated_sum, state = values[layer.sum], values[layer.state]
        shape = [1] * len(gated_sum.shape or ())
        shape[layer.gate.unit_axis] = layer.units
        is_kept = np.isin(np.arange(layer.units), units).reshape(shape)
        users = list(gated_sum.uses())
        chosen = _insert_after(
            graph, gated_sum, "Where", [_constant(f"{layer.sum}.is_kept", is_kept), gated_sum, state]
        )
        for user, position in users:
            user.replace_input_with(position, chosen)
        values[layer.sum] = chosen
        for name in _gate_names(layer) if len(units) else ():
            gate = values[name]
            indices = _constant(f"{name}.kept_units", units)
            values[name] = _insert_after(graph, gate, "Gather", [gate, indices], axis=layer.gate.unit_axis)

    # the network's own outputs and inputs remain, and all inner values keep their nodes
    names = [str(output.name).removesuffix(REPLACED_SUFFIX) for output in graph.outputs]
    graph.outputs[:] = [values[name] for name in names if name in public_outputs]
    for lever in [value for value in graph.inputs if value.is_initializer()]:
        graph.inputs.remove(lever)
    return ir.to_proto(model)


def _gate_names(layer: RemovableLayer) -> list[str]:
    return [name for name in (layer.gate.name, layer.gate.carry_gate) if name is not None]


def _insert_after(
    graph: ir.Graph, value: ir.Value, op_type: str, inputs: Sequence[ir.Value], **attributes: int
) -> ir.Value:
    """The output of a new node behind the node of a value, whose name it takes."""
    producer = value.producer()
    if producer is None:
        raise ValueError(f"{value.name}: expected a value that a node computes")
    node = ir.node(op_type, list(inputs), attributes)
    constants = [made for source in inputs if (made := source.producer()) is not None and made.graph is None]
    graph.insert_after(producer, [*constants, node])
    output = node.outputs[0]
    output.type = value.type
    name = str(value.name)
    rename(value, f"{name}{REPLACED_SUFFIX}")
    rename(output, name)
    return output


def _constant(name: str, array: np.ndarray[Any, np.dtype[Any]]) -> ir.Value:
    node = ir.node("Constant", [], {"value": ir.tensor(array, name=name)})
    rename(node.outputs[0], name)
    return node.outputs[0]
