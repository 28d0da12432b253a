"""Explains in one sentence why a module has no faithful graph: the line in the user's code, and what to do.

A faithful graph computes the same as the module for every input: its control flow does not depend on data,
and a run neither changes a buffer nor draws random numbers.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import fx
from torch._dynamo.exc import UserError
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.nn.utils import rnn
from torch.onnx._internal.exporter._errors import ConversionError, DispatchError

from turnpike.export.errors import ExportError, UntraceableError, UsageError, error_with_type

# code that is not the user's: PyTorch's, and this package's
TORCH_FOLDER = Path(torch.__file__).parent
PACKAGE_FOLDER = Path(__file__).parents[1]

# operators that run a function many times, whose steps the proof cannot follow
LOOP_OPERATORS = {
    "while_loop": "torch.while_loop",
    "scan": "scan",
    "map_impl": "map",
    "associative_scan": "associative_scan",
}
BAGS = (
    *(torch.ops.aten.embedding_bag.default, torch.ops.aten.embedding_bag.padding_idx),
    *(torch.ops.aten._embedding_bag.default, torch.ops.aten._embedding_bag_forward_only.default),
)
AVERAGE_POOLS = (torch.ops.aten.avg_pool2d.default, torch.ops.aten.avg_pool3d.default)
# of a linear layer: rows x values, and values x outputs
OTHER_WIDTH = re.compile(r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)")
VIOLATED_DIMENSIONS = re.compile(r"Constraints violated \(([^)]*)\)")


@contextmanager
def explain_errors(dims: list[str]) -> Iterator[None]:
    """Turn errors of tracing in the block into an UntraceableError; `dims` are the dynamic dimensions."""
    guard_lines: list[str] = []  # lines of user code that put a condition on a dynamic dimension
    log_guard = ShapeEnv._log_guard

    def record_guard(self: ShapeEnv, *args: Any, **kwargs: Any) -> None:
        guard_lines.append(user_line(traceback.extract_stack()))
        log_guard(self, *args, **kwargs)

    def reject_packed_sequence(*args: Any, **kwargs: Any) -> None:
        raise UntraceableError(
            f"{user_line(traceback.extract_stack())}packed sequences cannot be exported: call the layer on "
            "the padded tensor, and mask its output"
        )

    with (
        patch.object(ShapeEnv, "_log_guard", record_guard),
        patch.object(rnn, "_packed_sequence_init", reject_packed_sequence),
    ):
        try:
            yield
        except ExportError:
            raise
        except Exception as error:
            if isinstance(error.__cause__, ExportError):  # torch.onnx wraps errors that it meets
                raise error.__cause__ from None
            raise UntraceableError(one_sentence(error, guard_lines, dims)) from error


@contextmanager
def explain_conversion(program: ExportedProgram) -> Iterator[None]:
    """Turn errors of torch.onnx in the block into an UntraceableError that names operator and line."""
    try:
        yield
    except ConversionError as error:
        causes: list[BaseException] = [error]
        while causes[-1].__cause__ is not None:
            causes.append(causes[-1].__cause__)
        if any(isinstance(cause, ExportError) for cause in causes):
            raise
        where, operator = _place_of_conversion(program, causes)
        if isinstance(causes[-1], DispatchError):
            raise UntraceableError(
                f"{where}torch.onnx cannot translate the operator {operator}: compute it with others, or "
                "outside of the network"
            ) from error
        if "entirely functional graph" in str(causes[-1]):
            raise UntraceableError(
                f"{where}torch.onnx cannot translate a write into such a part of a tensor: write by an "
                "index, or use torch.where"
            ) from error
        what = f"the operator {operator}" if operator else "the program"
        raise UntraceableError(
            f"{where}torch.onnx failed to translate {what}: {error_with_type(causes[-1])}"
        ) from error


def _place_of_conversion(program: ExportedProgram, causes: list[BaseException]) -> tuple[str, str]:
    """The user's line that errors of torch.onnx are about, and the operator; empty if they are not known."""

    texts = "\n".join(map(str, causes))
    translated = re.search(r"translating node %(\w+) .*target=torch\.ops\.([\w.]+)", texts)
    if translated is not None:
        node = next((node for node in all_nodes(program) if node.name == translated[1]), None)
        return "" if node is None else source_location(node), translated[2]

    def stem(name: str) -> str:
        # a program that is made functional has nodes with other numbers
        return re.sub(r"_*\d*$", "", name)

    nodes = {stem(node.name): node for node in all_nodes(program)}
    named = (nodes[stem(name)] for name in re.findall(r"%(\w+)", str(causes[-1])) if stem(name) in nodes)
    return next(filter(None, map(source_location, named)), ""), ""


