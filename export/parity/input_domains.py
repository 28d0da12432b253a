"""The numbers an input is drawn from: the range of ids a network knows, or the distribution of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Any

import numpy as np
import onnx_ir as ir

from turnpike.export.errors import SourceOptionError
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Array, Network
from turnpike.service.artifact.manifest import Feature

# operators that move ids or change their type, but not their values
VALUE_PRESERVING_OPS = frozenset(
    {
        *("Cast", "Clip", "Concat", "Expand", "Flatten", "Identity", "Pad"),
        *("Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    }
)


@dataclass(frozen=True)
class InputDomain:
    """Integers from `low` to `high` (included), or normal numbers with `mean` and standard deviation `sd`.

    `limits` are the lowest and the highest value of all batches, if the user gave a range. With `guessed`,
    nothing shows which integers the network takes. `columns` are those of a table with words, booleans, dates
    or blanks.
    """

    low: int = 0
    high: int = 1
    mean: Array | float = 0.0
    sd: Array | float = 1.0
    limits: tuple[float, float] | None = None
    guessed: bool = False
    columns: tuple[Feature, ...] = ()

    @property
    def codes(self) -> list[int]:
        """The columns whose numbers stand for words: another number, however close, is another word."""
        return [number for number, column in enumerate(self.columns) if column.kind == "category"]

    def within(self, low: float, high: float) -> InputDomain:
        """The part of the domain from `low` to `high`; numbers around the middle, if most are outside."""
        integers = replace(
            self, low=max(self.low, ceil(low)), high=min(self.high, floor(high)), limits=(low, high)
        )
        if np.all(np.subtract(self.mean, self.sd) >= low) and np.all(np.add(self.mean, self.sd) <= high):
            return integers
        return replace(integers, mean=(low + high) / 2, sd=(high - low) / 4)

    def clip(self, array: Array) -> Array:
        """The array with its numbers moved into the limits; a NaN stays."""
        return array if self.limits is None else array.clip(*self.limits).astype(array.dtype)

    def with_blanks(self, array: Array) -> Array:
        """Rows with blanks: all in the first row that may be, and in further rows every other one."""
        blanks = [number for number, column in enumerate(self.columns) if column.blanks]
        array = array.copy()
        for row in range(len(array)):
            array[row, [column for place, column in enumerate(blanks) if row == 0 or (place + row) % 2]] = (
                np.nan
            )
        return array

    def with_unseen_words(self, array: Array) -> Array:
        """Rows in which each word is one that was never seen."""
        array = array.copy()
        for number in self.codes:
            array[:, number] = int(self.columns[number].high) + 1
        return array

    def narrower(self) -> list[InputDomain]:
        """Narrower integer ranges to try, for a network that does not accept all of this one."""
        tops = {top for top in (127, 31, 7, 3, 1, 0) if self.low <= top < self.high}
        return [replace(self, high=top) for top in sorted(tops, reverse=True)]

    def draw(self, spec: InputSpec, sizes: dict[str, int], rng: np.random.Generator) -> Array:
        """Random values for an input, with the given sizes of its named dimensions."""
        shape = spec.shape(**sizes)
        dtype = np.dtype(spec.dtype)
        if dtype.kind == "f":
            values = np.asarray(self.mean + self.sd * rng.standard_normal(shape))
            for number, column in enumerate(self.columns):
                # the word after the last one was never seen
                highest = int(column.high) + 1 if column.kind == "category" else 1
                if column.kind in ("category", "boolean"):
                    values[:, number] = rng.integers(0, highest, len(values), endpoint=True)
            return self.clip(values.astype(dtype))
        return rng.integers(self.low, self.high, shape, endpoint=True).astype(dtype)


def input_domains(network: Network, model: ir.Model, graph_names: Sequence[str]) -> dict[str, InputDomain]:
    """The domain of every input, by name.

    Ids are drawn from the tables of `model`, which is exported from the network here: a file to be verified
    could hide its own. `graph_names` are the names of the inputs in that graph.
    """
    domains = {
        spec.name: _domain(spec, network, model, graph_name)
        for spec, graph_name in zip(network.inputs, graph_names, strict=True)
    }
    integers = {spec.name: spec.dtype for spec in network.inputs if np.dtype(spec.dtype).kind in "iu"}
    for name, (low, high) in network.ranges.items():
        rows = None if network.rows is None else network.rows.inputs.get(name)
        domains[name] = domains[name].within(low, high)
        if name in integers:
            # the whole range, also where a table ends earlier: the network must accept what is proved
            info = np.iinfo(integers[name])
            lowest = info.min if low <= info.min else ceil(low)
            highest = info.max if high >= info.max else floor(high)
            domains[name] = replace(domains[name], low=lowest, high=highest, guessed=False)
        if rows is not None and rows.size and not (np.nanmin(rows) >= low and np.nanmax(rows) <= high):
            raise SourceOptionError(
                f"--data: {name}: expected values from {low:g} to {high:g} (--input-range), "
                f"got {np.nanmin(rows):g} to {np.nanmax(rows):g}"
            )
        if domains[name].low > domains[name].high:
            raise SourceOptionError(
                f"--input-range: {name}: no number that it takes is from {low:g} to {high:g}"
            )
    return domains


def expect_accepted_ids(network: Network, accepted: Mapping[str, InputDomain], reason: str) -> None:
    """Raise a SourceOptionError if the user's range of an input has ids beyond those that are `accepted`."""
    for spec in network.inputs:
        if spec.name not in network.ranges or np.dtype(spec.dtype).kind not in "iu":
            continue
        (low, high), ids = network.ranges[spec.name], accepted[spec.name]
        if low < ids.low or high > ids.high:
            lowest = max(ids.low, ceil(low)) if ids.low <= low <= ids.high else ids.low
            highest = min(ids.high, floor(high)) if lowest <= high <= ids.high else ids.high
            raise SourceOptionError(
                f"--input-range: {spec.name}: the network does not accept values from {low:g} to {high:g} "
                f"({reason}); expected a range that it accepts, such as {spec.name}={lowest}:{highest}"
            )


