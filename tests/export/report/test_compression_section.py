"""The compression section of a report: every figure of the curve is in its row and at its point."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.support.manifests import MANIFEST
from turnpike.export.report.compression_section import compression_sections
from turnpike.export.report.data import KeptUnits, ReportData
from turnpike.export.report.page import render_page
from turnpike.reporting.markup import Markup
from turnpike.service.artifact.manifest import Compression, CompressionPoint
from turnpike.service.artifact.proof_records import TensorParity

SHARES = (1.0, 0.8, 0.25, 0.05)
ACCURACY = {1.0: 0.95, 0.8: 0.94, 0.25: 0.9, 0.05: 0.5}


def point(share: float, **changes: Any) -> CompressionPoint:
    values = {
        "share": share,
        "macs": share,
        "agreement": ACCURACY[share] + 0.04,
        "metric": ACCURACY[share],
        "faster": {1: 1 / share, 8: 0.5 / share},
    }
    return CompressionPoint(**{**values, **changes})


def report(**changes: Any) -> ReportData:
    """A file with 12 of 48 units, one layer of which is gone."""
    values: dict[str, Any] = {
        "original": "0" * 64,
        "units": 12,
        "units_whole": 48,
        "macs": 1000,
        "macs_whole": 4000,
        "calibration_rows": 500,
        "calibration_digest": "1" * 64,
        "rows": 200,
        "agreement": 0.93,
        "metric": 0.91,
        "metric_whole": 0.95,
        "bytes_whole": 9000,
        "faster": {1: 3.5, 8: 2.5},
        "curve": tuple(map(point, SHARES)),
    }
    compression = Compression(**{**values, **changes})
    kept = (
        KeptUnits("layer00.transform_gate", "0", (0, 1, 2, 7), 16),
        KeptUnits("layer01.transform_gate", "1", (), 16),
        KeptUnits("layer02.transform_gate", "2", (*range(3, 10), 15), 16),
    )
    manifest = MANIFEST.model_copy(update={"compression": compression})
    return ReportData(manifest, inputs=(), outputs=(), size=4000, kept=kept)


def section(data: ReportData) -> Markup:
    (markup,) = compression_sections(data)
    return markup


def table_rows(markup: Markup) -> list[tuple[bool, list[str]]]:
    """Whether each row is bold, and its cells."""
    body = markup[markup.index("<tbody>") : markup.index("</tbody>")]
    rows = re.findall(r"<tr( class=\"total\")?>(.*?)</tr>", body)
    return [(bool(bold), re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", cells)) for bold, cells in rows]


def figure(markup: Markup, title: str) -> str:
    (found,) = [part for part in re.findall(r"(?s)<figure>.*?</figure>", markup) if f"<b>{title}</b>" in part]
    return found


def points(drawn: str, kind: str) -> list[tuple[float, float]]:
    picture, _, _ = drawn.partition('class="legend"')
    circles = re.findall(rf'cx="([\d.]+)" cy="([\d.]+)" r="[\d.]+" class="{kind}', picture)
    return [(float(x), float(y)) for x, y in circles]


def test_the_table_has_the_curve_and_the_row_of_the_file_is_bold() -> None:
    """The file replaces the point with as many units."""
    assert table_rows(section(report())) == [
        (False, ["100.0%", "100.0%", "95.00%", "99.00%", "1.00x", "0.50x"]),
        (False, ["80.0%", "80.0%", "94.00%", "98.00%", "1.25x", "0.62x"]),
        (True, ["25.0%", "25.0%", "91.00%", "93.00%", "3.50x", "2.50x"]),
        (False, ["5.0%", "5.0%", "50.00%", "54.00%", "20.00x", "10.00x"]),
    ]


def test_a_file_that_was_trained_stands_beside_the_curve() -> None:
    """Its point without training stays, and no line leads to its own."""
    drawn = section(report(finetune_epochs=2))
    assert "it was trained for 2 more epochs" in drawn
    rows = [(bold, cells[0], cells[2]) for bold, cells in table_rows(drawn)]
    assert rows[2:4] == [(False, "25.0%", "90.00%"), (True, "25.0%", "91.00%")]
    answers = figure(drawn, "Accuracy and same answers")
    dots, rings = points(answers, "dot series-4"), points(answers, "hollow")
    assert len(dots) == 4
    assert rings[0] not in dots
    assert rings[0][0] == dots[1][0]
    assert rings[0][1] < dots[1][1]


def test_the_charts_show_all_figures_over_the_share_of_units() -> None:
    """Points are as far apart as their shares, and rings are at the file's."""
    drawn = section(report())
    answers = figure(drawn, "Accuracy and same answers")
    accuracy, same = points(answers, "dot series-4"), points(answers, "dot series-2")
    shares = [0.05, 0.25, 0.8, 1.0]
    for dots in (accuracy, same):
        steps = [dots[n + 1][0] - dots[n][0] for n in range(3)]
        scale = (dots[-1][0] - dots[0][0]) / 0.95
        assert steps == pytest.approx([scale * (b - a) for a, b in pairwise(shares)], abs=0.2)
    # higher is better
    assert [y for _, y in accuracy] == sorted((y for _, y in accuracy), reverse=True)
    assert same[0][1] < accuracy[0][1]
    assert points(answers, "hollow") == [accuracy[1], same[1]]
    for text in ("25.0 % of the units, accuracy, %: 91<", "25.0 % of the units, same answers, %: 93<"):
        assert text in answers
    assert "accuracy of the whole network" in answers

    work = figure(drawn, "Multiplications left in the layers")
    assert [re.search(rf"{share} % of the units, mult[^:]*: {share:g}<", work) for share in (5.0, 25.0, 80.0)]
    heights = [y for _, y in points(work, "dot series-4")]
    assert heights[1] - heights[2] == pytest.approx((heights[0] - heights[3]) * 0.55 / 0.95, abs=0.2)

    faster = figure(drawn, "Times faster, by rows of a run")
    for text in ("5.0 % of the units, 1 row: 20<", "25.0 % of the units, 8 rows: 2.5<", "the whole network"):
        assert text in faster
    assert len(points(faster, "hollow")) == 2


