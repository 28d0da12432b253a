"""Encodes the answers of GateService: statistics of gates, and the effects of lesions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from turnpike.common.datatypes import DATATYPE_BY_DTYPE
from turnpike.service.artifact.manifest import Gate
from turnpike.service.errors import expect_finite
from turnpike.service.gates.answers import GATE_FIELDS, GatesAnswer, LesionAnswer, RunStatistics
from turnpike.service.grpc.messages.descriptors import message_class
from turnpike.service.grpc.messages.infer_response import fill_response
from turnpike.service.inference_types import Array

ReadGatesResponse = message_class("turnpike.v1.ReadGatesResponse")
LesionResponse = message_class("turnpike.v1.LesionResponse")
LesionCurveResponse = message_class("turnpike.v1.LesionCurveResponse")
# the fields of a route that have a number for each row
ROUTE = ("carried", "effective_depth", "longest_closed")


def encode_gates(answer: GatesAnswer[Any], request_id: bytes) -> bytes:
    """The answer of ReadGates, whose summary is a message already."""
    message = expect_finite(answer.summary)
    for name, array in answer.tensors:
        message.tensors.add(
            name=name,
            datatype=DATATYPE_BY_DTYPE[array.dtype],
            shape=array.shape,
            raw_contents=array.tobytes(),
        )
    fill_response(message.infer, answer.infer)
    return _serialize(message, request_id)


def encode_lesion(answer: LesionAnswer, request_id: bytes) -> bytes:
    """The answer of Lesion or LesionCurve."""
    if answer.lesioned is None:
        message = LesionCurveResponse(curve=answer.effect)
    else:
        message = LesionResponse(lesion=answer.effect)
        fill_response(message.lesioned, answer.lesioned)
    fill_response(message.infer, answer.infer)
    return _serialize(message, request_id)


def _serialize(message: Any, request_id: bytes) -> bytes:
    message.infer.id = request_id.decode()
    data: bytes = message.SerializeToString()
    return data


class MessageSummaries:
    """Makes a ReadGatesResponse with `gates` and `route` for each request of a run."""

    def __init__(self, gates: Sequence[Gate], levels: Sequence[float]) -> None:
        self._gates = gates
        self._fields = [gate.model_dump(include=GATE_FIELDS, exclude_none=True) for gate in gates]
        self._levels = [f"{level:g}" for level in levels]
        self._layers = len({(gate.layer, gate.depth) for gate in gates})

    def __call__(self, statistics: RunStatistics) -> list[Any]:
        """The message for each request, or the error that takes its place."""
        columns = (statistics.carried, statistics.effective_depth, statistics.longest_closed)
        messages = []
        for index, route in enumerate(zip(*map(_decimals, columns), strict=True)):
            table = _rounded(statistics.table[index])
            if table is None:
                messages.append(statistics.not_finite_error(index, self._gates))
                continue
            # without rows, there are no numbers
            gates = list(map(self._gate, self._fields, table)) if table else self._fields
            fields = {"per": statistics.per, "layers": self._layers, **dict(zip(ROUTE, route, strict=True))}
            messages.append(ReadGatesResponse(gates=gates, route=fields))
        return messages

    def _gate(self, fields: dict[str, Any], numbers: Sequence[float]) -> dict[str, Any]:
        mean, sd, *quantiles, closed, opened, carried = numbers
        shares = {"closed": closed, "open": opened, "carried": carried}
        by_level = dict(zip(self._levels, quantiles, strict=True))
        return {**fields, "mean": mean, "sd": sd, "quantiles": by_level, **shares}


def _rounded(table: Array) -> list[list[float]] | None:
    """The statistics of one request: with six decimals, as in JSON, if all are from 0 to 1; None with NaN."""
    if not np.isfinite(table).all():
        return None
    if (np.signbit(table) | (table > 1)).any():
        return _decimals(table)
    rounded: list[list[float]] = (np.rint(table * np.float32(1e6)).astype(np.float64) / 1e6).tolist()
    return rounded


def _decimals(values: Array) -> list[list[float]]:
    """The doubles with the decimals of these float32 numbers: 0.1 and not 0.10000000149."""
    numbers: list[list[float | None]] = orjson.loads(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))
    return [[number for number in row if number is not None] for row in numbers]
