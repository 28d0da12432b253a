"""Options of the gates endpoint (detail, blocks, binary), the tensors they ask for, and their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, cast
from urllib.parse import parse_qsl

import numpy as np

from turnpike.service.artifact.manifest import Gate
from turnpike.service.artifact.signature import Signature
from turnpike.service.errors import RequestError, TooLargeError
from turnpike.service.gates.reader import unit_statistics
from turnpike.service.inference_types import Array, InferenceRequest

Detail = Literal["summary", "units", "rows"]
DETAILS = ("summary", "units", "rows")
OPTIONS = ("detail", "blocks", "binary")
FLAGS = {"true": True, "1": True, "false": False, "0": False}
# about how many times as long a number is in JSON as in bytes
JSON_EXPANSION = 3


@dataclass(frozen=True, slots=True)
class GateQuery:
    """The parts of a response beside the summary.

    `detail` "units" adds mean and deviation of each unit, "rows" adds T of every row; `blocks` adds the
    outputs of the layers. With `binary`, these tensors follow the JSON as bytes.
    """

    detail: Detail = "summary"
    blocks: bool = False
    binary: bool = False


SUMMARY = GateQuery()


def parse_gate_query(query: bytes, parameters: Mapping[str, Any]) -> GateQuery:
    """Parse the query string of the URL; the request's own parameters have precedence over it."""
    if not query and not parameters:
        return SUMMARY
    options: dict[str, Any] = {}
    for name, text in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in OPTIONS:
            raise RequestError(f"query: expected detail, blocks or binary, got {name[:40]!r}")
        options[name] = text if name == "detail" else FLAGS.get(text, text)
    options |= {name: parameters[name] for name in OPTIONS if name in parameters}
    if "binary_data_output" in parameters:
        options.setdefault("binary", parameters["binary_data_output"])
    detail = options.get("detail", "summary")
    if detail not in DETAILS:
        raise RequestError(f"detail: expected one of {', '.join(DETAILS)}, got {str(detail)[:40]!r}")
    for name in ("blocks", "binary"):
        if not isinstance(options.get(name, False), bool):
            raise RequestError(f"{name}: expected true or false, got {str(options[name])[:40]!r}")
    return GateQuery(cast("Detail", detail), options.get("blocks", False), options.get("binary", False))


def block_names(gates: Iterable[Gate]) -> tuple[str, ...]:
    """The names of the layers' outputs, each once."""
    return tuple(dict.fromkeys(gate.output for gate in gates if gate.output is not None))


class OutputSizes:
    """Sizes of hidden outputs in bytes, computed before the run from the shapes of a request's inputs."""

    def __init__(self, names: Iterable[str], signature: Signature) -> None:
        input_axes = {
            dim: (tensor.name, axis)
            for tensor in signature.inputs.values()
            for axis, dim in enumerate(tensor.dims)
            if isinstance(dim, str) and dim != "?"
        }
        # False if an output has a dimension that no input has: only a run can tell its size
        self.is_exact = True
        # (input, axis) of each varying dimension -> bytes of all outputs for one element along these
        self._bytes_by_axes: dict[tuple[tuple[str, int], ...], int] = {}
        for name in names:
            tensor = signature.hidden[name]
            # words and rows may share an axis, whose name is then a product such as "words*batch"
            factors = [factor for dim in tensor.dims for factor in str(dim).split("*")]
            varying = [factor for factor in factors if not factor.isdigit()]
            if all(factor in input_axes for factor in varying):
                fixed = prod([int(factor) for factor in factors if factor.isdigit()])
                axes = tuple(input_axes[factor] for factor in varying)
                size = fixed * np.dtype(tensor.dtype).itemsize
                self._bytes_by_axes[axes] = self._bytes_by_axes.get(axes, 0) + size
            else:
                self.is_exact = False

    def total_bytes(self, request: InferenceRequest) -> int:
        feeds = request.feeds
        total = 0
        for axes, element_bytes in self._bytes_by_axes.items():
            size = element_bytes
            for name, axis in axes:
                size *= feeds[name].shape[axis]
            total += size
        return total


def check_gate_output_size(request: InferenceRequest, signature: Signature, limit: int) -> None:
    """Raise TooLargeError if the hidden outputs that an infer request names take more than `limit` bytes."""
    hidden = [output for output in request.form.outputs if output.name in signature.hidden]
    if hidden:
        size = OutputSizes([output.name for output in hidden], signature).total_bytes(request)
        if not all(output.binary for output in hidden):
            size *= JSON_EXPANSION
        if size > limit:
            raise TooLargeError(
                f"outputs: expected at most {limit} bytes of gates (--max-gates), and on these rows they are "
                f"about {size}; ask with fewer rows or for fewer gates"
            )


def check_response_size(query: GateQuery, size: int, limit: int) -> None:
    """Raise TooLargeError if a response with `size` bytes of gates takes more than `limit` bytes."""
    if (query.detail == "rows" or query.blocks) and not query.binary:
        size *= JSON_EXPANSION
    if size > limit:
        raise TooLargeError(
            f"gates: expected at most {limit} bytes of them (--max-gates), and on these rows they are "
            f"about {size}; ask with fewer rows"
            + (", or for detail=summary" if query.detail == "rows" else "")
        )


def requested_tensors(
    query: GateQuery, gates: Sequence[Gate], names: Iterable[str], arrays: Mapping[str, Array], rows: int
) -> list[tuple[str, Array]]:
    """The tensors that a response has beside the summary, with their names.

    Args:
        query: Which tensors are wanted.
        gates: The model's gates.
        names: The gate tensors to return for `detail=rows`.
        arrays: The outputs of the run.
        rows: The rows of the request.
    """
    tensors: list[tuple[str, Array]] = []
    if query.detail == "rows":
        tensors += [(name, arrays[name]) for name in names]
    elif query.detail == "units" and rows:
        for gate in gates:
            mean, sd = unit_statistics(gate, arrays[gate.name])
            tensors += [(f"{gate.name}.unit_mean", mean), (f"{gate.name}.unit_sd", sd)]
    if query.blocks:
        tensors += [(name, arrays[name]) for name in block_names(gates)]
    return tensors
