"""What is called proved: only what was decided for every input."""

from __future__ import annotations

import pytest

from tests.support.manifests import IDENTITY, MANIFEST, PARITY
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.proof_records import Identity, ParityBatch, RoundedConstant, TensorParity
from turnpike.service.artifact.verdict_text import identity_text, is_proved, proof_lines, verdict

BATCHES = tuple(
    ParityBatch(name=name, rows=rows, digest="d") for name, rows in (("1 row", 1), ("64 rows", 64))
)
MEASURED = PARITY.model_copy(
    update={
        "batches": BATCHES,
        "tensors": (
            TensorParity(name="output", rms=2e-7, rms_torch=2e-7, max=1e-6, max_torch=1e-6),
            TensorParity(name="gate", rms=3e-8, rms_torch=1e-8, max=1e-7, max_torch=1e-7),
        ),
    }
)
UNDECIDED = Identity(verdict="not decided", reason="the operator Det is not known")


def manifest(**fields: object) -> Manifest:
    return MANIFEST.model_copy(update={"parity": MEASURED, **fields})


def test_a_decided_file_is_proved() -> None:
    assert is_proved(manifest())
    assert verdict(manifest()) == "proved"
    assert identity_text(manifest()) == (
        "proved: in exact arithmetic, the file is the same function of every input as the network, in all 7 "
        "outputs, gates and layers; chance of error below 1e-18"
    )


@pytest.mark.parametrize(("identity", "reason"), [(UNDECIDED, "Det is not known"), (None, "Export it again")])
def test_agreement_on_batches_is_not_called_proved(identity: Identity | None, reason: str) -> None:
    """Older versions called it that."""
    compared = manifest(identity=identity)
    assert not is_proved(compared)
    assert verdict(compared) == "agreed on 2 batches"
    assert identity_text(compared).startswith("not proved: the file agreed on 2 batches, and ")
    assert reason in identity_text(compared)


def test_a_lower_precision_is_not_what_is_proved() -> None:
    """The proof is about the fp32 graph, and says so."""
    assert "the fp32 graph that the file was made from is the same" in identity_text(
        manifest(precision="fp16")
    )
    assert "the fp32 graph that the file was made from agreed on 2 batches" in identity_text(
        manifest(precision="int8", identity=UNDECIDED)
    )


def test_rounded_constants_are_named() -> None:
    rounded = tuple(RoundedConstant(name=f"sin_{n}", ulp=1) for n in range(4))
    identity = IDENTITY.model_copy(update={"rounded": rounded[:1]})
    assert ", up to 1 rounded constant (sin_0); chance" in identity_text(manifest(identity=identity))
    identity = IDENTITY.model_copy(update={"rounded": rounded})
    assert ", up to 4 rounded constants (sin_0, sin_1, sin_2, …)" in identity_text(
        manifest(identity=identity)
    )


def test_levers_and_closed_layers_are_counted() -> None:
    identity = IDENTITY.model_copy(update={"levers": 2, "carried": 1})
    expected = "with 2 gates moved by levers alone and 1 layer that carries its input when closed; chance"
    assert expected in identity_text(manifest(identity=identity))


def test_rounding_shows_the_largest_error_beside_that_of_pytorch() -> None:
    lines = list(proof_lines(manifest()))
    assert lines[1] == (
        "rounding: measured on 2 batches of 65 rows in all (CPUExecutionProvider): rms error 3.0e-08 in "
        "gate, where PyTorch's own is 1.0e-08"
    )
    assert list(proof_lines(MANIFEST))[1] == (
        "rounding: measured on 0 batches of 0 rows in all (CPUExecutionProvider)"
    )
