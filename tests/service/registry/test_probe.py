"""Tests of the probe, on models with known behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from tests.support.tiny_highway import highway
from turnpike.service.artifact.runtime import Runtime
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.errors import RunError
from turnpike.service.registry.probe import ProbeResult, probe

Array = np.ndarray[Any, np.dtype[Any]]

X = Tensor("x", "float32", ("batch", 4))
WORDS = Tensor("x", "float32", ("batch", "words", 4))
Y = Tensor("y", "float32", ("batch", 3))


class FakeRuntime:
    """A runtime that computes outputs with the given functions."""

    def __init__(
        self,
        functions: Mapping[str, Callable[[Array], Array]],
        *,
        takes: Tensor = X,
        outputs: Sequence[Tensor] = (Y,),
        hidden: Sequence[Tensor] = (),
    ) -> None:
        self.inputs, self.outputs, self.hidden = (takes,), tuple(outputs), tuple(hidden)
        self.functions = functions
        self.ran: list[int] = []

    def run(self, feeds: Mapping[str, Array], names: Sequence[str] | None = None) -> list[Array]:
        self.ran.append(len(feeds["x"]))
        return [
            self.functions[name](feeds["x"])
            for name in ([tensor.name for tensor in self.outputs] if names is None else names)
        ]


def probe_model(runtime: FakeRuntime, batch: str | None = "batch", max_rows: int = 16) -> ProbeResult:
    return probe(cast("Runtime", runtime), batch, max_rows)


def plain(x: Array) -> Array:
    return np.asarray(x[..., :3] * np.float32(0.5))


def last_bit_changed(y: Array) -> Array:
    """The same values with another last bit."""
    return np.nextafter(y, np.float32(9))


STEADY = ProbeResult(
    ran=True,
    coupled=False,
    bit_stable=True,
    single_row_differs=False,
    splittable=frozenset({"y"}),
    distribution=False,
)


def test_independent_rows_can_be_batched() -> None:
    assert probe_model(FakeRuntime({"y": plain})) == STEADY


def test_a_highway_network_can_be_batched() -> None:
    runtime = highway().open()
    result = probe(runtime, "batch", 64)
    assert result.splittable == {tensor.name for tensor in (*runtime.outputs, *runtime.hidden)}
    assert result.ran
    assert not result.coupled


def test_single_rows_may_round_differently() -> None:
    """A kernel for single rows rounds differently. Rows of a batch are stable."""
    assert probe_model(
        FakeRuntime({"y": lambda x: last_bit_changed(plain(x)) if len(x) == 1 else plain(x)})
    ) == replace(STEADY, single_row_differs=True)


@pytest.mark.parametrize(
    "unsteady",
    [
        lambda x: last_bit_changed(plain(x)) if len(x) in (1, 2) else plain(x),
        lambda x: last_bit_changed(plain(x)) if len(x) % 2 else plain(x),
        lambda x: last_bit_changed(plain(x)) if len(x) >= 16 else plain(x),
        # by its place in the run
        lambda x: (
            np.concatenate([plain(x[:-1]), last_bit_changed(plain(x[-1:]))]) if len(x) > 1 else plain(x)
        ),
        lambda x: np.concatenate([last_bit_changed(plain(x[:1])), plain(x[1:])]) if len(x) > 1 else plain(x),
    ],
    ids=["a pair", "odd numbers", "many", "the last of a run", "the first of a run"],
)
def test_rounding_that_depends_on_the_batch_is_detected(unsteady: Callable[[Array], Array]) -> None:
    """Last bits may depend on the size of the batch or on the place in it."""
    result = probe_model(FakeRuntime({"y": unsteady}))
    assert not result.bit_stable
    assert not result.coupled
    assert result.splittable == {"y"}


def test_coupled_rows_are_detected() -> None:
    result = probe_model(FakeRuntime({"y": lambda x: plain(x - x.mean(0, keepdims=True))}))
    assert result.coupled
    assert result.splittable == frozenset()


def test_only_hidden_outputs_with_rows_first_are_splittable() -> None:
    """Words within rows may follow one another too."""
    hidden = {
        "by row": plain,
        "words in rows": lambda x: np.repeat(plain(x), 2, 0),
        "rows in words": lambda x: np.concatenate([plain(x), 2 * plain(x)]),
        "words first": lambda x: np.stack([plain(x), 2 * plain(x)]),
        "constant": lambda x: np.ones((1, 3), np.float32),
        "number": lambda x: np.ones((), np.float32),
        "as many as rows, whichever": lambda x: np.ones((6, 3), np.float32),
    }
    result = probe_model(
        FakeRuntime({"y": plain, **hidden}, hidden=[replace(Y, name=name, dims=("?",)) for name in hidden])
    )
    assert result.splittable == {"y", "by row", "words in rows"}
    assert not result.coupled
    assert result.bit_stable


def test_hidden_outputs_must_be_bit_stable() -> None:
    """Clients can request them by name."""
    result = probe_model(
        FakeRuntime(
            {"y": plain, "h": lambda x: last_bit_changed(plain(x)) if len(x) == 2 else plain(x)},
            hidden=[replace(Y, name="h")],
        )
    )
    assert not result.bit_stable


def test_rows_of_length_one_are_probed() -> None:
    """If clients choose the length, a row of length 1 takes the kernel for single rows."""
    result = probe_model(
        FakeRuntime(
            {"y": lambda x: last_bit_changed(plain(x)) if len(x) * x.shape[1] == 1 else plain(x)},
            takes=WORDS,
            outputs=[replace(Y, dims=("batch", "words", 3))],
        )
    )
    assert result.single_row_differs
    assert result.bit_stable


def test_valid_ids_and_lengths_are_searched() -> None:
    """The model has eight ids and a minimum length."""

    def embedded(x: Array) -> Array:
        if x.max() >= 8 or x.min() < 0 or x.shape[1] < 20:
            raise RunError("index out of bounds")
        return np.take(np.eye(8, dtype=np.float32), x[:, 0], 0)

    result = probe_model(FakeRuntime({"y": embedded}, takes=Tensor("x", "int64", ("batch", "words"))))
    assert result.ran
    assert result.splittable == {"y"}


def test_a_table_of_one_row_is_probed() -> None:
    """The only valid index is 0."""

    def first(x: Array) -> Array:
        if x.any():
            raise RunError("index out of bounds")
        return x.astype(np.float32)

    assert probe_model(FakeRuntime({"y": first}, takes=Tensor("x", "int64", ("batch", "words")))).ran


@pytest.mark.parametrize("length", [8, 16, 32, 64, 128, 224])
def test_models_of_one_usual_length_are_probed(length: int) -> None:
    """The file does not say which length its graph needs."""

    def fixed(x: Array) -> Array:
        if x.shape[1] != length:
            raise RunError("shapes do not fit")
        return plain(x[:, 0])

    assert probe_model(FakeRuntime({"y": fixed}, takes=WORDS)).ran


def test_a_model_that_refuses_all_rows_did_not_run() -> None:

    def never(x: Array) -> Array:
        raise RunError("no")

    assert probe_model(FakeRuntime({"y": never})) == ProbeResult(ran=False)


@pytest.mark.parametrize("rows", [2, 8])
def test_without_a_batch_dimension_the_model_takes_all_its_rows(rows: int) -> None:
    """The run warms the model up."""
    runtime = FakeRuntime({"y": plain}, takes=Tensor("x", "float32", (rows, 4)))
    assert probe_model(runtime, None) == ProbeResult(ran=True, distribution=False)
    assert set(runtime.ran) == {rows}


def test_the_largest_batch_is_probed() -> None:
    runtime = FakeRuntime({"y": plain})
    probe_model(runtime, max_rows=64)
    assert max(runtime.ran) == 64
    assert {1, 2, 3, 8, 64} <= set(runtime.ran)


def test_equal_nan_outputs_are_stable() -> None:
    assert probe_model(FakeRuntime({"y": lambda x: plain(x) * np.float32("nan")})).bit_stable


@pytest.mark.parametrize(
    ("answer", "distribution"),
    [
        (lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True), True),
        (lambda x: x, False),
        (lambda x: x[:, :2], False),
        (lambda x: np.stack([x[:, 0] > 0, x[:, 0] <= 0], 1).astype(np.float32), True),
        (lambda x: x - x.mean(1, keepdims=True) + 1 / 4, False),  # sums to 1, and goes below 0
        (lambda x: x[:, :1], None),
        (lambda x: x[:, 0], None),
        (lambda x: x[:, None], None),
        (lambda x: (x > 0).astype(np.int64), None),
    ],
)
def test_probabilities_are_distinguished_from_logits(
    answer: Callable[[Array], Array], distribution: bool | None
) -> None:
    assert probe_model(FakeRuntime({"y": answer})).distribution is distribution


@pytest.mark.parametrize("kind", ["bool", "uint8", "int8", "int64", "float16", "float64"])
def test_random_rows_have_the_dtype_of_the_input(kind: str) -> None:
    seen: list[Array] = []

    def record(x: Array) -> Array:
        seen.append(x)
        return x

    assert probe_model(FakeRuntime({"y": record}, takes=Tensor("x", kind, ("batch", 4)))).ran
    assert {str(x.dtype) for x in seen} == {kind}
    assert len(np.unique(seen[0])) > 1
