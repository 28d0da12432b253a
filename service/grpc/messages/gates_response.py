"""Encodes the answers of GateService: statistics of gates, and the effects of lesions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from turnpike.service.artifact.datatypes import DATATYPE_BY_DTYPE
from turnpike.service.artifact.manifest import Gate
from turnpike.service.errors import expect_finite
from turnpike.service.gates.answers import (
    GATE_FIELDS,
    CurveAnswer,
    GatesAnswer,
    LesionAnswer,
    RunStatistics,
)
from turnpike.service.grpc.messages.descriptors import message_class
from turnpike.service.grpc.messages.infer_response import fill_response
from turnpike.service.inference_types import Array

ReadGatesResponse = message_class("turnpike.v1.ReadGatesResponse")
LesionResponse = message_class("turnpike.v1.LesionResponse")
LesionCurveResponse = message_class("turnpike.v1.LesionCurveResponse")


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


def encode_lesion(answer: LesionAnswer | CurveAnswer, request_id: bytes) -> bytes:
    """The answer of Lesion or LesionCurve."""
    if isinstance(answer, LesionAnswer):
        message = LesionResponse(lesion=answer.lesion)
        fill_response(message.lesioned, answer.lesioned)
    else:
        message = LesionCurveResponse(curve=answer.curve)
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
        if not statistics.has_rows:
            route = {"per": statistics.per, "layers": self._layers}
            return [ReadGatesResponse(gates=self._fields, route=route) for _ in statistics.table]
        columns = (statistics.carried, statistics.effective_depth, statistics.longest_closed)
        routes = zip(*map(_decimals, columns), strict=True)
        return [
            ReadGatesResponse(
                gates=[self._gate(fields, row) for fields, row in zip(self._fields, table, strict=True)],
                route={
                    "per": statistics.per,
                    "layers": self._layers,
                    "carried": carried,
                    "effective_depth": depth,
                    "longest_closed": longest,
                },
            )
            if table is not None
            else statistics.not_finite_error(index, self._gates)
            for index, (table, (carried, depth, longest)) in enumerate(
                zip(map(_rounded, statistics.table), routes, strict=True)
            )
        ]

    def _gate(self, fields: dict[str, Any], row: Sequence[float]) -> dict[str, Any]:
        mean, sd, *quantiles, closed, opened, carried = row
        return {
            **fields,
            "mean": mean,
            "sd": sd,
            "quantiles": dict(zip(self._levels, quantiles, strict=True)),
            "closed": closed,
            "open": opened,
            "carried": carried,
        }


def _rounded(table: Array) -> list[list[float]] | None:
    """The statistics of one request: with six decimals, as in JSON, if all are from 0 to 1; None with NaN."""
    if not np.isfinite(table).all():
        return None
    if np.signbit(table).any() or table.max() > 1:
        return _decimals(table)
    rounded: list[list[float]] = (np.rint(table * np.float32(1e6)).astype(np.float64) / 1e6).tolist()
    return rounded


def _decimals(values: Array) -> list[list[float]]:
    """The doubles with the decimals of these float32 numbers: 0.1 and not 0.10000000149."""
    numbers: list[list[float | None]] = orjson.loads(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))
    return [[number for number in row if number is not None] for row in numbers]
