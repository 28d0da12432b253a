"""Encodes the answers to requests for gates and lesions in JSON, with binary tensors after it if requested.

docs/reference/gates.md describes these responses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import orjson

from turnpike.service.artifact.manifest import Gate
from turnpike.service.codec.infer_response import (
    Buffer,
    JsonAnswers,
    assemble,
    infer_entry,
    tensor_entry,
    to_text,
    with_tail,
)
from turnpike.service.errors import NotFiniteError, expect_finite
from turnpike.service.gates.answers import GATE_FIELDS, GatesAnswer, LesionAnswer, RunStatistics
from turnpike.service.gates.reader import GateReader
from turnpike.service.inference_types import Array

# the members of an infer response without its closing brace, and a summary
WITH_SUMMARY = b'%b,"gates":%b,"route":%b}'
ROUTE = b'{"per":"%b","layers":%d,"carried":[%%b],"effective_depth":[%%b],"longest_closed":[%%b]}'

# words of four bytes of JSON text, see JsonTemplate
WORD = np.dtype(np.uint32)
# the first four bytes of a number ("0.00" to "1.00") by its hundredths, and the last four by the rest
FIRST_WORDS = np.frombuffer(b"".join([b"%d.%02d" % divmod(n, 100) for n in range(101)]), WORD)
LAST_WORDS = np.frombuffer(b"".join([b"%04d" % n for n in range(10_000)]), WORD)
EMPTY_SLOT = b" " * 8
ONE_BITS = np.float32(1).view(np.uint32)

# `gates` and `route` of a request in JSON
JsonSummary = tuple[bytes, bytes]


def encode_gates(answer: GatesAnswer[JsonSummary], *, binary: bool) -> tuple[bytes, int | None]:
    """Encode the answer to a request for gates, with its `tensors` in JSON or as bytes; see `assemble`."""
    tail: list[Buffer] = []
    outputs = to_text(infer_entry(answer.infer, tail))
    text = WITH_SUMMARY % (outputs[:-1], *expect_finite(answer.summary))
    if answer.tensors:
        entries = [tensor_entry(name, array, tail, binary=binary) for name, array in answer.tensors]
        text = b"%b,%b" % (text[:-1], to_text({"tensors": entries})[1:])
    return with_tail(text, tail)


def encode_lesion(answer: LesionAnswer) -> tuple[bytes, int | None]:
    """Encode the answer to a request for a lesion; the tensors with the lesion follow those without."""
    tail: list[Buffer] = []
    head = infer_entry(answer.infer, tail)
    if answer.lesioned is None:
        head["curve"] = answer.effect
    else:
        head |= {"lesion": answer.effect, "lesioned": infer_entry(answer.lesioned, tail)}
    return assemble(head, tail)


class JsonGatesAnswers:
    """Writes answers with a tensor in JSON and a summary of the gates: an `OutputProcessor`."""

    def __init__(self, answers: JsonAnswers, gates: GateReader[JsonSummary]) -> None:
        self._answers, self._gates = answers, gates
        self.output_names = tuple(dict.fromkeys(answers.output_names + gates.output_names))

    def process(self, arrays: Mapping[str, Array], rows: int, requests: int) -> list[bytes | NotFiniteError]:
        """The answer to each request, or the error that takes its place."""
        bodies = self._answers.process(arrays, rows, requests)
        summaries = self._gates.process(arrays, rows, requests)
        return [
            body
            if isinstance(body, NotFiniteError)
            else summary
            if isinstance(summary, NotFiniteError)
            else WITH_SUMMARY % (body[:-1], *summary)
            for body, summary in zip(bodies, summaries, strict=True)
        ]


class JsonSummaries:
    """Writes the summaries of all requests of a run."""

    def __init__(self, gates: Sequence[Gate], levels: Sequence[float]) -> None:
        self._gates = gates
        self._template = _gates_template(gates, levels)
        self._nulls = self._template.render_text([b"null"] * len(gates) * (5 + len(levels)))
        layers = len({(gate.layer, gate.depth) for gate in gates})
        self._routes = {per: ROUTE % (per.encode(), layers) for per in ("row", "request")}

    def __call__(self, statistics: RunStatistics) -> list[JsonSummary | NotFiniteError]:
        """`gates` and `route` of each request, or the error that takes their place."""
        requests = len(statistics.table)
        texts = (
            self._template.render(statistics.table.reshape(requests, -1))
            if statistics.has_rows
            else [self._nulls] * requests
        )
        columns = (statistics.carried, statistics.effective_depth, statistics.longest_closed)
        routes = orjson.dumps(columns, option=orjson.OPT_SERIALIZE_NUMPY)
        # cut the JSON of three lists of lists into three texts for each request
        carried, depths, longest = [part.split(b"],[") for part in routes[3:-3].split(b"]],[[")]
        route = self._routes[statistics.per]
        return [
            statistics.not_finite_error(index, self._gates)
            if text is None
            else (text, route % (carried[index], depths[index], longest[index]))
            for index, text in enumerate(texts)
        ]


def _gates_template(gates: Sequence[Gate], levels: Sequence[float]) -> JsonTemplate:
    """The JSON list of the gates, with slots for mean, sd, quantiles, closed, open and carried of each."""
    pieces: list[str] = []
    before = "["
    for gate in gates:
        fields = gate.model_dump(include=GATE_FIELDS, exclude_none=True)
        pieces.append(f'{before}{json.dumps(fields, separators=(",", ":"))[:-1]},"mean":')
        pieces.append(',"sd":')
        opening = ',"quantiles":{'
        for level in levels:
            pieces.append(f'{opening}"{level:g}":')
            opening = ","
        pieces += ['},"closed":', ',"open":', ',"carried":']
        before = "},"
    return JsonTemplate([piece.encode() for piece in (*pieces, "}]")])


class JsonTemplate:
    """JSON text with slots for numbers from 0 to 1, filled in for many requests at once by table lookup.

    A number has six decimals, so it takes eight bytes: two words of four bytes, each of which is looked up
    in a table for all numbers in one call to NumPy. For the gates of 20 layers (240 numbers) this takes 10 µs
    for one request and 1.4 µs a request for 64 of them. Building the objects and writing them with orjson
    takes 19 µs for each.

    `pieces` are the texts before, between and after the numbers.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._format = b"%b".join([piece.replace(b"%", b"%%") for piece in pieces])
        # The same text as words of four bytes. Spaces, which mean nothing in JSON, align the slots to words.
        text, slots = b"", []
        for piece in pieces[:-1]:
            text = _pad_to_words(text + piece)
            slots.append(len(text) // WORD.itemsize)
            text += EMPTY_SLOT
        self._words = np.frombuffer(_pad_to_words(text + pieces[-1]), WORD)
        self._slots = np.array(slots, np.intp)

    def render(self, table: Array) -> list[bytes | None]:
        """The text for each row of float32 numbers; None for a row with NaN or Inf.

        A row with numbers outside of 0 to 1 gets them with as many digits as they need.
        """
        # read as an unsigned integer, every other float32 (negative, NaN, Inf) is greater than 1.0 is
        if np.maximum.reduce(table.view(np.uint32), axis=None) <= ONE_BITS:
            return [text.tobytes() for text in self._look_up(table)]
        if len(table) > 1:
            return [self.render(row[None])[0] for row in table]
        if not np.isfinite(table).all():
            return [None]
        return [self.render_text(orjson.dumps(table[0], option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b","))]

    def render_text(self, numbers: Sequence[bytes]) -> bytes:
        """The text with numbers that are text already."""
        return self._format % tuple(numbers)

    def _look_up(self, table: Array) -> Array:
        rest = np.rint(table * np.float32(1e6)).astype(np.int64)
        hundredths = rest // len(LAST_WORDS)
        rest -= hundredths * len(LAST_WORDS)
        words = np.empty((len(table), len(self._words)), WORD)
        words[:] = self._words
        words[:, self._slots] = FIRST_WORDS.take(hundredths)
        words[:, self._slots + 1] = LAST_WORDS.take(rest)
        return words


def _pad_to_words(text: bytes) -> bytes:
    return text + b" " * (-len(text) % WORD.itemsize)
