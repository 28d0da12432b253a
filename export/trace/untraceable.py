"""Why a module has no honest graph, said in one line: the place in its code, and the remedy."""

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
from torch._dynamo.exc import UserError
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.nn.utils import rnn

from export.errors import ExportError, RequestError, UntraceableError

# code that no user wrote: PyTorch's, and this package's
TORCH_FOLDER = Path(torch.__file__).parent
PACKAGE_ROOT = Path(__file__).parents[1]

VIOLATED_DIMENSIONS = re.compile(r"Constraints violated \(([^)]*)\)")


@contextmanager
def explain_errors(names: list[str]) -> Iterator[None]:
    """Turn what stops the tracing in the block into an UntraceableError; `names` are dynamic dimensions."""
    asked: list[str] = []  # where the code made a condition of a dynamic dimension
    log_guard = ShapeEnv._log_guard

    def note(self: ShapeEnv, *args: Any, **kwargs: Any) -> None:
        asked.append(user_line(traceback.extract_stack()))
        log_guard(self, *args, **kwargs)

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise UntraceableError(
            f"{user_line(traceback.extract_stack())}: packed sequences have no graph: call the layer on the "
            "padded tensor, and mask what it answers"
        )

    with patch.object(ShapeEnv, "_log_guard", note), patch.object(rnn, "_packed_sequence_init", refuse):
        try:
            yield
        except ExportError:
            raise
        except Exception as error:
            if isinstance(error.__cause__, ExportError):  # as torch.onnx hands on what it met
                raise error.__cause__ from None
            raise UntraceableError(one_sentence(error, asked, names)) from error


def one_sentence(error: Exception, asked: list[str], names: list[str]) -> str:
    """One sentence for what torch.export met."""
    where = user_line(traceback.extract_tb(error.__traceback__))
    if isinstance(error, GuardOnDataDependentSymNode):
        return (
            f"{where}: the values of the data decide what is computed, and a graph computes the same for all "
            "rows: use torch.where, or keep the value a tensor instead of taking it as a Python number"
        )
    if isinstance(error, UserError) and (found := VIOLATED_DIMENSIONS.search(str(error))):
        dim = found[1].split(",")[0].strip()
        computed = "" if dim in names else " (a size computed from yours)"
        return (
            f"{next(filter(None, asked), where)}: the code works for some sizes of {dim!r}{computed} only "
            f"(a Python loop or condition over it, or a fixed shape): write it without, or give {dim!r} a "
            "number in --input"
        )
    text = " ".join(str(error).split())[:300] or type(error).__name__
    return f"{where}: PyTorch stopped at {type(error).__name__}: {text}"


def user_line(stack: traceback.StackSummary) -> str:
    """The innermost line that the user wrote: file, line, function and the code itself."""
    for frame in reversed(stack):
        path = Path(frame.filename)
        if (
            frame.filename.startswith("<")
            or path.is_relative_to(TORCH_FOLDER)
            or path.is_relative_to(PACKAGE_ROOT)
        ):
            continue
        if path.is_relative_to(sys.prefix) or path.is_relative_to(sys.base_prefix):
            continue
        if frame.name == "<module>":
            continue
        return f"{path.name}:{frame.lineno} in {frame.name}: {(frame.line or '').strip()}".rstrip(": ")
    return ""


def expect_stateless(program: ExportedProgram) -> None:
    """Stop with an UntraceableError where a run leaves something behind, or draws random numbers."""
    changed = next(iter(program.graph_signature.buffers_to_mutate.values()), None)
    for node in program.graph.nodes:
        if "batch_norm" in str(node.target) and changed:
            raise UntraceableError(
                f"{source_location(node)}batch norm in train mode takes its statistics from the other "
                "rows of the batch and keeps them: call eval() on the module, and let train(False) reach it"
            )
        if draws_random_numbers(node):
            raise UntraceableError(
                f"{source_location(node)}{node.target} draws random numbers, and a served answer must not: "
                "leave it out in eval mode, or make the numbers a buffer or an input"
            )
    if changed:
        raise UntraceableError(
            f"buffer {changed!r} is changed by forward, so that an answer would depend on those before it: "
            "leave buffers alone in eval mode"
        )


def draws_random_numbers(node: torch.fx.Node) -> bool:
    """Whether a node draws random numbers; those of dropout are drawn in train mode only."""
    operator = node.target
    if torch.Tag.nondeterministic_seeded not in getattr(operator, "tags", ()):
        return False
    schema = operator._schema.arguments  # type: ignore[union-attr]
    given = {one.name: one.default_value for one in schema if one.has_default_value()}
    given |= dict(zip((one.name for one in schema), node.args, strict=False)) | node.kwargs
    return given.get("train") is not False and given.get("dropout_p") != 0


def source_location(node: torch.fx.Node) -> str:
    """Where the user's code made a node, as the beginning of a sentence."""
    lines = str(node.meta.get("stack_trace") or "").splitlines()
    for at in range(len(lines) - 1, -1, -1):
        if found := re.match(r'\s*File "(.+)", line (\d+), in (\w+)', lines[at]):
            if Path(found[1]).is_relative_to(TORCH_FOLDER):
                continue
            code = lines[at + 1].strip() if at + 1 < len(lines) else ""
            return f"{Path(found[1]).name}:{found[2]} in {found[3]}: {code}: "
    return ""


def expect_opset(asked: int, made: int | None) -> None:
    """Stop with a RequestError where the exporter passed over the opset asked for."""
    if asked != made:
        raise RequestError(
            f"--opset: this exporter cannot write opset {asked}, it wrote {made}: leave it out"
        )
