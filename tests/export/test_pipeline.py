"""The whole way, from a module to a file that is served."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import export
from export.errors import ParityError, PrecisionError, RequestError, SourceError
from export.output.model_bytes import embed_manifest
from export.pipeline import export_model
from export.steps import ProgressListener
from export.verify import verify_model
from models.layers.highway import HighwayLayer
from service.artifact.runtime import open_model
from service.errors import RunError


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), HighwayLayer(8), HighwayLayer(8), nn.Linear(8, 3)).eval()


INPUT = ["x:float32[batch,6]"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Rows with classes that have something to do with them."""
    x = np.random.default_rng(0).standard_normal((60, 6)).astype(np.float32)
    with torch.no_grad():
        y = network()(torch.from_numpy(x)).argmax(1).numpy()
    path = tmp_path / "rows.npz"
    np.savez(path, x=x, y=y)
    return path


def exported(to: Path, **more: Any) -> Any:
    return export_model(network(), to, **{"name": "net", "inputs": INPUT, **more})


def test_what_comes_out(tmp_path: Path, rows: Path) -> None:
    """A file with its manifest: gates as hidden outputs, parity, profile and lesion curve."""
    done = exported(tmp_path / "repo", data=rows, labels=["red", "green", "blue"])
    assert done.path == tmp_path / "repo" / "net" / "1" / "model.onnx"
    runtime = open_model(done.path)
    manifest = runtime.manifest
    assert manifest == done.manifest
    assert manifest is not None
    assert manifest.labels == ("red", "green", "blue")
    assert [gate.name for gate in manifest.gates] == ["layer00.transform_gate", "layer01.transform_gate"]
    assert {(gate.kind, gate.carry, gate.units) for gate in manifest.gates} == {("coupled", "identity", 8)}
    assert [str(one) for one in runtime.outputs] == ["output:float32[batch,3]"]
    assert manifest.profile is not None
    assert manifest.profile.rows == 60
    assert manifest.lesion is not None
    assert manifest.lesion.accuracy == 1
    assert [one.layer for one in manifest.lesion.layers] == [0, 1]
    assert not manifest.batch_coupled
    assert manifest.parity.identical == len(network().state_dict())
    onnx.checker.check_model(done.path, full_check=True)


def test_the_file_answers_as_the_module_does(tmp_path: Path) -> None:
    """The prediction and the gates, for a caller who knows nothing but the file."""
    net = network()
    runtime = open_model(exported(tmp_path).path)
    x = torch.randn(5, 6)
    output, gate = runtime.run({"x": x.numpy()}, ["output", "layer00.transform_gate"])
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(output), net(x))
        torch.testing.assert_close(torch.from_numpy(gate), net[1].gate(net[0](x)))  # type: ignore[index]


def test_exporting_again_writes_nothing(tmp_path: Path) -> None:
    """The same network is the same file; another one takes the next version, and the old one stays."""
    first = exported(tmp_path)
    assert first.written
    again = exported(tmp_path)
    assert (again.path, again.written) == (first.path, False)
    other = network()
    with torch.no_grad():
        other[0].weight[0, 0] += 1  # type: ignore[index]
    second = export_model(other, tmp_path, name="net", inputs=INPUT)
    assert second.path == tmp_path / "net" / "2" / "model.onnx"
    assert second.manifest.version == 2
    assert open_model(first.path).manifest == first.manifest


def test_own_rows_come_along_when_asked_for(tmp_path: Path, rows: Path) -> None:
    """Without them the file tells of ranges alone; asked for, some are in it, always the same ones."""
    first = exported(tmp_path / "repo", data=rows)
    x = np.load(rows)["x"]
    (bounds,) = first.manifest.ranges
    assert (bounds.input, bounds.low, bounds.high) == ("x", float(x.min()), float(x.max()))
    assert first.manifest.samples == ()
    second = exported(tmp_path / "repo", data=rows, samples=3)
    assert (second.written, second.manifest.version) == (True, 2)
    assert second.manifest.content == first.manifest.content
    known = {row.tobytes() for row in x}
    assert len(second.manifest.samples) == 3
    assert {sample.inputs[0].raw for sample in second.manifest.samples} <= known
    assert not exported(tmp_path / "repo", data=rows, samples=3).written


def test_without_rows_there_is_nothing_to_bring_along(tmp_path: Path) -> None:
    """Neither ranges nor samples."""
    manifest = exported(tmp_path).manifest
    assert manifest.ranges == manifest.samples == ()


