"""How much of the gates a caller wants to have, how large that is, and the tensors it comes to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, cast
from urllib.parse import parse_qsl

import numpy as np

from service.artifact.manifest import Gate
from service.artifact.runtime import Signature
from service.errors import RequestError, TooLargeError
from service.gates.reader import unit_figures
from service.inference_types import Array, InferenceRequest

Level = Literal["summary", "units", "rows"]
LEVELS = ("summary", "units", "rows")
FLAGS = {"true": True, "1": True, "false": False, "0": False}
# how many times as long as its bytes a number is in JSON
JSON_TIMES = 3


@dataclass(frozen=True, slots=True)
class GateQuery:
    """What comes beside the summary: the figures of `units` or T of all `rows`, and the layers' outputs."""

    detail: Level = "summary"
    blocks: bool = False
    binary: bool = False


SUMMARY = GateQuery()


def parse_gate_query(query: bytes, parameters: Mapping[str, Any]) -> GateQuery:
    """What the address asks for and, where they say otherwise, the request's own parameters."""
    if not query and not parameters:
        return SUMMARY
    asked: dict[str, Any] = {}
    for name, text in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in ("detail", "blocks", "binary"):
            raise RequestError(f"query: expected detail, blocks or binary, got {name[:40]!r}")
        asked[name] = text if name == "detail" else FLAGS.get(text, text)
    asked |= {name: parameters[name] for name in ("detail", "blocks", "binary") if name in parameters}
    if "binary_data_output" in parameters:
        asked.setdefault("binary", parameters["binary_data_output"])
    much = asked.get("detail", "summary")
    if much not in LEVELS:
        raise RequestError(f"detail: expected one of {', '.join(LEVELS)}, got {str(much)[:40]!r}")
    for name in ("blocks", "binary"):
        if not isinstance(asked.get(name, False), bool):
            raise RequestError(f"{name}: expected true or false, got {str(asked[name])[:40]!r}")
    return GateQuery(cast("Level", much), asked.get("blocks", False), asked.get("binary", False))


def block_names(gates: Iterable[Gate]) -> tuple[str, ...]:
    """The layers' outputs, each once."""
    return tuple(dict.fromkeys(gate.output for gate in gates if gate.output is not None))


class OutputSizes:
    """How many bytes hidden outputs have on the rows of a request, as far as its inputs' shapes tell."""

    def __init__(self, names: Iterable[str], signature: Signature) -> None:
        places = {
            dim: (tensor.name, axis)
            for tensor in signature.inputs.values()
            for axis, dim in enumerate(tensor.dims)
            if isinstance(dim, str) and dim != "?"
        }
        # whether the shapes tell it of all
        self.is_exact = True
        self._parts: dict[tuple[tuple[str, int], ...], int] = {}
        for name in names:
            tensor = signature.hidden[name]
            # words and rows may share an axis, which is called "words*batch" then
            factors = [part for dim in tensor.dims for part in str(dim).split("*")]
            named = [part for part in factors if not part.isdigit()]
            if all(part in places for part in named):
                fixed = prod([int(part) for part in factors if part.isdigit()])
                key = tuple(places[part] for part in named)
                self._parts[key] = self._parts.get(key, 0) + fixed * np.dtype(tensor.dtype).itemsize
            else:
                self.is_exact = False

    def total_bytes(self, inference: InferenceRequest) -> int:
        feeds = inference.feeds
        total = 0
        for places, each in self._parts.items():
            size = each
            for name, axis in places:
                size *= feeds[name].shape[axis]
            total += size
        return total


def check_gate_output_size(inference: InferenceRequest, signature: Signature, limit: int) -> None:
    """Stop with TooLarge where the hidden outputs among those asked for are more than an answer may hold."""
    hidden = [wanted for wanted in inference.outputs if wanted.name in signature.hidden]
    if hidden:
        size = OutputSizes([wanted.name for wanted in hidden], signature).total_bytes(inference)
        if not all(wanted.binary for wanted in hidden):
            size *= JSON_TIMES
        if size > limit:
            raise TooLargeError(
                f"outputs: expected at most {limit} bytes of gates, and on these rows they are about {size}; "
                "ask with fewer rows or for fewer gates"
            )


def check_response_size(wish: GateQuery, size: int, limit: int) -> None:
    """Stop with TooLarge where gates of so many bytes are more than an answer may hold."""
    if (wish.detail == "rows" or wish.blocks) and not wish.binary:
        size *= JSON_TIMES
    if size > limit:
        raise TooLargeError(
            f"gates: expected at most {limit} bytes of them, and on these rows they are about {size}; "
            "ask with fewer rows" + (", or for detail=summary" if wish.detail == "rows" else "")
        )


def requested_tensors(
    wish: GateQuery, gates: Sequence[Gate], names: Iterable[str], arrays: Mapping[str, Array], rows: int
) -> list[tuple[str, Array]]:
    """The tensors that are asked for beside the summary, by name."""
    found: list[tuple[str, Array]] = []
    if wish.detail == "rows":
        found += [(name, arrays[name]) for name in names]
    elif wish.detail == "units" and rows:
        for gate in gates:
            mean, sd = unit_figures(gate, arrays[gate.name])
            found += [(f"{gate.name}.unit_mean", mean), (f"{gate.name}.unit_sd", sd)]
    if wish.blocks:
        found += [(name, arrays[name]) for name in block_names(gates)]
    return found