def _domain(spec: InputSpec, network: Network, model: ir.Model, graph_name: str) -> InputDomain:
    rows = None if network.rows is None else network.rows.inputs.get(spec.name)
    kind = np.dtype(spec.dtype).kind
    if kind == "b":
        return InputDomain()
    if kind == "f":
        return _float_domain(spec, rows, network)
    values = {value.name: value for value in model.graph.inputs}
    accepted = accepted_ids(model, values[graph_name])
    if accepted is not None:
        low, high = max(accepted[0], np.iinfo(spec.dtype).min), accepted[1]
        return InputDomain(low if rows is None else min(low, int(rows.min())), high)
    if rows is not None and rows.size:
        return InputDomain(int(rows.min()), int(rows.max()))
    return InputDomain(0, 255 if spec.dtype == "uint8" else 1, guessed=True)


def recorded_columns(network: Network) -> tuple[Feature, ...]:
    """The columns of a table with words, booleans, dates or blanks, whose values are drawn as recorded."""
    columns = network.features
    is_plain = all(column.kind == "number" and not column.blanks for column in columns)
    return () if is_plain or network.inputs[0].dims[1:] != (len(columns),) else columns


def _float_domain(spec: InputSpec, rows: Array | None, network: Network) -> InputDomain:
    """The distribution of the rows; without rows, what the network's own scaling implies, or N(0, 1).

    That of a table's columns is recorded, if there are other ones than numbers without blanks.
    """
    columns = recorded_columns(network)
    if columns:
        return InputDomain(
            mean=np.array([column.mean for column in columns]),
            # vary cells that are constant in the data too, so that their weights are tested
            sd=np.array([column.sd or 1.0 for column in columns]),
            columns=columns,
        )
    if rows is not None and rows.size:
        numbers = rows.astype(np.float64)
        overall = float(numbers.std()) or 1.0
        if not all(isinstance(dim, int) for dim in spec.dims[1:]):
            return InputDomain(mean=float(numbers.mean()), sd=overall)
        sd = numbers.std(axis=0)
        # vary cells that are constant in the data too, so that their weights are tested
        return InputDomain(mean=numbers.mean(axis=0), sd=np.where(sd > 0, sd, overall))
    scaling = dict(network.module.named_buffers()) if network.module is not None else {}
    shift, scale = scaling.get("shift"), scaling.get("scale")
    if shift is None or scale is None or shift.numel() != 1 or scale.numel() != 1 or not scale.item():
        return InputDomain()
    return InputDomain(mean=float(shift.item()), sd=abs(1 / float(scale.item())))


def accepted_ids(model: ir.Model, value: ir.Value) -> tuple[int, int] | None:
    """The lowest and the highest id that all tables (embeddings) accept; None if these ids choose no row.

    A constant may be added to the ids on the way, or subtracted from them.
    """
    tables = model.graph.initializers
    ranges: list[tuple[int, int]] = []
    seen: set[Any] = set()
    # values that are the ids plus a number
    waiting = [(value, 0)]
    while waiting:
        current, offset = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for node, input_index in current.uses():
            size = None
            if node.op_type in ("Gather", "GatherElements") and input_index == 1:
                table = node.inputs[0]
                if table is not None and table.name in tables and table.shape is not None:
                    size = table.shape[node.attributes.get_int("axis", 0)]
            elif node.op_type == "OneHot" and input_index == 0:
                size = _constant(node.inputs[1])
            elif node.op_type in ("Abs", "Mod"):
                # every id is accepted: those below the table's size show each row once
                waiting += [(output, offset) for output in node.outputs]
            elif (shift := _shift(node, input_index)) is not None:
                waiting += [(output, offset + shift) for output in node.outputs]
            elif node.op_type in VALUE_PRESERVING_OPS or (node.op_type == "Gather" and input_index == 0):
                waiting += [(output, offset) for output in node.outputs]
            if isinstance(size, int):
                ranges.append((-offset, size - 1 - offset))
    return (max(low for low, _ in ranges), min(high for _, high in ranges)) if ranges else None


def _shift(node: ir.Node, input_index: int) -> int | None:
    """What a node adds to its operand of this index; None if it does something else."""
    if node.op_type not in ("Add", "Sub") or (node.op_type == "Sub" and input_index == 1):
        return None
    number = _constant(node.inputs[1 - input_index])
    return -number if number is not None and node.op_type == "Sub" else number


def _constant(value: ir.Value | None) -> int | None:
    """The only number of a constant; None if it has another form."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return int(tensor.numpy().item()) if tensor is not None and tensor.size == 1 else None