def test_a_version_that_is_asked_for_is_replaced(tmp_path: Path) -> None:
    """The file is replaced as a whole."""
    export_model(nn.Linear(6, 3), tmp_path, name="net", version=4, inputs=INPUT)
    done = exported(tmp_path, version=4)
    assert done.path == tmp_path / "net" / "4" / "model.onnx"
    assert len(done.manifest.gates) == 2
    assert [entry.name for entry in done.path.parent.iterdir()] == ["model.onnx"]


def test_the_same_bytes_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing in them tells of a folder, a source file or a trace."""
    digests = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        data = exported(Path("repo")).path.read_bytes()
        digests.add(hashlib.sha256(data).hexdigest())
        assert b".py" not in data
        assert os.fsencode(tmp_path) not in data
    assert len(digests) == 1


def test_names_in_the_file_are_readable(tmp_path: Path) -> None:
    """Weights as in the module, gates and layers as a person counts them."""
    graph = onnx.load(exported(tmp_path).path).graph
    assert {"1.gate.weight", "2.gate.bias", "0.weight"} <= {one.name for one in graph.initializer}
    values = {name for node in graph.node for name in node.output}
    assert {"layer00.transform_gate", "layer00.output", "layer01.transform_gate"} <= values


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_lower_precision_says_how_well_it_agrees(tmp_path: Path, rows: Path, precision: str) -> None:
    """Its manifest holds the agreement and the metrics, its file fewer bits and the same outputs."""
    done = exported(tmp_path, precision=precision, data=rows, min_agreement=0.5)
    variant = done.manifest.variant
    assert done.manifest.precision == precision
    assert variant is not None
    assert variant.agreement >= 0.5
    assert variant.metric_fp32 == 1
    assert [str(one) for one in open_model(done.path).outputs] == ["output:float32[batch,3]"]
    assert exported(tmp_path, precision=precision, data=rows, min_agreement=0.5).written is False


def test_a_variant_that_disagrees_is_refused(tmp_path: Path) -> None:
    """With the figures, and nothing is written."""

    class Sharp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(6, 2)
            with torch.no_grad():
                # the two classes differ by less than 8 bits can tell
                self.line.weight.copy_(self.line.weight[:1] + torch.tensor([[0.0], [1e-4]]))
                self.line.weight[:, 0] = 1.0
                self.line.bias.zero_()

        def forward(self, x: Tensor) -> Tensor:
            return self.line(x)

    with pytest.raises(PrecisionError, match=r"expected agreement with fp32 of 0\.999.*, got 0\."):
        export_model(Sharp(), tmp_path / "repo", inputs=INPUT, precision="int8", min_agreement=0.999)
    assert not (tmp_path / "repo").exists()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"precision": "fp8"}, "--precision: expected fp32, fp16, int8, got 'fp8'"),
        ({"version": 0}, "--version: expected a whole number from 1, got 0"),
        ({"opset": 9}, "--opset: expected 18 to 23, got 9"),
        ({"min_agreement": 2.0}, "--min-agreement: expected a share from 0 to 1, got 2.0"),
        ({"name": "../up"}, "--name: expected"),
        ({"samples": -1}, "--samples: expected a number of rows, 0 or more, got -1"),
        ({"samples": 3}, "--samples: expected rows to store, got none: give some with --data"),
        ({"inputs": ["x"]}, "--input: expected NAME:DTYPE"),
    ],
)
def test_wrong_settings_cost_nothing(tmp_path: Path, wrong: dict[str, Any], says: str) -> None:
    """Each is named with what was expected, and nothing is written."""
    with pytest.raises(RequestError) as error:
        exported(tmp_path / "repo", **wrong)
    assert says in str(error.value)
    assert not (tmp_path / "repo").exists()


def test_labels_are_counted(tmp_path: Path) -> None:
    """As many as the output has columns."""
    with pytest.raises(SourceError, match="expected 3 names, one per column of output, got 2"):
        exported(tmp_path / "repo", labels=["red", "green"])


def test_a_network_without_gates_exports(tmp_path: Path) -> None:
    """And its manifest says that there are none."""
    done = export_model(nn.Linear(6, 3), tmp_path, inputs=INPUT)
    assert done.path == tmp_path / "Linear" / "1" / "model.onnx"
    assert done.manifest.gates == ()
    assert done.manifest.profile is None


def test_the_module_is_as_before(tmp_path: Path) -> None:
    """Its mode, weights and gradients included; an export is made in eval mode whatever it was in."""
    net = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)).train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    export_model(net, tmp_path, name="net", inputs=INPUT)
    assert net.training
    assert net[1].training
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


def test_rows_that_mix_are_marked(tmp_path: Path) -> None:
    """A model whose rows depend on each other is exported with a warning, and never to be batched."""

    class Mixing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(x, 0)

    done = export_model(Mixing(), tmp_path, inputs=INPUT)
    assert done.manifest.batch_coupled
    assert any("mixes the rows of a batch" in text for text in done.warnings)


def test_the_steps_are_told() -> None:
    """In their order, the long one with how far it came."""
    heard: list[str] = []
    moves: list[tuple[int, int]] = []

    class Ear(ProgressListener):
        def started(self, step: str) -> None:
            heard.append(step)

        def advanced(self, done: int, total: int) -> None:
            moves.append((done, total))

        def finished(self, step: str, seconds: float) -> None:
            assert seconds >= 0
            assert heard[-1] == step

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        exported(Path(folder), listener=Ear(), report=Path(folder) / "report")
        assert (Path(folder) / "report" / "report.json").is_file()
    assert heard == ["load", "trace", "verify", "measure", "write", "report"]
    assert moves[0][0] == 0
    assert moves[-1][0] == moves[-1][1] > 0


def test_the_package_offers_the_pipeline() -> None:
    """`from export import export_model` is the way in for programs."""
    assert export.export_model is export_model
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        export.nothing  # noqa: B018


def test_verify_proves_it_again(tmp_path: Path) -> None:
    """On other random rows; a file of lower precision by its agreement."""
    whole = exported(tmp_path)
    again = verify_model(whole.path, network(), seed=5)
    assert again.proof.parity.seed == 5
    assert again.proof.parity.batches[0].digest != whole.manifest.parity.batches[0].digest
    half = exported(tmp_path, precision="fp16")
    compared = verify_model(half.path, network(), min_agreement=0.9)
    assert compared.comparison is not None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"weights": "0" * 64}, "manifest: weights: expected the digest"),
        ({"batch_coupled": True}, "manifest: batch_coupled: expected False, got True"),
        ({"labels": ("x", "y", "z")}, "manifest: labels: expected red, green, blue, got x, y, z"),
        ({"levers": 1}, "manifest: layer00.transform_gate: levers: expected"),
        ({"gates": 1}, "expected the 2 gates of its source, got 1"),
    ],
)
def test_verify_sees_a_manifest_that_lies(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    """What a file says of itself is held against its source, too."""
    names = ["red", "green", "blue"]
    done = exported(tmp_path, labels=names)
    gates = done.manifest.gates
    if "levers" in change:
        change = {"gates": (gates[0].model_copy(update={"levers": gates[1].levers}), gates[1])}
    elif "gates" in change:
        change = {"gates": gates[:1]}
    lying = embed_manifest(done.path.read_bytes(), done.manifest.model_copy(update=change))
    done.path.write_bytes(lying)
    with pytest.raises(ParityError, match=re.escape(says)):
        verify_model(done.path, network(), labels=names)


def test_rows_that_the_network_cannot_take_are_one_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ids beyond an embedding, and classes beyond the output's columns."""
    net = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 3)).eval()
    for ids, classes, says in (
        (np.full((4, 3), 7), np.zeros(4, np.int64), "data: the network does not accept these rows"),
        (np.full((4, 3), 2), np.full(4, 3), "expected 0 to 2, the columns of output, got 3 in row 0"),
    ):
        np.savez(tmp_path / "rows.npz", ids=ids.astype(np.int64), y=classes)
        with pytest.raises((SourceError, RunError), match=says):
            export_model(
                net, tmp_path / "repo", name="m", inputs=["ids:int64[batch,3]"], data=tmp_path / "rows.npz"
            )
    assert "onnxruntime:" not in capfd.readouterr().err


def test_verify_sees_what_changed(tmp_path: Path) -> None:
    """Another network's weights, another network, and a file that was tampered with."""
    done = exported(tmp_path)
    other = network()
    with torch.no_grad():
        other[1].gate.bias[3] += 1e-3  # type: ignore[index,union-attr]
    with pytest.raises(ParityError, match=re.escape("1.gate.bias")):
        verify_model(done.path, other)
    with pytest.raises(ParityError, match="expected the 2 gates of its source"):
        verify_model(done.path, nn.Linear(6, 3), inputs=INPUT)
    plain = tmp_path / "plain.onnx"
    model = onnx.load(done.path)
    del model.metadata_props[:]
    onnx.save(model, plain)
    with pytest.raises(SourceError, match="expected a file exported by turnpike"):
        verify_model(plain, network())
