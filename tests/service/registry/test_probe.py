"""What is found out about rows in company, on models whose habits are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from service.artifact.runtime import Runtime, Tensor, open_model
from service.errors import ModelFileError, RunError
from service.registry.probe import ProbeResult, check_device_agreement, probe
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import sealed

Array = np.ndarray[Any, np.dtype[Any]]

X = Tensor("x", "float32", ("batch", 4))
WORDS = Tensor("x", "float32", ("batch", "words", 4))
Y = Tensor("y", "float32", ("batch", 3))


class Habits:
    """A runtime that computes what it is told: outputs by name, of the array that came in."""

    def __init__(
        self,
        made: Mapping[str, Callable[[Array], Array]],
        *,
        takes: Tensor = X,
        outputs: Sequence[Tensor] = (Y,),
        hidden: Sequence[Tensor] = (),
    ) -> None:
        self.inputs, self.outputs, self.hidden = (takes,), tuple(outputs), tuple(hidden)
        self.made = made
        self.ran: list[int] = []

    def run(self, feeds: Mapping[str, Array], names: Sequence[str] | None = None) -> list[Array]:
        self.ran.append(len(feeds["x"]))
        return [
            self.made[name](feeds["x"])
            for name in ([tensor.name for tensor in self.outputs] if names is None else names)
        ]


def found(habits: Habits, batch: str | None = "batch", max_rows: int = 16) -> ProbeResult:
    return probe(cast("Runtime", habits), batch, max_rows)


def plain(x: Array) -> Array:
    return np.asarray(x[..., :3] * np.float32(0.5))


def shaken(y: Array) -> Array:
    """The same but for the last bit."""
    return np.nextafter(y, np.float32(9))


STEADY = ProbeResult(
    ran=True,
    coupled=False,
    bit_stable=True,
    single_row_differs=False,
    splittable=frozenset({"y"}),
    distribution=False,
)


def test_rows_that_mind_their_own_business() -> None:
    """Every answer is the same to the last bit, so all may be batched."""
    assert found(Habits({"y": plain})) == STEADY


def test_a_real_network() -> None:
    """Its outputs and gates are splittable, and all its hidden outputs were looked at."""
    runtime = highway().open()
    findings = probe(runtime, "batch", 64)
    assert findings.splittable == {tensor.name for tensor in (*runtime.outputs, *runtime.hidden)}
    assert findings.ran
    assert not findings.coupled


def test_a_lone_row_may_be_another() -> None:
    """Kernels for one row alone round otherwise: rows in company are steady all the same."""
    assert found(Habits({"y": lambda x: shaken(plain(x)) if len(x) == 1 else plain(x)})) == replace(
        STEADY, single_row_differs=True
    )


@pytest.mark.parametrize(
    "unsteady",
    [
        lambda x: shaken(plain(x)) if len(x) in (1, 2) else plain(x),
        lambda x: shaken(plain(x)) if len(x) % 2 else plain(x),
        lambda x: shaken(plain(x)) if len(x) >= 16 else plain(x),
        # by its place in the run
        lambda x: np.concatenate([plain(x[:-1]), shaken(plain(x[-1:]))]) if len(x) > 1 else plain(x),
        lambda x: np.concatenate([shaken(plain(x[:1])), plain(x[1:])]) if len(x) > 1 else plain(x),
    ],
    ids=["a pair", "odd numbers", "many", "the last of a run", "the first of a run"],
)
def test_last_bits_that_depend_on_company_are_seen(unsteady: Callable[[Array], Array]) -> None:
    """By the number of rows, or the place among them."""
    findings = found(Habits({"y": unsteady}))
    assert not findings.bit_stable
    assert not findings.coupled
    assert findings.splittable == {"y"}


def test_coupled_rows_are_seen() -> None:
    """A row's answer that moves with the other rows is no matter of last bits."""
    findings = found(Habits({"y": lambda x: plain(x - x.mean(0, keepdims=True))}))
    assert findings.coupled
    assert findings.splittable == frozenset()


def test_hidden_outputs_that_lie_otherwise_are_told_apart() -> None:
    """Rows first, words within rows, words before rows, no rows at all: only the first two can be split."""
    hidden = {
        "by row": plain,
        "words in rows": lambda x: np.repeat(plain(x), 2, 0),
        "rows in words": lambda x: np.concatenate([plain(x), 2 * plain(x)]),
        "words first": lambda x: np.stack([plain(x), 2 * plain(x)]),
        "constant": lambda x: np.ones((1, 3), np.float32),
        "number": lambda x: np.ones((), np.float32),
        "as many as rows, whichever": lambda x: np.ones((6, 3), np.float32),
    }
    findings = found(
        Habits({"y": plain, **hidden}, hidden=[replace(Y, name=name, dims=("?",)) for name in hidden])
    )
    assert findings.splittable == {"y", "by row", "words in rows"}
    assert not findings.coupled
    assert findings.bit_stable


def test_hidden_outputs_are_held_to_the_last_bit_too() -> None:
    """They are answered when asked for by name."""
    findings = found(
        Habits(
            {"y": plain, "h": lambda x: shaken(plain(x)) if len(x) == 2 else plain(x)},
            hidden=[replace(Y, name="h")],
        )
    )
    assert not findings.bit_stable


def test_short_rows_are_tried_as_well() -> None:
    """Where callers choose the length, a row of one step is where kernels for one row come in."""
    findings = found(
        Habits(
            {"y": lambda x: shaken(plain(x)) if len(x) * x.shape[1] == 1 else plain(x)},
            takes=WORDS,
            outputs=[replace(Y, dims=("batch", "words", 3))],
        )
    )
    assert findings.single_row_differs
    assert findings.bit_stable