def test_the_pictures_of_layers_show_how_many_units_are_kept_and_which() -> None:
    """Also of a layer that is gone."""
    drawn = section(report())
    counts = figure(drawn, "Units kept by layer")
    for text in ("layer 0: 4 of 16", "layer 1: 0 of 16", "layer 2: 8 of 16"):
        assert f"<title>{text}\n" in counts
    kept, removed = re.findall(r'd="(M[^"]*)" class="bar', counts.partition('class="legend"')[0])
    heights = [float(low) - float(high) for low, high in re.findall(r",([\d.]+)V([\d.]+)", kept)]
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.2)
    # nothing is kept of the layer that is gone
    assert (kept.count("M"), removed.count("M")) == (2, 3)
    which = figure(drawn, "Which units are kept")
    assert 'viewBox="0 0 16 3"' in which
    assert re.findall(r' d="([^"]+)" stroke-width', which) == ["M0,0.5m0,0h3m4,0h1", "M0,2.5m3,0h7m5,0h1"]


def test_the_summary_has_the_smallest_gain_first() -> None:
    """Speed depends on the rows of a run, so the largest gain would promise too much."""
    data = report()
    tensor = TensorParity(name="output", rms=1e-8, rms_torch=1e-8, max=1e-7, max_torch=1e-7)
    parity = data.manifest.parity.model_copy(update={"tensors": (tensor,)})
    html = render_page(replace(data, manifest=data.manifest.model_copy(update={"parity": parity})))
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    assert "25.0% of the units kept 12 of 48 2.5x faster at least by rows of a run: 1: 3.5x, 8: 2.5x" in text


def test_without_classes_there_is_no_accuracy() -> None:
    curve = tuple(point(share, metric=None) for share in SHARES)
    drawn = section(report(metric=None, metric_whole=None, curve=curve))
    assert [len(cells) for _, cells in table_rows(drawn)] == [5] * 4
    assert "accuracy, %" not in drawn
    assert len(points(figure(drawn, "Same answers"), "dot")) == 4


def test_the_other_rows_are_said_to_be_in_fp32() -> None:
    data = report()
    int8 = replace(data, manifest=data.manifest.model_copy(update={"precision": "int8"}))
    assert "The other rows are of graphs in fp32, and this file is in int8." in section(int8)
    assert "graphs in fp32" not in section(data)
    assert compression_sections(replace(data, manifest=MANIFEST)) == []
