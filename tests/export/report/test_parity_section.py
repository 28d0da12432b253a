"""The parity section of a report: which errors pass, and how errors are distributed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.support.manifests import MANIFEST
from turnpike.export.parity.error_stats import BINS
from turnpike.export.report.data import ReportData
from turnpike.export.report.parity_section import proof_sections
from turnpike.service.artifact.proof_records import TensorParity


def test_each_tensor_has_its_own_limit() -> None:
    """A tensor without an error of the baseline has none, and its errors are at the lower end of the axis.

    A file that is proved has no such limits.
    """
    tensors = tuple(
        TensorParity(name=f"t{n}", rms=rms, rms_torch=rms, max=rms, max_torch=rms)
        for n, rms in enumerate((1e-8, 0.0, 1e-7))
    )
    parity = MANIFEST.parity.model_copy(update={"tensors": tensors})
    undecided = MANIFEST.model_copy(update={"parity": parity, "identity": None})
    report = ReportData(undecided, inputs=(), outputs=(), size=1)
    proved = replace(report, manifest=MANIFEST)
    assert "passes below" not in "".join(proof_sections(proved))
    drawn = "".join(proof_sections(report))
    match = re.search(r'd="(M[^"]*)" class="curve series-text dashed"', drawn)
    assert match is not None
    limits = re.findall(r"M([\d.]+),([\d.]+)L([\d.]+),([\d.]+)", match[1])
    heights = [float(left) for _, left, _, right in limits if left == right]
    assert len(heights) == 2
    assert heights[0] > heights[1]
    assert "passes below" in drawn
    dots = [float(y) for y in re.findall(r'cy="([\d.]+)" r="3.2" class="dot series-4"', drawn)]
    assert dots == pytest.approx([dots[0], max(dots), dots[2]])


def test_histograms_show_shares() -> None:
    """Errors of all tensors of a kind together; the outlines start and end at zero."""
    counts = tuple([0] * (BINS - 2) + [30, 10])
    report = ReportData(
        MANIFEST,
        inputs=(),
        outputs=(),
        size=1,
        histograms={"hidden": (counts, counts), "other": (counts, counts)},
    )
    whole = "".join(proof_sections(report))
    assert "Errors of the gates and layers" in whole
    assert "Errors of the outputs" not in whole
    (outline, _) = re.findall(r'd="M([^"]*)Z" class="area', whole)[:2]
    heights = [float(corner.split(",")[1]) for corner in outline.split("L")]
    zero = max(heights)
    assert heights[0] == zero
    shares = [zero - height for height in heights if height != zero]
    assert shares[0] == pytest.approx(3 * shares[-1], abs=0.3)
