"""A small highway network as an .onnx file, built by hand, with a second implementation in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from turnpike.service.artifact.manifest import Gate, Lever
from turnpike.service.artifact.runtime import Runtime, open_model

Array = np.ndarray[Any, np.dtype[Any]]
Ending = Literal["logits", "softmax"]


@dataclass(frozen=True)
class Gated:
    """A network: the bytes of its file, its gates as a manifest lists them, and its weights."""

    model: bytes
    gates: tuple[Gate, ...]
    weights: dict[str, Array]

    @property
    def biases(self) -> dict[str, Array]:
        tensors = {lever.tensor for gate in self.gates for lever in gate.levers}
        return {name: self.weights[name] for name in tensors}

    def open(self) -> Runtime:
        return open_model(self.model)

    def gate_values(self, x: Array) -> list[Array]:
        """T of each layer in float64."""
        return self._walk(x)[0]

    def logits(self, x: Array, closed: frozenset[int] = frozenset()) -> Array:
        """The outputs in float64, with some layers closed."""
        return self._walk(x, closed)[1]

    def _walk(self, x: Array, closed: frozenset[int] = frozenset()) -> tuple[list[Array], Array]:
        w = {name: array.astype(np.float64) for name, array in self.weights.items()}
        y = x.astype(np.float64) @ w["first.weight"].T + w["first.bias"]
        gates = []
        for layer in range(len(self.gates)):
            logit = y @ w[f"layers.{layer}.gate.weight"].T + w[f"layers.{layer}.gate.bias"]
            t = 1 / (1 + np.exp(-logit))
            h = np.tanh(y @ w[f"layers.{layer}.block.weight"].T + w[f"layers.{layer}.block.bias"])
            gates.append(t)
            y = y if layer in closed else t * h + (1 - t) * y
        return gates, y @ w["last.weight"].T + w["last.bias"]


def highway(
    *,
    layers: int = 3,
    units: int = 6,
    inputs: int = 4,
    classes: int = 3,
    batch: int | str = "batch",
    ending: Ending = "logits",
    levers: bool = True,
    blanks: bool = False,
    seed: int = 0,
) -> Gated:
    """Build y = H(x) * T(x) + x * (1 - T(x)), several layers deep, between two linear layers.

    With `blanks`, a NaN among the inputs counts as 0.
    """
    random = np.random.default_rng(seed)
    weights: dict[str, Array] = {"one": np.ones((), np.float32)}

    def linear(name: str, outputs: int, bias: float = 0.0) -> list[str]:
        fan_in = units if name != "first" else inputs
        weights[f"{name}.weight"] = random.normal(size=(outputs, fan_in), scale=fan_in**-0.5).astype(
            np.float32
        )
        weights[f"{name}.bias"] = random.normal(size=outputs, loc=bias, scale=0.1).astype(np.float32)
        return [f"{name}.weight", f"{name}.bias"]

    node = helper.make_node
    given = "filled" if blanks else "x"
    nodes = [node("Gemm", [given, *linear("first", units)], ["y0"], name="first", transB=1)]
    if blanks:
        weights["zero"] = np.zeros((), np.float32)
        nodes.insert(0, node("Where", ["missing", "zero", "x"], ["filled"], name="fill"))
        nodes.insert(0, node("IsNaN", ["x"], ["missing"], name="missing"))
    for n in range(layers):
        t, h, y = f"layer{n:02}.transform_gate", f"h{n}", f"layer{n:02}.output"
        x = "y0" if n == 0 else f"layer{n - 1:02}.output"
        gate, block = linear(f"layers.{n}.gate", units, -1.0), linear(f"layers.{n}.block", units)
        nodes += [
            node("Gemm", [x, *gate], [f"g{n}"], name=f"gate{n}", transB=1),
            node("Sigmoid", [f"g{n}"], [t], name=f"t{n}"),
            node("Gemm", [x, *block], [f"b{n}"], name=f"block{n}", transB=1),
            node("Tanh", [f"b{n}"], [h], name=h),
            node("Mul", [h, t], [f"ht{n}"], name=f"ht{n}"),
            node("Sub", ["one", t], [f"c{n}"], name=f"c{n}"),
            node("Mul", [x, f"c{n}"], [f"xc{n}"], name=f"xc{n}"),
            node("Add", [f"ht{n}", f"xc{n}"], [y], name=y),
        ]
    output = "logits" if ending == "logits" else "scores"
    nodes.append(node("Gemm", [y, *linear("last", classes)], [output], name="last", transB=1))
    if ending == "softmax":
        nodes.append(node("Softmax", ["scores"], ["logits"], name="softmax", axis=-1))

    def value(name: str, *dims: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

    names = [f"layer{n:02}.transform_gate" for n in range(layers)]
    hidden = [value(name, batch, units) for n in names for name in (n, n.replace("transform_gate", "output"))]
    lever_inputs = [value(f"layers.{n}.gate.bias", units) for n in range(layers)] if levers else []
    graph = helper.make_graph(
        nodes,
        "highway",
        [value("x", batch, inputs), *lever_inputs],
        [value("logits", batch, classes), *hidden],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    gates = tuple(
        Gate(
            name=name,
            layer=n,
            kind="coupled",
            carry="identity",
            output=f"layer{n:02}.output",
            unit_axis=-1,
            units=units,
            levers=(Lever(tensor=f"layers.{n}.gate.bias", start=0, stop=units, sign=1),) if levers else (),
        )
        for n, name in enumerate(names)
    )
    return Gated(model.SerializeToString(), gates, weights)
