"""Opens GRU and LSTM operators: a Scan with their equations computes the same, and its gates can be seen.

An operator is one node, so nothing inside it can be an output. In a Scan, every step is written out:

    GRU:   z, r = sigmoid(W x + R h + b)       n = tanh(W x + b + r * (R h + b))
           h' = (1 - z) * n + z * h
    LSTM:  i, o, f = sigmoid(W x + R h + b)    g = tanh(W x + R h + b)
           c' = f * c + i * g                  h' = o * tanh(c')

Both are highways in time: z and f carry the state of the step before. The products W x are computed for
all steps at once, before the Scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

RECURRENT_OPS = frozenset({"GRU", "LSTM"})
# the first opset in which the axes and sizes of all operators used here are inputs
MIN_OPSET = 13
DEFAULT_ACTIVATIONS = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
# how many matrices the weights of an operator are stacked from: one per gate, and one for the new state
MATRICES = {"GRU": 3, "LSTM": 4}

# the gate of each operator that is no highway gate
OTHER_GATES = {"GRU": "reset_gate", "LSTM": "output_gate"}

# names of the bodies of Scans
BODY_NAMES = {"GRU": "steps_of_gru", "LSTM": "steps_of_lstm"}


def recurrent_nodes(graph: ir.Graph) -> list[ir.Node]:
    """The GRU and LSTM operators of a graph."""
    return [node for node in graph if node.op_type in RECURRENT_OPS and node.domain == ""]


def open_recurrent_operators(model: ir.Model) -> tuple[dict[str, str], tuple[str, ...]]:
    """Replace each GRU and LSTM by a Scan, in place.

    Returns:
        Each reset gate of a GRU and output gate of an LSTM, in words by its name in the graph; and a sentence
        for each operator that cannot be replaced.
    """
    other_gates: dict[str, str] = {}
    sentences = []
    for node in recurrent_nodes(model.graph):
        reason = _why_closed(node, model.opset_imports.get("") or 0)
        if reason is None:
            gate = OTHER_GATES[node.op_type]
            description = f"the {gate.replace('_', ' ')} of {operator_name(node)}"
            other_gates |= {f"{name}.{gate}": description for name in _open(model.graph, node)}
        else:
            sentences.append(f"the gates inside {operator_name(node)} are not in the file: {reason}")
    return other_gates, tuple(sentences)


def closed_operators(graph: ir.Graph) -> tuple[str, ...]:
    """A sentence about the operators that have gates inside, if there are any."""
    names = [operator_name(node) for node in recurrent_nodes(graph)]
    if not names:
        return ()
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (f"the gates inside {names[0]}{more} are not in the file: --open-recurrent adds them",)


def has_open_operators(model: ir.Model) -> bool:
    """Whether a graph has a Scan that replaces a GRU or LSTM."""
    scans = [node for node in model.graph if node.op_type == "Scan"]
    return any(node.attributes["body"].as_graph().name in BODY_NAMES.values() for node in scans)


def operator_name(node: ir.Node) -> str:
    """An operator by the name of its weights, as the user knows it."""
    return f"the {node.op_type} with the weights {_weight_name(node.inputs[1])}"


def _weight_name(value: ir.Value | None) -> str:
    """The name of the first weight that a value is put together from."""
    while value is not None and (node := value.producer()) is not None and node.inputs:
        value = node.inputs[0]
    return "without a name" if value is None else str(value.name)


def _why_closed(node: ir.Node, opset: int) -> str | None:
    """Why an operator cannot be replaced; None if it can."""
    inputs = dict(enumerate(node.inputs))
    activations = node.attributes.get_strings("activations", [])
    directions = _directions(node)
    expected = DEFAULT_ACTIVATIONS[node.op_type] * len(directions)
    if opset < MIN_OPSET:
        return f"opset {opset} is below {MIN_OPSET}"
    if inputs.get(4) is not None:
        return "its sequences have different lengths"
    if node.op_type == "LSTM" and inputs.get(7) is not None:
        return "it has peephole weights"
    if "clip" in node.attributes or node.attributes.get_int("input_forget", 0) == 1:
        return "it has the attribute clip or input_forget"
    if activations and [name.lower() for name in activations] != [name.lower() for name in expected]:
        return f"it has other activations than {', '.join(expected)}"
    if node.attributes.get_int("layout", 0):
        return "it takes rows before steps (layout = 1)"
    if "hidden_size" not in node.attributes:
        return "it has no attribute hidden_size"
    return None


def _directions(node: ir.Node) -> list[str]:
    direction = node.attributes.get_string("direction", "forward")
    return ["forward", "reverse"] if direction == "bidirectional" else [direction]


def _open(graph: ir.Graph, node: ir.Node) -> list[str]:
    """Replace one operator; returns a name for each direction, with which the names of its values begin."""
    base = str(node.outputs[0].name or node.name)
    directions = _directions(node)
    names = [base] if len(directions) == 1 else [f"{base}.{direction}" for direction in directions]
    results = []
    for number, (direction, name) in enumerate(zip(directions, names, strict=True)):
        writer = _NodeWriter(name, graph, before=node)
        results.append(_Direction(writer, node, number, backwards=direction == "reverse").write())
    writer = _NodeWriter(base, graph, before=node)
    # the outputs of both operators: all states, the last state and, for an LSTM, the last cell state
    for number, output in enumerate(node.outputs):
        if not output.name:
            continue  # left out, as nothing uses it
        parts = [result[number] for result in results]
        joined = writer.add("Concat", parts, axis=1 if number == 0 else 0) if len(parts) > 1 else parts[0]
        joined.shape, joined.type = output.shape, output.type
        ir.convenience.replace_all_uses_with(output, joined, replace_graph_outputs=True)
        joined.name, output.name = output.name, f"{base}.closed.{number}"
    graph.remove(node, safe=True)
    return names


class _NodeWriter:
    """Makes nodes whose values have names of their own, and adds them to a graph before one of its nodes.

    Without a graph they are only collected, in `nodes`.
    """

    def __init__(self, name: str, graph: ir.Graph | None = None, before: ir.Node | None = None) -> None:
        self.nodes: list[ir.Node] = []
        self.name = name
        self._graph = graph
        self._before = before
        self._count = 0

    def add(self, op: str, inputs: Sequence[ir.Value | None], *, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; returns its output, or a list of several."""
        node = ir.node(op, inputs, attributes, num_outputs=outputs)
        for value in node.outputs:
            value.name = f"{self.name}.open.{self._count}"
            self._count += 1
        node.name = node.outputs[0].name
        self.nodes.append(node)
        if self._graph is not None and self._before is not None:
            self._graph.insert_before(self._before, node)
        return node.outputs[0] if outputs == 1 else list(node.outputs)

    def integers(self, *numbers: int) -> ir.Value:
        """A constant for axes, sizes and the like."""
        value: ir.Value = self.add("Constant", [], value=ir.tensor(np.array(numbers, np.int64)))
        return value

    def rows(self, value: ir.Value, start: int, stop: int, axis: int = 0) -> ir.Value:
        """A slice along one axis."""
        part: ir.Value = self.add(
            "Slice", [value, self.integers(start), self.integers(stop), self.integers(axis)]
        )
        return part


