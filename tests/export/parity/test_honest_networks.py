"""Honest networks pass, and clips that only strained rows reach are caught.

`make endurance ARGS=tests/export/parity/test_honest_networks.py` tries 500 networks.
"""

from __future__ import annotations

import pytest

from tests.export.parity.honest_study import Subject, random_subject, verdict
from tests.highways.faults import FAULTS
from turnpike.export.errors import ParityError

# they were refused before explained errors were left out
REFUSED_ONCE = (96, 253)
SEEDS = [
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in (*range(12), *REFUSED_ONCE)),
    *(pytest.param(seed, marks=pytest.mark.endurance) for seed in range(12, 500) if seed not in REFUSED_ONCE),
]
# one with BatchNorm, and a convolutional one
CLIPPED = [2, pytest.param(3, marks=pytest.mark.slow)]


@pytest.mark.parametrize("seed", SEEDS)
def test_an_honest_network_passes(seed: int) -> None:
    subject = random_subject(seed)
    if (reason := verdict(subject.prove)) == "ill-conditioned":
        pytest.skip(f"{subject.net} is ill-conditioned")
    assert reason == "passed", str(subject.net)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "is_explained"), [(REFUSED_ONCE[0], True), (0, False)])
def test_a_proof_that_needs_explained_errors_says_so(seed: int, is_explained: bool) -> None:
    assert (random_subject(seed).prove().parity.explained is not None) == is_explained


@pytest.mark.slow
def test_a_gate_that_four_perturbed_runs_leave_in_place_is_ill_conditioned() -> None:
    """One cell of 9088 switches; before the refusal, 16 perturbed runs show that rounding decides it."""
    assert verdict(random_subject(191).prove) == "ill-conditioned"


@pytest.fixture(scope="module", params=CLIPPED)
def subject(request: pytest.FixtureRequest) -> Subject:
    return random_subject(request.param)


@pytest.mark.parametrize("fault", ["clip at 8", "clip at 12"])
def test_a_clip_that_only_large_rows_reach_is_caught(subject: Subject, fault: str) -> None:
    """Rows times 10,000 reach it too, but rounding decides their values."""
    with pytest.raises(ParityError, match=r"transform_gate with the batch 'large x"):
        subject.prove_faulty(FAULTS[fault])
