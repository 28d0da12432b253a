"""Reports: the page shows the measurements, is self-contained, and shows names as text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.manifests import IDENTITY
from tests.support.page_reader import PageReader, assert_self_contained
from tests.support.tiny_highway import Gated, highway
from turnpike.export.measure.gate_profile import profile_gates
from turnpike.export.measure.lesion_curve import lesion_curve
from turnpike.export.network import Rows
from turnpike.export.parity.error_stats import BINS
from turnpike.export.precision.compare import Comparison, Speed, TensorDifference
from turnpike.export.report import write as module
from turnpike.export.report.data import ReportData, gate_panel
from turnpike.export.report.page import render_page
from turnpike.export.report.parity_section import parity_rows
from turnpike.export.report.write import report_json, write_report
from turnpike.service.artifact.manifest import Gate, Manifest
from turnpike.service.artifact.proof_records import Parity, ParityBatch, TensorParity

LABELS = ("cat", "<script>alert(1)</script>", 'a"b&c')


def rows_of(net: Gated) -> Rows:
    x = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32)
    return Rows({"x": x}, net.logits(x).argmax(1))


def parity(names: tuple[str, ...]) -> Parity:
    tensors = tuple(
        TensorParity(
            name=name, rms=(index + 1) * 1e-8, rms_torch=2e-8, max=(index + 1) * 1e-7, max_torch=3e-7
        )
        for index, name in enumerate(names)
    )
    batches = (
        ParityBatch(name="one row", rows=1, digest="ab" * 32),
        ParityBatch(name="real rows", rows=60, digest="cd" * 32),
    )
    return Parity(
        reference="the network in float64",
        providers=("CPUExecutionProvider",),
        seed=5,
        batches=batches,
        tensors=tensors,
    )


@pytest.fixture(scope="module")
def full() -> ReportData:
    """A report of a network with rows and classes, in which every section is present."""
    net = highway(layers=3, units=6)
    runtime, rows = net.open(), rows_of(net)
    hidden = [name for gate in net.gates for name in (gate.name, gate.output) if name is not None]
    profile = profile_gates(runtime, net.gates, rows, LABELS)
    manifest = Manifest(
        name="tiny",
        version=3,
        source="checkpoint",
        precision="int8",
        outputs=("logits",),
        labels=LABELS,
        gates=net.gates,
        identity=IDENTITY,
        parity=parity(("logits", *hidden)),
        profile=profile,
        lesion=lesion_curve(runtime, net.gates, rows, "logits", net.biases),
        weights="ef" * 32,
        tools={"torch": "2.13.0"},
    )
    comparison = Comparison(
        precision="int8",
        provider="CPUExecutionProvider",
        rows=60,
        drawn=False,
        kind="highest",
        agreement=0.9917,
        error=0.0234,
        metric=0.9333,
        metric_fp32=0.95,
        outputs=(TensorDifference("logits", 0.0123, 0.0456, 0.0234),),
        gates=tuple(TensorDifference(gate.name, 0.001, 0.01, 0.002) for gate in net.gates),
        speed=(Speed(1, 0.5, 0.25, 2.0),),
        size=5000,
        size_fp32=20000,
    )
    counts = tuple([0] * 10 + [5] * (BINS - 10))
    return ReportData(
        manifest,
        inputs=("x:float32[batch,4]",),
        outputs=("logits:float32[batch,3]",),
        size=5000,
        warnings=("rows are few",),
        notes=("rows were moved",),
        seconds={"trace": 1.25},
        histograms=dict.fromkeys(("logits", *hidden), (counts, counts)),
        panel=gate_panel(runtime, net.gates, net.biases, profile, rows, LABELS),
        comparison=comparison,
    )


def test_the_page_shows_the_measurements(full: ReportData) -> None:
    page = PageReader(render_page(full))
    manifest = full.manifest
    assert manifest.lesion is not None
    assert manifest.profile is not None
    for text in (
        "tiny · version 3",
        "proved in fp32",
        "the fp32 graph that the file was made from is the same function of every input",
        "about the fp32 graph that this file was made from",
        "rows are few",
        "Note: rows were moved",
        "x:float32[batch,4]",
        "the network in float64",
        f"accuracy {manifest.lesion.accuracy:.4f}, loss {manifest.lesion.loss:.4f}",
        "0.9917",
        "relative rms error of logits",
        "0.0234",
        "0.9333",
        "-0.0167",
        "2.0 times faster",
        "5 kB",
        "one row",
        "abababab",
        "2.13.0",
        "1.25",
        "ef" * 32,
        manifest.profile.digest,
    ):
        assert text in page.text
    for tensor in manifest.parity.tensors:
        assert f"{tensor.name} {tensor.rms:.2e} {tensor.rms_torch:.2e}" in page.text
    for layer in manifest.profile.layers:
        assert f"{layer.mean:.3f} {layer.closed:.1%} {layer.open:.1%}" in page.text
    titles = " ".join(page.words)
    for figure in (
        "Root mean square error by tensor",
        "Errors of the outputs",
        "Errors of the gates",
        "Biases",
        "T for one row",
    ):
        assert figure in titles
    for figure in ("How open", "Mean T by class", "Accuracy and changed answers", "Change of the gates"):
        assert figure in titles


def test_the_page_is_self_contained(full: ReportData) -> None:
    html = render_page(full)
    assert_self_contained(PageReader(html), images="; img-src data:")
    assert "url(" not in html


def test_the_json_has_the_figures_of_the_page(full: ReportData, tmp_path: Path) -> None:
    """NaN becomes null."""
    assert full.panel is not None
    assert full.panel.means is not None
    means = full.panel.means.copy()
    means[0, 0] = np.nan
    full = replace(full, panel=replace(full.panel, means=means))
    path = write_report(tmp_path / "new" / "folder", full)
    assert path == tmp_path / "new" / "folder" / "index.html"
    report = json.loads((tmp_path / "new" / "folder" / "report.json").read_text())
    assert Manifest.model_validate(report["manifest"]) == full.manifest
    assert report["comparison"]["agreement"] == 0.9917
    assert report["comparison"]["error"] == 0.0234
    assert report["notes"] == ["rows were moved"]
    assert report["seconds"] == {"trace": 1.25}
    assert report["panel"]["means"][0][0] is None
    assert report["panel"]["means"][1] == pytest.approx(means[1].tolist(), rel=1e-5)
    assert report == json.loads(json.dumps(report_json(full)))


def test_nan_outside_of_the_panel_is_an_error(full: ReportData, tmp_path: Path) -> None:
    """A NaN outside of the panel is an error, since JSON cannot express it."""
    with pytest.raises(ValueError, match="JSON"):
        write_report(tmp_path, replace(full, seconds={"trace": float("nan")}))
    assert list(tmp_path.iterdir()) == []


def test_the_same_report_gives_the_same_bytes(full: ReportData, tmp_path: Path) -> None:
    """Nothing is left beside the two files."""
    for folder in ("a", "b"):
        write_report(tmp_path / folder, full)
        assert sorted(entry.name for entry in (tmp_path / folder).iterdir()) == ["index.html", "report.json"]
    for name in ("index.html", "report.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_failed_write_keeps_the_old_page(
    full: ReportData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(tmp_path, full)
    before = (tmp_path / "report.json").read_bytes()

    def stop(values: object, **options: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.json, "dumps", stop)
    with pytest.raises(KeyboardInterrupt):
        write_report(tmp_path, full)
    assert (tmp_path / "report.json").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2


def test_the_maps_of_independent_gates_have_other_words(full: ReportData) -> None:
    """T = 0 carries the input only if C = 1 - T."""
    assert "0 carried" in render_page(full)
    gates = tuple(gate.model_copy(update={"kind": "independent"}) for gate in full.manifest.gates)
    html = render_page(replace(full, manifest=full.manifest.model_copy(update={"gates": gates})))
    assert "0 closed" in html
    assert "0 carried" not in html


def test_the_page_of_a_network_without_gates_says_so(full: ReportData) -> None:
    """No empty tables or charts in place of gates."""
    manifest = full.manifest.model_copy(
        update={"gates": (), "profile": None, "lesion": None, "precision": "fp32"}
    )
    html = render_page(replace(full, manifest=manifest, panel=None, comparison=None))
    page = PageReader(html)
    assert "There are no transform gates in the file" in page.text
    for absent in ("Layers by units", "Lesions", "Precision:", "about the fp32 graph"):
        assert absent not in page.text
    assert '<span class="badge ok">proved</span>' in html


def test_without_rows_the_page_explains_how_to_give_them(full: ReportData) -> None:
    """Gates are listed and their biases drawn."""
    net = highway(layers=3, units=6)
    manifest = full.manifest.model_copy(update={"profile": None, "lesion": None})
    panel = gate_panel(net.open(), net.gates, net.biases)
    page = PageReader(render_page(replace(full, manifest=manifest, panel=panel, comparison=None)))
    assert "Give rows with --data" in page.text
    assert "layer02.transform_gate" in page.text
    assert "Biases of the gates" in page.text
    assert "Mean T" not in page.text


def test_many_time_steps_are_one_row(full: ReportData) -> None:
    """Time steps of a recurrent layer become one row, with their largest errors."""
    gates = tuple(
        Gate(
            name=f"g{depth}.{time}",
            layer=0,
            depth=depth,
            time=time,
            kind="coupled",
            carry="identity",
            unit_axis=-1,
            units=4,
        )
        for time in range(150)
        for depth in range(2)
    )
    names = ("logits", *(gate.name for gate in gates))
    manifest = full.manifest.model_copy(
        update={"gates": gates, "profile": None, "lesion": None, "parity": parity(names)}
    )
    rows = parity_rows(manifest)
    assert [row.name for row in rows] == [
        "logits",
        "layer 0.0: transform gate",
        "layer 0.1: transform gate",
    ]
    assert rows[1].rms == pytest.approx(300e-8)
    assert rows[2].max == pytest.approx(301e-7)
    html = render_page(replace(full, manifest=manifest, panel=None, histograms={}))
    assert len(html) < 60_000
    assert "g0.0 and 149 more steps" in PageReader(html).text