class _Direction:
    """One direction of an operator, which a Scan of its own computes."""

    def __init__(self, writer: _NodeWriter, node: ir.Node, number: int, *, backwards: bool) -> None:
        self._writer = writer
        self._node = node
        self._number = number
        self._backwards = backwards
        self._units = node.attributes.get_int("hidden_size", 0)
        self._matrices = MATRICES[node.op_type]
        self._dtype = self._input(0).dtype or ir.DataType.FLOAT

    def write(self) -> list[ir.Value]:
        """Write the Scan; returns the outputs of the operator for this direction."""
        writer = self._writer
        gru = self._node.op_type == "GRU"
        states = [self._initial_state(5), *([] if gru else [self._initial_state(6)])]
        body, sequences = self._gru() if gru else self._lstm()
        directions = {
            "scan_input_directions": [1] * len(sequences),
            "scan_output_directions": [1],
        }
        *last, all_states = writer.add(
            "Scan",
            [*states, *sequences],
            outputs=len(states) + 1,
            body=body,
            num_scan_inputs=len(sequences),
            **(directions if self._backwards else {}),
        )
        sequence = writer.add("Unsqueeze", [all_states, writer.integers(1)])
        return [sequence, *(writer.add("Unsqueeze", [state, writer.integers(0)]) for state in last)]

    def _gru(self) -> tuple[ir.Graph, list[ir.Value]]:
        """The body of the Scan, and the sequences that it goes through."""
        units = self._units
        reset_after_product = bool(self._node.attributes.get_int("linear_before_reset", 0))
        gates_x = self._product(0, 2)
        new_bias = self._bias(2, 3)
        new_x = self._product(2, 3)
        if new_bias is not None:
            new_x = self._writer.add("Add", [new_x, new_bias])
        gates_bias, state_bias = self._joined_bias(0, 2), self._bias(5, 6)
        gates_matrix, new_matrix = self._state_matrix(0, 2), self._state_matrix(2, 3)
        h = self._body_value("state", units)
        gates_at_step, new_at_step = self._body_value("gates", 2 * units), self._body_value("new", units)
        body = _NodeWriter(f"{self._writer.name}.step")
        gates = body.add(
            "Sigmoid", [body.add("Add", [gates_at_step, _gemm(body, h, gates_matrix, gates_bias)])]
        )
        z, r = body.add("Split", [gates, body.integers(units, units)], outputs=2, axis=-1)
        r.name = f"{self._writer.name}.{OTHER_GATES['GRU']}"
        if reset_after_product:
            from_state = body.add("Mul", [r, _gemm(body, h, new_matrix, state_bias)])
        else:
            from_state = _gemm(body, body.add("Mul", [r, h]), new_matrix, state_bias)
        n = body.add("Tanh", [body.add("Add", [new_at_step, from_state])])
        one = body.add("Constant", [], value=ir.tensor(np.array(1, self._dtype.numpy())))
        transformed = body.add("Mul", [body.add("Sub", [one, z]), n])
        next_h = body.add("Add", [transformed, body.add("Mul", [z, h])])
        return self._body(body, [h], [gates_at_step, new_at_step], [next_h], next_h), [gates_x, new_x]

    def _lstm(self) -> tuple[ir.Graph, list[ir.Value]]:
        """The body of the Scan, and the sequences that it goes through."""
        units = self._units
        x_product = self._product(0, 4)
        bias, matrix = self._joined_bias(0, 4), self._state_matrix(0, 4)
        h, c = self._body_value("state", units), self._body_value("cell", units)
        at_step = self._body_value("sum", 4 * units)
        body = _NodeWriter(f"{self._writer.name}.step")
        logits = body.add("Add", [at_step, _gemm(body, h, matrix, bias)])
        gates, new = body.add("Split", [logits, body.integers(3 * units, units)], outputs=2, axis=-1)
        sizes = body.integers(units, units, units)
        i, o, f = body.add("Split", [body.add("Sigmoid", [gates]), sizes], outputs=3, axis=-1)
        o.name = f"{self._writer.name}.{OTHER_GATES['LSTM']}"
        transformed = body.add("Mul", [i, body.add("Tanh", [new])])
        next_c = body.add("Add", [transformed, body.add("Mul", [f, c])])
        next_h = body.add("Mul", [o, body.add("Tanh", [next_c])])
        return self._body(body, [h, c], [at_step], [next_h, next_c], next_h), [x_product]

    def _body(
        self,
        writer: _NodeWriter,
        states: list[ir.Value],
        at_step: list[ir.Value],
        next_states: list[ir.Value],
        output: ir.Value,
    ) -> ir.Graph:
        # each output of a body has a name of its own
        sequence = writer.add("Identity", [output])
        for value in (*next_states, sequence):
            value.type, value.shape = ir.TensorType(self._dtype), ir.Shape([None, self._units])
        name = BODY_NAMES[self._node.op_type]
        return ir.Graph([*states, *at_step], [*next_states, sequence], nodes=writer.nodes, name=name)

    def _body_value(self, name: str, units: int) -> ir.Value:
        return ir.Value(
            name=f"{self._writer.name}.step.{name}",
            shape=ir.Shape([None, units]),
            type=ir.TensorType(self._dtype),
        )

    def _input(self, number: int) -> ir.Value:
        """An input that every operator has."""
        value = self._node.inputs[number]
        if value is None:
            raise ValueError(f"{self._node.op_type}: expected input {number}, got none")
        return value

    def _slice_weights(self, weights: ir.Value, first: int, last: int) -> ir.Value:
        """The part of stacked weights that belongs to this direction and to some gates."""
        writer = self._writer
        one = writer.rows(weights, self._number, self._number + 1)
        of_direction: ir.Value = writer.add("Squeeze", [one, writer.integers(0)])
        return writer.rows(of_direction, first * self._units, last * self._units)

    def _product(self, first: int, last: int) -> ir.Value:
        """The products of all steps with the weights W of some gates."""
        matrix = self._writer.add(
            "Transpose", [self._slice_weights(self._input(1), first, last)], perm=[1, 0]
        )
        product: ir.Value = self._writer.add("MatMul", [self._input(0), matrix])
        return product

    def _state_matrix(self, first: int, last: int) -> ir.Value:
        return self._slice_weights(self._input(2), first, last)

    def _bias(self, first: int, last: int) -> ir.Value | None:
        bias = dict(enumerate(self._node.inputs)).get(3)
        return None if bias is None else self._slice_weights(bias, first, last)

    def _joined_bias(self, first: int, last: int) -> ir.Value | None:
        """The sum of the biases of Wx and Rh."""
        bias_x = self._bias(first, last)
        bias_h = self._bias(self._matrices + first, self._matrices + last)
        if bias_x is None or bias_h is None:
            return None
        joined: ir.Value = self._writer.add("Add", [bias_x, bias_h])
        return joined

    def _initial_state(self, input_number: int) -> ir.Value:
        """The state before the first step, which is zeros if the operator gets none."""
        writer = self._writer
        initial = dict(enumerate(self._node.inputs)).get(input_number)
        if initial is not None:
            one = writer.rows(initial, self._number, self._number + 1)
            state: ir.Value = writer.add("Squeeze", [one, writer.integers(0)])
            return state
        x_shape = writer.add("Shape", [self._input(0)])
        shape = writer.add("Concat", [writer.rows(x_shape, 1, 2), writer.integers(self._units)], axis=0)
        zero = ir.tensor(np.zeros(1, self._dtype.numpy()))
        zeros: ir.Value = writer.add("ConstantOfShape", [shape], value=zero)
        return zeros


def _gemm(writer: _NodeWriter, state: ir.Value, matrix: ir.Value, bias: ir.Value | None) -> ir.Value:
    product: ir.Value = writer.add("Gemm", [state, matrix, *([] if bias is None else [bias])], transB=1)
    return product
