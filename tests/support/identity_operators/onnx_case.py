"""A case of ONNX operators: a small model with inputs, and what onnxruntime returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from onnx import ModelProto, helper, numpy_helper, parser

from tests.support.identity_operators.runs import Array, Interpreters

OPSET = 20
# the first IR version of the newest opset of the cases
IR_VERSION = 10
# onnxruntime computes in float32: sums of 20 numbers with rounding errors of 6e-8 of each
TOLERANCE = 2e-6


@dataclass(frozen=True)
class Known:
    """An input that is an initializer."""

    array: Array


@dataclass
class OnnxCase:
    """A model, and values of its inputs by name."""

    model: ModelProto
    inputs: Mapping[str, Array]

    @cached_property
    def expected(self) -> list[Array]:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        # the operators of the model, not those that the optimizer makes of them
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(
            self.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        results: list[Array] = session.run(None, dict(self.inputs))
        return results

    def run(self, interpreters: Interpreters, *, normalizes: bool = True) -> Any:
        algebra = interpreters.algebra(interpreters.reals(), normalizes=normalizes)
        model = ir.serde.deserialize_model(self.model)
        return interpreters.run_graph(
            model, algebra, interpreters.inputs(list(self.inputs.values()))
        ), algebra

    def difference(self, interpreters: Interpreters) -> str | None:
        """How the interpreter's outputs differ from onnxruntime's; None if they do not."""
        for normalizes in (True, False):
            run, algebra = self.run(interpreters, normalizes=normalizes)
            found = interpreters.difference(self.expected, list(run.outputs.values()), algebra, TOLERANCE)
            if found is not None:
                return found if normalizes else f"without normal forms: {found}"
        return None


class OnnxCases(dict[str, OnnxCase]):
    """Cases by name."""

    def node(
        self,
        name: str,
        operator: str,
        *inputs: Array | Known | None,
        outputs: int | Sequence[str] = 1,
        opset: int = OPSET,
        domain: str = "",
        **attributes: Any,
    ) -> None:
        """A model of one node. Inputs that are None are left out, as are outputs without a name."""
        names = ["" if value is None else f"x{number}" for number, value in enumerate(inputs)]
        results = [f"y{number}" for number in range(outputs)] if isinstance(outputs, int) else list(outputs)
        node = helper.make_node(operator, names, results, domain=domain, **attributes)
        given = {
            key: value for key, value in zip(names, inputs, strict=True) if isinstance(value, np.ndarray)
        }
        known = [
            numpy_helper.from_array(value.array, key)
            for key, value in zip(names, inputs, strict=True)
            if isinstance(value, Known)
        ]
        graph = helper.make_graph(
            [node],
            "case",
            [
                helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                for key, value in given.items()
            ],
            [helper.make_empty_tensor_value_info(key) for key in results if key],
            known,
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        self.model(name, helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION), given)

    def text(self, name: str, text: str, **inputs: Array) -> None:
        """A model in the language of onnx.parser, without its head."""
        head = f'<ir_version: {IR_VERSION}, opset_import: ["" : {OPSET}]>'
        self.model(name, parser.parse_model(f"{head}\n{text}"), inputs)

    def model(self, name: str, model: ModelProto, inputs: Mapping[str, Array]) -> None:
        assert name not in self, name
        self[name] = OnnxCase(model, inputs)


_generator = np.random.default_rng(0)


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return _generator.uniform(low, high, shape).astype(np.float32)


def integers(*shape: int, low: int = 0, high: int = 5) -> Array:
    return _generator.integers(low, high, shape, np.int64)


def booleans(*shape: int) -> Array:
    return _generator.random(shape) < 0.5


def known(*numbers: int) -> Known:
    """A vector of integers, such as axes or sizes."""
    return Known(np.array(numbers, np.int64))


def known_floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Known:
    return Known(floats(*shape, low=low, high=high))


def number(value: Any, dtype: Any = np.int64) -> Known:
    """A number without axes."""
    return Known(np.array(value, dtype))
