"""Decides whether the graph that onnxruntime makes of a file is the same function as the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from turnpike.export.graph_identity import draw_shapes, one_thread
from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import UndecidedError
from turnpike.export.identity.decide import decide
from turnpike.export.identity.decision import Decision, InputShape, Verdict
from turnpike.export.identity.numbers.reals import Reals
from turnpike.export.identity.onnx.run_graph import run_graph
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Network
from turnpike.export.optimized.constants import ComputedConstant, explain_constants
from turnpike.export.optimized.normal_form import as_model, optimize, to_onnx
from turnpike.export.parity.batches import DimensionSizes, choose_sizes
from turnpike.service.artifact.runtime import Runtime, open_model

# names that a sentence lists
MAX_NAMES = 3
# a share of the largest number of an output: rounding of constants in float32 changes far less
VISIBLE = 1e-2


@dataclass(frozen=True)
class OptimizedGraph:
    """What onnxruntime makes of a file on this CPU, and whether it is the same function.

    Attributes:
        decision: Whether it is the file's function of every input and lever, up to the rounding of constants.
        before: The number of nodes of the file by their operators.
        after: The same of the optimized graph.
        constants: Constants that onnxruntime has computed, with their distance from the file's own.
    """

    decision: Decision
    before: Mapping[str, int]
    after: Mapping[str, int]
    constants: tuple[ComputedConstant, ...] = ()

    @property
    def ulps(self) -> float:
        """The largest distance of a constant, in units in the last place."""
        return max((constant.ulps for constant in self.constants), default=0.0)

    @property
    def verdict_text(self) -> str:
        """The verdict in words."""
        match self.decision.verdict:
            case Verdict.IDENTICAL:
                return "the same function of every input and lever as the file, in exact arithmetic"
            case Verdict.DIFFERENT:
                place = self.decision.first_difference
                names = ", ".join(self.decision.different[:MAX_NAMES])
                where = "" if place is None else f"; the first node that differs is {place}"
                return f"another function than the file: it differs in {names}{where}"
        return f"not decided: {self.decision.reason}"

    def lines(self) -> Iterator[str]:
        """The verdict, and how far constants are off."""
        yield self.verdict_text
        if self.constants:
            yield (
                f"{len(self.constants)} constants are computed before the first run, in float32: up to "
                f"{self.ulps:.2g} units in the last place from the file's own"
            )


def decide_optimized(
    data: bytes, disabled_optimizers: Sequence[str] = (), where: str = "model.onnx"
) -> OptimizedGraph:
    """Dump the graph that onnxruntime makes of a file, and decide whether it is the same function.

    Args:
        data: The content of the file.
        disabled_optimizers: Optimizers to leave out, beside those that the service never uses.
        where: Name of the file in error messages.

    Raises:
        ModelFileError: onnxruntime cannot open the file.
    """
    return decide_optimized_graph(data, optimize(data, tuple(disabled_optimizers), where))


def decide_optimized_graph(data: bytes, optimized: ir.Model) -> OptimizedGraph:
    """The same for a graph that onnxruntime has made of the file. The graph is changed."""
    file = as_model(data)
    before, after = _operators(file), _operators(optimized)
    to_onnx(optimized)
    runtime = open_model(data)
    levers = _free_levers(file)
    _free_levers(optimized)
    expected, actual = (
        [str(value.name) for value in graph.inputs] for graph in (file.graph, optimized.graph)
    )
    if expected != actual:
        reason = f"the optimized graph has the inputs {', '.join(actual)}, expected {', '.join(expected)}"
        return OptimizedGraph(Decision(Verdict.NOT_DECIDED, reason=reason), before, after)
    shapes = []
    for inputs in _shapes(runtime):
        by_name = dict(zip((tensor.name for tensor in runtime.inputs), inputs, strict=True)) | levers
        shapes.append([by_name[name] for name in expected])

    constants, unknown = explain_constants(file, optimized)
    result = OptimizedGraph(_decide(file, optimized, shapes, constants), before, after, tuple(constants))
    if result.decision.verdict is not Verdict.DIFFERENT:
        return result
    # a constant may be another expression than the nearest
    others, _ = explain_constants(file, optimized, prefer_joined=True)
    if [(c.name, c.value) for c in others] != [(c.name, c.value) for c in constants]:
        other = replace(result, decision=_decide(file, optimized, shapes, others), constants=tuple(others))
        if other.decision.verdict is Verdict.IDENTICAL:
            return other
    if unknown and not _differs_visibly(file, optimized, shapes[-1]):
        names = ", ".join(unknown[:MAX_NAMES])
        reason = f"nothing that the file computes has the numbers of these constants of the graph: {names}"
        return replace(result, decision=Decision(Verdict.NOT_DECIDED, reason=reason))
    return result


def _decide(
    file: ir.Model,
    optimized: ir.Model,
    shapes: Sequence[Sequence[InputShape]],
    constants: Sequence[ComputedConstant],
) -> Decision:
    expressions = {constant.name: constant.compute for constant in constants}
    with one_thread():
        return decide(file, optimized, shapes, constants=expressions)


def _differs_visibly(file: ir.Model, optimized: ir.Model, shapes: Sequence[InputShape]) -> bool:
    """Whether both have different outputs for random inputs, by more than any rounding of constants explains.

    Without it, a constant of unknown origin may be the file's own, rounded in a way that is not known here.
    """
    algebra = Algebra(Reals(), symbolic_sizes=False)
    generator = np.random.default_rng(0)
    inputs = [
        algebra.term(generator.standard_normal(shape.sizes).astype(shape.dtype))
        if shape.dtype.kind == "f"
        else algebra.term(np.zeros(shape.sizes, shape.dtype))
        for shape in shapes
    ]
    try:
        with np.errstate(all="ignore"):
            runs = [list(run_graph(model, algebra, inputs).outputs.values()) for model in (file, optimized)]
    except UndecidedError:
        return False
    for outputs in zip(*runs, strict=True):
        expected, actual = (algebra.term(value).data for value in outputs)
        if expected.shape != actual.shape:
            return True
        # a NaN is no difference that can be measured
        distance = np.abs(np.nan_to_num(expected - actual)).max(initial=0)
        if distance > VISIBLE * np.abs(np.nan_to_num(expected)).max(initial=0):
            return True
    return False


def _operators(model: ir.Model) -> Mapping[str, int]:
    """The number of nodes by operator, those inside loops too."""
    names = (
        node.op_type if not node.domain else f"{node.domain}.{node.op_type}"
        for node in model.graph.all_nodes()
    )
    return dict(sorted(Counter(names).items()))


def _free_levers(model: ir.Model) -> dict[str, InputShape]:
    """Make levers inputs without a default, and return their shapes: callers may override them."""
    graph = model.graph
    levers = {}
    for value in graph.inputs:
        name = str(value.name)
        if name in graph.initializers and value.const_value is not None:
            array = value.const_value.numpy()
            levers[name] = InputShape(array.dtype, array.shape)
            del graph.initializers[name]
            value.const_value = None
    return levers


def _shapes(runtime: Runtime) -> list[list[InputShape]]:
    """Shapes of the inputs for several numbers of rows."""
    sizes = fitting_sizes(runtime)
    return draw_shapes(sizes.inputs, sizes)


def fitting_sizes(runtime: Runtime) -> DimensionSizes:
    """Sizes of the inputs' dimensions that the file takes."""
    inputs = tuple(InputSpec(tensor.name, tensor.dtype, tensor.dims) for tensor in runtime.inputs)
    sizes = choose_sizes(Network("file", "onnx", inputs))
    return next((choice for choice in (sizes, *sizes.alternatives()) if _accepts(runtime, choice)), sizes)


def _accepts(runtime: Runtime, sizes: DimensionSizes) -> bool:
    dims = sizes.with_rows(1)
    try:
        runtime.run({spec.name: np.zeros(spec.shape(**dims), spec.dtype) for spec in sizes.inputs})
    except Exception:  # sizes that do not fit a layer
        return False
    return True
