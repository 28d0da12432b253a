"""Measures what each unit of a layer changes: the largest |y - x| over rows of data.

For a layer with C = 1 - T this is the largest |T (H - x)|. A unit that changes little can carry its input
instead, whatever the reason: its gate is shut, or H is near x.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from export.compress.removable_layers import RemovableLayer
from export.gates.levers import drop_levers
from export.measure.run_rows import run_rows
from export.source import Array, Rows
from service.artifact.runtime import open_model


def measure_importance(model: ir.Model, layers: Sequence[RemovableLayer], rows: Rows) -> dict[str, Array]:
    """The importance of each unit of the layers, by the name of the gate."""
    runtime = open_model(_measuring_graph(model, layers))
    names = [_output_name(layer) for layer in layers]
    largest: dict[str, Array] = {}
    for batch in run_rows(runtime, rows, names):
        for name, array in batch.arrays.items():
            largest[name] = np.maximum(largest[name], array) if name in largest else array
    return {layer.gate.name: largest[_output_name(layer)] for layer in layers}


def _measuring_graph(model: ir.Model, layers: Sequence[RemovableLayer]) -> bytes:
    """A graph whose outputs are the largest change of each unit in a batch."""
    model = model.clone()
    graph = model.graph
    values = {str(value.name): value for value in (*graph.inputs, *graph.initializers.values())}
    values |= {str(value.name): value for node in graph for value in node.outputs}
    graph.outputs.clear()
    for layer in layers:
        rank = len(values[layer.sum].shape or ())
        unit_axis = rank + layer.gate.unit_axis
        axes = ir.node(
            "Constant", [], {"value": ir.tensor([axis for axis in range(rank) if axis != unit_axis])}
        )
        difference = ir.node("Sub", [values[layer.sum], values[layer.state]])
        change = ir.node("Abs", [difference.outputs[0]])
        largest = ir.node("ReduceMax", [change.outputs[0], axes.outputs[0]], {"keepdims": 0})
        output = largest.outputs[0]
        output.name = _output_name(layer)
        output.type, output.shape = values[layer.sum].type, ir.Shape([layer.units])
        for node in (axes, difference, change, largest):
            graph.append(node)
        graph.outputs.append(output)
    drop_levers(model)
    model.metadata_props.clear()
    return ir.to_proto(model).SerializeToString()


def _output_name(layer: RemovableLayer) -> str:
    return f"{layer.gate.name}.importance"
