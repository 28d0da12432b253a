"""From a module to a verified file that the service can open."""

from __future__ import annotations

import hashlib
import html
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.run_cli import run_in_process
from turnpike import export
from turnpike.export.cli.progress import summary_lines
from turnpike.export.errors import GateCountError, ParityError, PrecisionError, SourceError, UsageError
from turnpike.export.output.model_bytes import embed_manifest
from turnpike.export.pipeline import ExportResult, export_model
from turnpike.export.steps import ProgressListener
from turnpike.export.verify import verify_model
from turnpike.models.layers.highway import HighwayLayer
from turnpike.service.artifact.runtime import open_model
from turnpike.service.errors import RunError


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), HighwayLayer(8), HighwayLayer(8), nn.Linear(8, 3)).eval()


INPUT = ["x:float32[batch,6]"]
LABELS = ["red", "green", "blue"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Rows whose classes are the network's answers."""
    x = np.random.default_rng(0).standard_normal((60, 6)).astype(np.float32)
    with torch.no_grad():
        y = network()(torch.from_numpy(x)).argmax(1).numpy()
    path = tmp_path / "rows.npz"
    np.savez(path, x=x, y=y)
    return path


def export_network(to: Path, **options: Any) -> ExportResult:
    return export_model(network(), to, **{"name": "net", "inputs": INPUT, **options})


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> ExportResult:
    """The exported network, for tests that only read the file."""
    return export_network(tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> ExportResult:
    """The network exported with labels, for tests that only read the file."""
    return export_network(tmp_path_factory.mktemp("labelled"), labels=LABELS)


def test_an_export_has_gates_parity_profile_and_lesion_curve(tmp_path: Path, rows: Path) -> None:
    """A file with its manifest: gates as hidden outputs, parity, profile and lesion curve."""
    result = export_network(tmp_path / "repo", data=rows, labels=LABELS)
    assert result.path == tmp_path / "repo" / "net" / "1" / "model.onnx"
    runtime = open_model(result.path)
    manifest = runtime.manifest
    assert manifest == result.manifest
    assert manifest is not None
    assert manifest.labels == ("red", "green", "blue")
    assert [gate.name for gate in manifest.gates] == ["layer00.transform_gate", "layer01.transform_gate"]
    assert {(gate.kind, gate.carry, gate.units) for gate in manifest.gates} == {("coupled", "identity", 8)}
    assert [str(tensor) for tensor in runtime.outputs] == ["output:float32[batch,3]"]
    assert manifest.profile is not None
    assert manifest.profile.rows == 60
    assert manifest.lesion is not None
    assert manifest.lesion.accuracy == 1
    assert [lesion.layer for lesion in manifest.lesion.layers] == [0, 1]
    assert not manifest.batch_coupled
    onnx.checker.check_model(result.path, full_check=True)


def test_the_file_computes_what_the_module_computes(exported: ExportResult) -> None:
    """This holds for the prediction and for the gates."""
    net = network()
    runtime = open_model(exported.path)
    x = torch.randn(5, 6)
    output, gate = runtime.run({"x": x.numpy()}, ["output", "layer00.transform_gate"])
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(output), net(x))
        torch.testing.assert_close(torch.from_numpy(gate), net[1].gate(net[0](x)))  # type: ignore[index]


@pytest.mark.slow
def test_exporting_again_writes_nothing(tmp_path: Path) -> None:
    """Another network takes the next version, and the old one stays."""
    first = export_network(tmp_path)
    assert first.written
    repeated = export_network(tmp_path)
    assert (repeated.path, repeated.written) == (first.path, False)
    other = network()
    with torch.no_grad():
        other[0].weight[0, 0] += 1  # type: ignore[index]
    second = export_model(other, tmp_path, name="net", inputs=INPUT)
    assert second.path == tmp_path / "net" / "2" / "model.onnx"
    assert second.manifest.version == 2
    assert open_model(first.path).manifest == first.manifest


@pytest.mark.slow
def test_private_rows_are_stored_on_request(tmp_path: Path, rows: Path) -> None:
    """By default the file has only the ranges of private data."""
    first = export_network(tmp_path / "repo", data=rows)
    x = np.load(rows)["x"]
    (bounds,) = first.manifest.ranges
    assert (bounds.input, bounds.low, bounds.high) == ("x", float(x.min()), float(x.max()))
    assert first.manifest.samples == ()
    second = export_network(tmp_path / "repo", data=rows, samples=3)
    assert (second.written, second.manifest.version) == (True, 2)
    assert second.manifest.content == first.manifest.content
    known = {row.tobytes() for row in x}
    assert len(second.manifest.samples) == 3
    assert {sample.inputs[0].raw for sample in second.manifest.samples} <= known
    assert not export_network(tmp_path / "repo", data=rows, samples=3).written


def test_without_rows_there_are_neither_ranges_nor_samples(exported: ExportResult) -> None:
    assert exported.manifest.ranges == ()
    assert exported.manifest.samples == ()


@pytest.mark.slow
def test_a_requested_version_is_replaced_on_request(tmp_path: Path) -> None:
    """Other weights are refused before the proof, the same weights with other options after it."""
    first = export_model(nn.Linear(6, 3), tmp_path, name="net", version=4, inputs=INPUT)
    before = first.path.read_bytes()
    steps: list[str] = []
    listener = ProgressListener()
    listener.started = steps.append  # type: ignore[method-assign]
    with pytest.raises(
        UsageError, match="--version 4: .*net/4/model.onnx exists, .*: give --name if .*--replace"
    ):
        export_network(tmp_path, version=4, listener=listener)
    assert steps == ["load", "trace"]
    assert first.path.read_bytes() == before
    result = export_network(tmp_path, version=4, replace=True)
    assert not export_network(tmp_path, version=4).written
    with pytest.raises(
        UsageError, match="--version 4: .*net/4/model.onnx exists, .*: give --name if .*--replace"
    ):
        export_network(tmp_path, version=4, labels=["a", "b", "c"])
    assert result.path == tmp_path / "net" / "4" / "model.onnx"
    assert len(result.manifest.gates) == 2
    assert [entry.name for entry in result.path.parent.iterdir()] == ["model.onnx"]


def test_exports_from_different_folders_have_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They contain no folder, source file or stack trace."""
    digests = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        data = export_network(Path("repo")).path.read_bytes()
        digests.add(hashlib.sha256(data).hexdigest())
        assert b".py" not in data
        assert os.fsencode(tmp_path) not in data
    assert len(digests) == 1


def test_names_in_the_file_are_readable(exported: ExportResult) -> None:
    """Weights are named as in the module; gates and layers are numbered."""
    graph = onnx.load(exported.path).graph
    assert {"1.gate.weight", "2.gate.bias", "0.weight"} <= {tensor.name for tensor in graph.initializer}
    values = {name for node in graph.node for name in node.output}
    assert {"layer00.transform_gate", "layer00.output", "layer01.transform_gate"} <= values


@pytest.mark.parametrize("precision", ["fp16", pytest.param("int8", marks=pytest.mark.slow)])
def test_a_lower_precision_records_its_agreement(tmp_path: Path, rows: Path, precision: str) -> None:
    result = export_network(tmp_path, precision=precision, data=rows, min_agreement=0.5)
    variant = result.manifest.variant
    assert result.manifest.precision == precision
    assert variant is not None
    assert variant.agreement >= 0.5
    assert variant.error is not None
    assert 0 < variant.error < 0.05
    assert variant.metric_fp32 == 1
    assert [str(tensor) for tensor in open_model(result.path).outputs] == ["output:float32[batch,3]"]
    assert export_network(tmp_path, precision=precision, data=rows, min_agreement=0.5).written is False


def test_a_variant_that_disagrees_is_refused(tmp_path: Path) -> None:
    class Sharp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(6, 2)
            with torch.no_grad():
                # 8 bits cannot represent the difference between the two classes
                self.line.weight.copy_(self.line.weight[:1] + torch.tensor([[0.0], [1e-4]]))
                self.line.weight[:, 0] = 1.0
                self.line.bias.zero_()

        def forward(self, x: Tensor) -> Tensor:
            return self.line(x)

    with pytest.raises(PrecisionError, match=r"in a share of 0\.999 or more .*, got 0\."):
        export_model(Sharp(), tmp_path / "repo", inputs=INPUT, precision="int8", min_agreement=0.999)
    with pytest.raises(PrecisionError, match=r"relative rms error of 0\.0001 or less \(--max-error\), got"):
        export_model(
            Sharp(), tmp_path / "repo", inputs=INPUT, precision="int8", min_agreement=0.0, max_error=1e-4
        )
    assert not (tmp_path / "repo").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "fp8"}, "--precision: expected fp32, fp16, int8, got 'fp8'"),
        ({"replace": True}, "--replace: expected with --version"),
        ({"version": 0}, "--version: expected a whole number from 1, got 0"),
        ({"opset": 9}, "--opset: expected 18 to 23, got 9"),
        ({"min_agreement": 2.0}, "--min-agreement: expected a share from 0 to 1, got 2.0"),
        ({"max_error": -1.0}, "--max-error: expected a relative error, 0 or more, got -1.0"),
        ({"max_error": math.nan}, "--max-error: expected a relative error, 0 or more, got nan"),
        ({"name": "../up"}, "--name: expected"),
        ({"samples": -1}, "--samples: expected a number of rows, 0 or more, got -1"),
        ({"samples": 3}, "--samples: expected rows to store, got none: give some with --data"),
        ({"inputs": ["x"]}, "--input: expected NAME:DTYPE"),
    ],
)
def test_wrong_options_are_reported_first(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """They are reported before any work is done, and nothing is written."""
    with pytest.raises(UsageError) as error:
        export_network(tmp_path / "repo", **options)
    assert message in str(error.value)
    assert not (tmp_path / "repo").exists()


def test_labels_are_counted(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="expected 3 labels, one per column of output, got 2"):
        export_network(tmp_path / "repo", labels=["red", "green"])


def test_a_network_without_gates_exports(tmp_path: Path) -> None:
    result = export_model(nn.Linear(6, 3), tmp_path, inputs=INPUT)
    assert result.path == tmp_path / "Linear" / "1" / "model.onnx"
    assert result.manifest.gates == ()
    assert result.manifest.profile is None
    assert result.notes == ()


@pytest.mark.slow
def test_a_second_network_under_a_default_name_is_noted(tmp_path: Path) -> None:
    """It may be meant to be another model. A name that was given is no accident."""
    first, second = nn.Linear(6, 3), nn.Linear(6, 3)
    export_model(first, tmp_path, inputs=INPUT)
    assert export_model(first, tmp_path, inputs=INPUT).notes == ()
    (note,) = export_model(second, tmp_path, inputs=INPUT).notes
    assert note == "this is version 2 of 'Linear', the name of the source: give --name if it is another model"
    assert export_model(second, tmp_path, inputs=INPUT).notes == ()
    assert export_model(first, tmp_path, name="Linear", inputs=INPUT).notes == ()


class HighwayAndGlu(nn.Module):
    """A highway layer, and a gate that is none: nothing is carried in place of what it holds back."""

    def __init__(self) -> None:
        super().__init__()
        self.highway = HighwayLayer(6)
        self.value, self.gate = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.highway(x)
        return x + self.value(x) * torch.sigmoid(self.gate(x))


def test_gates_that_form_no_highway_are_named(tmp_path: Path) -> None:
    """With the line of the author's code; the report has them, too."""
    result = export_model(HighwayAndGlu(), tmp_path, inputs=INPUT, report=tmp_path / "report")
    assert len(result.manifest.gates) == 1
    (sentence,) = result.other_gates
    assert re.fullmatch(
        r"test_pipeline\.py:\d+ in forward: return x \+ .*: "
        r"T \* H \+ x: what is added to the product has no gate",
        sentence,
    )
    assert json.loads((tmp_path / "report/report.json").read_text())["other_gates"] == [sentence]
    assert html.escape(sentence, quote=False) in (tmp_path / "report/index.html").read_text()


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_gates_than_expected_is_an_error(tmp_path: Path, count: int) -> None:
    """The error names the gates and those that form no highway, and nothing is written."""
    found = rf"expected {count}, found 1: layer00\.transform_gate\. sigmoids .*: test_pipeline\.py:"
    with pytest.raises(GateCountError, match=found):
        export_model(HighwayAndGlu(), tmp_path, inputs=INPUT, expect_gates=count)
    assert list(tmp_path.iterdir()) == []
    export_model(HighwayAndGlu(), tmp_path, inputs=INPUT, expect_gates=1)


def test_exporting_does_not_change_the_module(tmp_path: Path) -> None:
    """The export runs in eval mode, and restores the mode afterwards."""
    net = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)).train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    export_model(net, tmp_path, name="net", inputs=INPUT)
    assert net.training
    assert net[1].training
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