def test_numbers_that_the_model_takes_are_looked_for() -> None:
    """Ids of a table of eight; a length that its kernel needs."""

    def embedded(x: Array) -> Array:
        if x.max() >= 8 or x.min() < 0 or x.shape[1] < 20:
            raise RunError("index out of bounds")
        return np.take(np.eye(8, dtype=np.float32), x[:, 0], 0)

    findings = found(Habits({"y": embedded}, takes=Tensor("x", "int64", ("batch", "words"))))
    assert findings.ran
    assert findings.splittable == {"y"}


def test_a_model_that_takes_nothing_is_said() -> None:
    """Nothing is known of it then."""

    def never(x: Array) -> Array:
        raise RunError("no")

    assert found(Habits({"y": never})) == ProbeResult(ran=False)


def test_without_a_batch_nothing_is_split() -> None:
    """Such a model is run once, so that it is warm."""
    habits = Habits({"y": plain}, takes=Tensor("x", "float32", (2, 4)))
    assert found(habits, None) == ProbeResult(ran=True, distribution=False)
    assert set(habits.ran) == {2}


def test_the_largest_run_is_tried() -> None:
    """And none beyond it but the few rows that splitting is found out with."""
    habits = Habits({"y": plain})
    found(habits, max_rows=64)
    assert max(habits.ran) == 64
    assert {1, 2, 3, 8, 64} <= set(habits.ran)


def test_nan_is_the_same_as_itself() -> None:
    """A model that answers NaN to random rows is as steady as another."""
    assert found(Habits({"y": lambda x: plain(x) * np.float32("nan")})).bit_stable


@pytest.mark.parametrize(
    ("answer", "distribution"),
    [
        (lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True), True),
        (lambda x: x, False),
        (lambda x: x - x.mean(1, keepdims=True) + 1 / 4, False),  # sums to 1, and goes below 0
        (lambda x: x[:, :1], None),
        (lambda x: x[:, 0], None),
        (lambda x: x[:, None], None),
        (lambda x: (x > 0).astype(np.int64), None),
    ],
)
def test_probabilities_are_told_from_logits(
    answer: Callable[[Array], Array], distribution: bool | None
) -> None:
    """By what they sum to; one number, words and whole numbers are neither."""
    assert found(Habits({"y": answer})).distribution is distribution


@pytest.mark.parametrize("kind", ["bool", "uint8", "int8", "int64", "float16", "float64"])
def test_rows_of_every_type_are_drawn(kind: str) -> None:
    """In the type that the input has, and not all the same."""
    seen: list[Array] = []

    def kept(x: Array) -> Array:
        seen.append(x)
        return x

    assert found(Habits({"y": kept}, takes=Tensor("x", kind, ("batch", 4)))).ran
    assert {str(x.dtype) for x in seen} == {kind}
    assert len(np.unique(seen[0])) > 1


class Device:
    """Answers as a runtime does, but for one tensor."""

    provider = "TestProvider"

    def __init__(self, runtime: Runtime, off: str = "", by: float = 0.0, rows: int | None = None) -> None:
        self.runtime, self.off, self.by, self.rows = runtime, off, by, rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runtime, name)

    def run(self, feeds: Mapping[str, Array], names: Sequence[str] | None = None) -> list[Array]:
        arrays = self.runtime.run(feeds, names)
        return [
            (array + np.float32(self.by))[: self.rows] if name == self.off else array
            for name, array in zip(names or ["logits"], arrays, strict=True)
        ]


@pytest.fixture(scope="module")
def cpu() -> Runtime:
    return open_model(sealed(highway()))


@pytest.mark.parametrize("by", [0.0, 1e-6])
def test_the_same_arithmetic_passes(cpu: Runtime, by: float) -> None:
    """Last bits may differ, as between any two devices."""
    check_device_agreement(Device(cpu, "logits", by), cpu, "batch", "a.onnx")  # type: ignore[arg-type]


@pytest.mark.parametrize("off", ["logits", "layer01.transform_gate"])
@pytest.mark.parametrize("by", [1e-3, -1e-3, float("nan"), float("inf")])
def test_other_arithmetic_is_refused(cpu: Runtime, off: str, by: float) -> None:
    """Ten bits of a product are no parity, in an answer or in a gate; the tensor is named."""
    with pytest.raises(
        ModelFileError, match=f"a.onnx: {off}: expected TestProvider within .* of the CPU"
    ) as error:
        check_device_agreement(Device(cpu, off, by), cpu, "batch", "a.onnx")  # type: ignore[arg-type]
    assert error.value.public_message == "its device does not compute what the CPU computes"


def test_shapes_and_nan_must_agree(cpu: Runtime) -> None:
    """A row too few is no answer, and NaN on one side is no agreement; on both it is."""
    nan = Device(cpu, "logits", float("nan"))
    check_device_agreement(nan, nan, "batch", "a.onnx")  # type: ignore[arg-type]
    for device, truth in ((Device(cpu, "logits", rows=-1), cpu), (nan, cpu), (cpu, nan)):
        with pytest.raises(ModelFileError, match="of the CPU, got inf"):
            check_device_agreement(device, truth, "batch", "a.onnx")  # type: ignore[arg-type]


def test_a_model_that_takes_no_rows_cannot_be_compared(cpu: Runtime) -> None:
    """So it is not said to agree."""

    class Never(Device):
        def run(self, feeds: Mapping[str, Array], names: Sequence[str] | None = None) -> list[Array]:
            raise RunError("no")

    with pytest.raises(ModelFileError, match="the model accepts none of those that were tried"):
        check_device_agreement(cpu, Never(cpu), "batch", "a.onnx")  # type: ignore[arg-type]
