"""Measures what each unit of a layer changes: the root mean square of y - x over rows of data.

For a layer with C = 1 - T, y - x is T (H - x). A unit that changes little can carry its input instead,
whatever the reason: its gate is shut, or H is near x.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from turnpike.export.compress.graph.removable_layers import RemovableLayer
from turnpike.export.gates.levers import drop_levers
from turnpike.export.measure.run_rows import run_rows
from turnpike.export.network import Array, Rows
from turnpike.service.artifact.runtime import open_model

# the opset since which ReduceMean has its axes as an input
MEAN_AXES_OPSET = 18


def measure_changes(model: ir.Model, layers: Sequence[RemovableLayer], rows: Rows) -> dict[str, Array]:
    """How much each unit of the layers changes, by the name of the gate.

    For a layer that is applied at several positions (pixels, or steps in time), the mean is over these too.
    """
    runtime = open_model(_measuring_graph(model, layers))
    names = [_output_name(layer) for layer in layers]
    sums = {layer.gate.name: np.zeros(layer.units) for layer in layers}
    measured = 0
    for batch in run_rows(runtime, rows, names):
        # a graph with a fixed batch size fills up its last batch with repeats of a row
        if measured and batch.count < batch.batch_rows:
            break
        measured += batch.count
        for layer in layers:
            sums[layer.gate.name] += batch.count * batch.arrays[_output_name(layer)]
    return {name: np.sqrt(total / measured) for name, total in sums.items()}


def _measuring_graph(model: ir.Model, layers: Sequence[RemovableLayer]) -> bytes:
    """A graph whose outputs are, for each layer, the mean square change of each unit in a batch."""
    model = model.clone()
    graph = model.graph
    values = {str(value.name): value for value in (*graph.inputs, *graph.initializers.values())}
    values |= {str(value.name): value for node in graph for value in node.outputs}
    graph.outputs.clear()
    for layer in layers:
        rank = len(values[layer.sum].shape or ())
        unit_axis = rank + layer.gate.unit_axis
        change = ir.node("Sub", [values[layer.sum], values[layer.state]])
        square = ir.node("Mul", [change.outputs[0], change.outputs[0]])
        others = [axis for axis in range(rank) if axis != unit_axis]
        mean = _mean_over(square.outputs[0], others, model.opset_imports[""])
        output = mean[-1].outputs[0]
        output.name = _output_name(layer)
        output.type, output.shape = values[layer.sum].type, ir.Shape([layer.units])
        for node in (change, square, *mean):
            graph.append(node)
        graph.outputs.append(output)
    drop_levers(model)
    model.metadata_props.clear()
    return ir.to_proto(model).SerializeToString()


def _mean_over(value: ir.Value, axes: Sequence[int], opset: int) -> list[ir.Node]:
    """Nodes for the mean over axes, which are an input of ReduceMean since opset 18."""
    if opset < MEAN_AXES_OPSET:
        return [ir.node("ReduceMean", [value], {"axes": axes, "keepdims": 0})]
    constant = ir.node("Constant", [], {"value": ir.tensor(axes)})
    return [constant, ir.node("ReduceMean", [value, constant.outputs[0]], {"keepdims": 0})]


def _output_name(layer: RemovableLayer) -> str:
    return f"{layer.gate.name}.change"