def test_random_weights_are_marked_in_the_file(tmp_path: Path) -> None:
    """The warning of the export is soon gone; the file still says it."""
    (tmp_path / "net.py").write_text("from torch import nn\ndef make(): return nn.Linear(6, 3)\n")
    drawn = export_model(f"{tmp_path}/net.py:make", tmp_path / "to", inputs=INPUT)
    assert drawn.warnings[0].startswith("random weights: make makes them at random")
    assert "weights: random, drawn by the network's code; --weights loads trained ones" in summary_lines(
        drawn.manifest
    )
    assert ": random, none were loaded" in run_in_process("inspect", drawn.path).stdout
    assert not export_network(tmp_path / "to").manifest.random_weights


def test_networks_that_mix_rows_are_marked(tmp_path: Path) -> None:
    """The model is exported with a warning, and never batched."""

    class Mixing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(x, 0)

    result = export_model(Mixing(), tmp_path, inputs=INPUT)
    assert result.manifest.batch_coupled
    assert any("mixes the rows of a batch" in text for text in result.warnings)


def test_warnings_about_the_plain_twin_are_kept(tmp_path: Path) -> None:
    """Unless the same is said about the model: here the first tensor with other NaN is a gate."""

    class Normalized(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(F.normalize(x, dim=-1))

    class Centered(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x - x.mean(0))

    warnings = export_model(Normalized(HighwayLayer(6)), tmp_path, inputs=INPUT, plain=True).warnings
    assert [warning.partition(" with the batch")[0] for warning in warnings] == [
        "rounding: layer00.transform_gate",
        "plain.onnx: rounding: output",
    ]
    assert export_model(Centered(HighwayLayer(6)), tmp_path, inputs=INPUT, plain=True).warnings == (
        "the network mixes the rows of a batch: a row of output changes with the rows beside it",
    )


def test_the_steps_are_reported() -> None:
    started: list[str] = []
    progress: list[tuple[int, int]] = []

    class Recorder(ProgressListener):
        def started(self, step: str) -> None:
            started.append(step)

        def advanced(self, done: int, total: int) -> None:
            progress.append((done, total))

        def finished(self, step: str, seconds: float) -> None:
            assert seconds >= 0
            assert started[-1] == step

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        export_network(Path(folder), listener=Recorder(), report=Path(folder) / "report")
        assert (Path(folder) / "report" / "report.json").is_file()
    assert started == ["load", "trace", "verify", "measure", "write", "report"]
    assert progress[0][0] == 0
    assert progress[-1][0] == progress[-1][1] > 0


def test_the_package_exports_the_pipeline() -> None:
    assert export.export_model is export_model
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        export.nothing  # noqa: B018


def test_verify_repeats_the_proof(exported: ExportResult, tmp_path: Path) -> None:
    """Other random rows are used. A file of lower precision is checked by its agreement with fp32."""
    verified = verify_model(exported.path, network(), seed=5)
    assert verified.proof.parity.seed == 5
    assert verified.proof.parity.batches[0].digest != exported.manifest.parity.batches[0].digest
    fp16 = export_network(tmp_path, precision="fp16")
    verified = verify_model(fp16.path, network(), min_agreement=0.9)
    assert verified.comparison is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": "0" * 64}, "manifest: weights: expected the digest"),
        pytest.param(
            {"batch_coupled": True},
            "manifest: batch_coupled: expected False, got True",
            marks=pytest.mark.slow,
        ),
        ({"labels": ("x", "y", "z")}, "manifest: labels: expected red, green, blue, got x, y, z"),
        pytest.param(
            {"levers": 1}, "manifest: layer00.transform_gate: levers: expected", marks=pytest.mark.slow
        ),
        ({"gates": 1}, "gates: expected 2, as the source has, got 1"),
    ],
)
def test_verify_finds_a_false_manifest(
    labelled: ExportResult, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    gates = labelled.manifest.gates
    if "levers" in change:
        change = {"gates": (gates[0].model_copy(update={"levers": gates[1].levers}), gates[1])}
    elif "gates" in change:
        change = {"gates": gates[:1]}
    path = tmp_path / "model.onnx"
    path.write_bytes(embed_manifest(labelled.path.read_bytes(), labelled.manifest.model_copy(update=change)))
    with pytest.raises(ParityError, match=re.escape(message)):
        verify_model(path, network(), labels=LABELS)


def test_rows_that_the_network_rejects_are_one_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ids beyond an embedding and classes beyond the output's columns are such rows."""
    net = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 3)).eval()
    for ids, classes, message in (
        (np.full((4, 3), 7), np.zeros(4, np.int64), "--data: the network does not accept these rows"),
        (np.full((4, 3), 2), np.full(4, 3), "expected 0 to 2, the columns of output, got 3 in row 0"),
    ):
        np.savez(tmp_path / "rows.npz", ids=ids.astype(np.int64), y=classes)
        with pytest.raises((SourceError, RunError), match=message):
            export_model(
                net, tmp_path / "repo", name="m", inputs=["ids:int64[batch,3]"], data=tmp_path / "rows.npz"
            )
    assert "onnxruntime:" not in capfd.readouterr().err


def test_verify_finds_changes(exported: ExportResult, tmp_path: Path) -> None:
    """Changed weights, another network, and a file without its manifest are found."""
    other = network()
    with torch.no_grad():
        other[1].gate.bias[3] += 1e-3  # type: ignore[index]
    with pytest.raises(ParityError, match=r"another network, or with other --weights .*1\.gate\.bias"):
        verify_model(exported.path, other)
    with pytest.raises(ParityError, match="another network, .*: gates: expected 0, as the source has, got 2"):
        verify_model(exported.path, nn.Linear(6, 3), inputs=INPUT)
    plain = tmp_path / "plain.onnx"
    model = onnx.load(exported.path)
    del model.metadata_props[:]
    onnx.save(model, plain)
    with pytest.raises(SourceError, match="expected a file exported by turnpike"):
        verify_model(plain, network())