def one_sentence(error: Exception, guard_lines: list[str], dims: list[str]) -> str:
    """The sentence for an error of torch.export."""
    where = user_line(traceback.extract_tb(error.__traceback__))
    if isinstance(error, GuardOnDataDependentSymNode):
        return (
            f"{where}Python code depends on the values of the data, and a graph computes the same for all "
            "rows: use torch.where, or keep the value a tensor instead of converting it to a Python number"
        )
    if isinstance(error, UserError) and (match := VIOLATED_DIMENSIONS.search(str(error))):
        dim = match[1].split(",")[0].strip()
        computed = "" if dim in dims else " (a size computed from yours)"
        return (
            f"{next(filter(None, guard_lines), where)}the code works only for some sizes of {dim!r}"
            f"{computed} (a Python loop or condition over it, or a fixed shape): rewrite it, or give {dim!r} "
            "a number in --input"
        )
    if match := OTHER_WIDTH.search(str(error)):
        return (
            f"{where}a linear layer takes rows of {match[2]} values and got {match[1]}: "
            "expected other sizes in --input, or another layer"
        )
    return f"{where}PyTorch stopped at {error_with_type(error)}"


def user_line(stack: traceback.StackSummary) -> str:
    """The innermost line of user code in a stack, as the beginning of a sentence; empty without any."""
    for frame in reversed(stack):
        path = Path(frame.filename)
        if frame.filename.startswith("<"):
            continue
        if path.is_relative_to(TORCH_FOLDER) or path.is_relative_to(PACKAGE_FOLDER):
            continue
        if path.is_relative_to(sys.prefix) or path.is_relative_to(sys.base_prefix):
            continue
        if frame.name == "<module>":
            continue
        return code_place(frame.filename, frame.lineno, frame.name, frame.line)
    return ""


def code_place(file: str, line: object, function: str, code: str | None) -> str:
    """A line of code as the beginning of a sentence; its text may be unknown."""
    place = f"{Path(file).name}:{line} in {function}: "
    return f"{place}{code.strip()}: " if code and code.strip() else place


def expect_stateless(program: ExportedProgram) -> None:
    """Raise an UntraceableError if a run changes a buffer or draws random numbers."""
    changed = next(iter(program.graph_signature.buffers_to_mutate.values()), None)
    for node in program.graph.nodes:
        if "batch_norm" in str(node.target) and changed:
            raise UntraceableError(
                f"{source_location(node)}batch norm in train mode computes its statistics from the other "
                "rows of the batch and stores them: call eval() on the module, and let train(False) reach it"
            )
        if draws_random_numbers(node):
            raise UntraceableError(
                f"{source_location(node)}{node.target} draws random numbers, so predictions would change "
                "from call to call: leave it out in eval mode, or make the numbers a buffer or an input"
            )
    if changed:
        raise UntraceableError(
            f"buffer {changed!r} is changed by forward, so a prediction would depend on the ones before it: "
            "do not change buffers in eval mode"
        )


