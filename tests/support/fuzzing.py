"""Mutation fuzzing of a decoder: valid inputs are changed at random, and only declared errors may be raised.

An input whose outcome is new (another message, apart from numbers and quoted text) joins the inputs that are
changed, so that changes add up and reach checks that one change alone does not.

By default each decoder gets a fixed number of inputs, always the same ones. With the variable FUZZ_SECONDS it
gets new ones for this time.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

# CPU seconds that one input may take; on a loaded machine each takes several times as long as alone
MAX_SECONDS = 2.0
# one input of so many is decoded while memory is traced, and each whose outcome is new
TRACED_SHARE = 16
# inputs that are changed further
MAX_POOL = 400
MAX_INPUT_BYTES = 1 << 16
# a place that says nothing about the kind of outcome
DETAILS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[-+]?\d[\d.e+-]*")

INTEGERS = (
    0,
    1,
    -1,
    2,
    7,
    127,
    128,
    255,
    256,
    65535,
    2**31 - 1,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
)
JSON_VALUES: tuple[Any, ...] = (
    *INTEGERS,
    *(None, True, False, 0.5, -0.0, 1e308, 5e-324, "", "x", "\0", "\ud800", "ü" * 50, "9" * 400),
    *([], {}, [[]], [0], {"x": 0}, [None], [[[1], 2]], [True, 1.5, "a"]),
)
BYTE_TOKENS = (
    b"",
    b"\0",
    b"\xff",
    b"\x80",
    b"\n",
    b"\r\n",
    b" ",
    b'"',
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b"-",
)


class FuzzError(AssertionError):
    """A decoder raised an error that is not declared, took too long, or took too much memory."""


@dataclass(frozen=True)
class Decoder:
    """A function that reads bytes from outside.

    Arguments:
        decode: reads an input, and compares what it read with a simpler reader
        seeds: valid inputs
        errors: what it may raise
        tokens: byte strings that mean something to it
        restructure: a change that keeps the format valid, such as that of one JSON value
        memory: bytes it may take for each byte of input, and in addition
        inputs: number of inputs by default
    """

    decode: Callable[[bytes], object]
    seeds: Sequence[bytes]
    errors: tuple[type[Exception], ...]
    tokens: Sequence[bytes] = ()
    restructure: Callable[[bytes, random.Random], bytes] | None = None
    memory: tuple[int, int] = (64, 2 << 20)
    inputs: int = 1000


@dataclass
class Findings:
    """How many inputs were accepted and refused, and each kind of refusal with its number."""

    accepted: int = 0
    refused: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def inputs(self) -> int:
        return self.accepted + self.refused


def fuzz(
    decoder: Decoder, *, inputs: int | None = None, seconds: float | None = None, seed: int = 0
) -> Findings:
    """Decode changed inputs; raises FuzzError with the input.

    Arguments:
        decoder: the decoder, whose seeds must all be accepted
        inputs: number of inputs, by default that of the decoder
        seconds: time that replaces the number
        seed: of the random numbers
    """
    draw = random.Random(seed)
    count = decoder.inputs if inputs is None else inputs
    findings = Findings()
    for valid in decoder.seeds:
        if (outcome := _outcome(decoder, valid, traced=True)) != "accepted":
            raise FuzzError(f"expected a valid input to be accepted, got {outcome}: {valid[:500]!r}")
    pool = list(decoder.seeds)
    end = None if seconds is None else time.monotonic() + seconds
    while findings.inputs < count if end is None else time.monotonic() < end:
        data = draw.choice(pool)
        for _ in range(draw.choice((1, 1, 1, 2, 4))):
            data = mutate(data, decoder, pool, draw)
        outcome = _outcome(decoder, data, traced=draw.randrange(TRACED_SHARE) == 0)
        if outcome == "accepted":
            findings.accepted += 1
            # a change that is accepted may make another one possible
            is_new = draw.random() < 0.02
        else:
            findings.refused += 1
            is_new = outcome not in findings.outcomes
            if is_new:
                _outcome(decoder, data, traced=True)
        findings.outcomes[outcome] += 1
        if is_new:
            if len(pool) >= MAX_POOL:
                pool.pop(draw.randrange(len(decoder.seeds), len(pool)))
            pool.append(data)
    return findings


def _outcome(decoder: Decoder, data: bytes, *, traced: bool) -> str:
    """What the decoder says of an input, without details."""
    if traced:
        tracemalloc.start()
    start = time.thread_time()
    try:
        decoder.decode(data)
    except decoder.errors as error:
        outcome = f"{type(error).__name__}: {DETAILS.sub('_', str(error))[:160]}"
    except Exception as error:
        raise FuzzError(f"expected a declared error, got {error!r} for {data[:2000]!r}") from error
    else:
        outcome = "accepted"
    finally:
        seconds = time.thread_time() - start
        peak = tracemalloc.get_traced_memory()[1] if traced else 0
        tracemalloc.stop()
    # tracing makes a decoder several times slower
    if seconds > MAX_SECONDS * (4 if traced else 1):
        raise FuzzError(
            f"expected an answer within {MAX_SECONDS} s, got one after {seconds:.1f} s: {data[:2000]!r}"
        )
    factor, base = decoder.memory
    if peak > factor * len(data) + base:
        raise FuzzError(
            f"expected at most {factor} times {len(data)} + {base} bytes, got {peak}: {data[:2000]!r}"
        )
    return outcome


def check(decoder: Decoder) -> Findings:
    """Fuzz for as long as the environment says; both outcomes must occur."""
    seconds = os.environ.get("FUZZ_SECONDS")
    seed = 0 if seconds is None else random.SystemRandom().randrange(1 << 32)
    findings = fuzz(decoder, seconds=None if seconds is None else float(seconds), seed=seed)
    sys.stdout.write(
        f"{findings.inputs:,} inputs, {findings.accepted:,} accepted, {len(findings.outcomes)} outcomes, "
        f"seed {seed}\n"
    )
    assert findings.accepted, "expected some inputs to be accepted"
    assert findings.refused, "expected some inputs to be refused"
    return findings


# ---- changes


def mutate(data: bytes, decoder: Decoder, pool: Sequence[bytes], draw: random.Random) -> bytes:
    """The input with one change."""
    if decoder.restructure is not None and draw.random() < 0.5:
        return decoder.restructure(data, draw)[:MAX_INPUT_BYTES]
    start = draw.randrange(len(data) + 1)
    stop = min(len(data), start + draw.choice((0, 0, 1, 1, 2, 4, 8, 64)))
    changes: list[Callable[[], bytes]] = [
        lambda: draw.choice(BYTE_TOKENS),
        lambda: draw.choice(decoder.tokens or BYTE_TOKENS),
        lambda: bytes(byte ^ (1 << draw.randrange(8)) for byte in data[start:stop]),
        lambda: draw.randbytes(stop - start or 1),
        lambda: b"",
        lambda: data[start:stop] * draw.choice((2, 3, 50)),
        lambda: str(draw.choice(INTEGERS)).encode(),
        lambda: _piece(draw.choice(pool), draw),
    ]
    change = draw.randrange(len(changes) + 2)
    if change < len(changes):
        return (data[:start] + changes[change]() + data[stop:])[:MAX_INPUT_BYTES]
    if change == len(changes):
        return data[:start]
    numbers = list(re.finditer(rb"\d+", data))
    if not numbers:
        return data
    number = draw.choice(numbers)
    value = draw.choice((*INTEGERS, int(number[0][:20]) + draw.choice((-1, 1))))
    return (data[: number.start()] + str(value).encode() + data[number.end() :])[:MAX_INPUT_BYTES]


def _piece(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data) + 1)
    return data[start : start + draw.choice((1, 8, 64, 1000))]


def mutate_json(text: bytes, draw: random.Random) -> bytes:
    """JSON with one value replaced, removed, repeated, nested or moved; other text stays as it is."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text
    # as a list of one value, the document itself can be replaced as well
    root: list[Any] = [document]
    container, key = draw.choice(list(_places(root)))
    value = container[key]
    change = draw.randrange(6)
    if change == 0 and container is not root:
        del container[key]
    elif change == 1:
        container[key] = [value] if draw.random() < 0.5 else {"x": value}
    elif change == 2 and isinstance(container, list) and container is not root:
        container.insert(key, value)
    elif change == 3 and isinstance(container, dict):
        container[draw.choice((*container, "x", "name", "parameters"))] = value
    elif change == 4:
        other, place = draw.choice(list(_places(root)))
        # a value within itself would have no end
        container[key] = json.loads(json.dumps(other[place]))
    else:
        container[key] = draw.choice(JSON_VALUES)
    return json.dumps(root[0]).encode()


def _places(container: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value in a JSON document: a list or dict, and an index or key."""
    for key in range(len(container)) if isinstance(container, list) else list(container):
        yield container, key
        if isinstance(container[key], list | dict):
            yield from _places(container[key])


def cut(data: bytes, draw: random.Random) -> list[bytes]:
    """The data in up to eight pieces."""
    places = sorted({0, len(data), *(draw.randrange(len(data) + 1) for _ in range(draw.randrange(8)))})
    return [data[start:stop] for start, stop in itertools.pairwise(places)]