def expect_no_loop_operators(program: ExportedProgram) -> None:
    """Raise an UntraceableError if the code calls a loop operator, such as `torch.while_loop`."""
    for node in all_nodes(program):
        name = node.target.__name__ if isinstance(node.target, HigherOrderOperator) else ""
        if loop := LOOP_OPERATORS.get(name):
            raise UntraceableError(
                f"{source_location(node)}the operator {loop} cannot be exported: write a loop in Python over "
                "a fixed number of steps, which is unrolled, or compute all steps at once"
            )


def expect_exact_operators(program: ExportedProgram) -> None:
    """Raise an UntraceableError if torch.onnx would write another function than an operator computes."""
    for node in all_nodes(program):
        if node.target is torch.ops.aten.lstm.input:
            state, cell = (value.meta["val"].shape[-1] for value in node.args[1])  # type: ignore[union-attr]
            if state != cell:
                raise UntraceableError(
                    f"{source_location(node)}nn.LSTM{layer_name(node)} has a proj_size, and ONNX has no LSTM "
                    "with projections: use one without, or a loop over nn.LSTMCell and nn.Linear"
                )
        if node.target in BAGS:
            raise UntraceableError(
                f"{source_location(node)}nn.EmbeddingBag{layer_name(node)} cannot be exported, because "
                "torch.onnx writes an invalid graph of it: use nn.Embedding, and the sum "
                "or the mean of its rows"
            )
        if node.target is torch.ops.aten.scatter_reduce.two and named_arguments(node)["reduce"] == "mean":
            raise UntraceableError(
                f"{source_location(node)}torch.onnx writes scatter_reduce by mean without the mean: divide a "
                "scatter_add of the numbers by a scatter_add of ones"
            )
        if node.target in AVERAGE_POOLS and named_arguments(node)["divisor_override"] is not None:
            raise UntraceableError(
                f"{source_location(node)}the average pool{layer_name(node)} has a divisor_override, and ONNX "
                "has no such pool: omit it, and multiply the result by the kernel's size over the divisor"
            )


def layer_name(node: fx.Node) -> str:
    """The name of the innermost layer that made a node, after a space; empty if the network itself did."""
    path = next((path for path, _ in reversed((node.meta.get("nn_module_stack") or {}).values())), "")
    return f" {path}" if path else ""


def all_nodes(program: ExportedProgram) -> Iterator[fx.Node]:
    """The nodes of a program, and before them those in the branches of `torch.cond`."""
    graphs = [part.graph for part in program.graph_module.modules() if isinstance(part, fx.GraphModule)]
    return (node for graph in reversed(graphs) for node in graph.nodes)


def draws_random_numbers(node: fx.Node) -> bool:
    """Whether a node draws random numbers; dropout does so in train mode only."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    arguments = named_arguments(node)
    return arguments.get("train") is not False and arguments.get("dropout_p") != 0


def named_arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of an operator by their names in its schema, with the defaults of those not given."""
    parameters = node.target._schema.arguments  # type: ignore[union-attr]
    defaults = {
        parameter.name: parameter.default_value for parameter in parameters if parameter.has_default_value()
    }
    names = (parameter.name for parameter in parameters)
    return defaults | dict(zip(names, node.args, strict=False)) | node.kwargs


def source_location(node: fx.Node) -> str:
    """The line of user code that made a node, as the beginning of a sentence; empty if it is not known."""
    lines = str(node.meta.get("stack_trace") or "").splitlines()
    for number in range(len(lines) - 1, -1, -1):
        if match := re.match(r'\s*File "(.+)", line (\d+), in (\S+)', lines[number]):
            # torch generates code with a file name such as <eval_with_key>
            path = Path(match[1])
            if match[1].startswith("<") or any(map(path.is_relative_to, (TORCH_FOLDER, PACKAGE_FOLDER))):
                continue
            return code_place(match[1], match[2], match[3], "".join(lines[number + 1 : number + 2]))
    return ""


def expect_opset(requested: int, written: int | None) -> None:
    """Raise a UsageError if the exporter wrote another opset: it does so silently for some."""
    if requested != written:
        raise UsageError(
            f"--opset: this exporter cannot write opset {requested}, it wrote {written}: omit the option"
        )
