"""`turnpike compress` from end to end: a smaller file that is proved, faster, and says what it lacks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from tests.support.run_cli import run_in_process
from tests.support.text_checkpoint import save_names_checkpoint
from turnpike.export.cli.compress import curve_table
from turnpike.export.compress import speed, trials
from turnpike.export.compress.graph.cut_graph import CutGraph, cut_units
from turnpike.export.compress.remove_units import compress_model
from turnpike.export.compress.selection import most_important, smallest_share
from turnpike.export.compress.speed import Timing
from turnpike.export.errors import (
    CompressionError,
    ExportError,
    ParityError,
    SourceError,
    SourceOptionError,
    UsageError,
)
from turnpike.export.identity.decision import Verdict
from turnpike.export.measure.run_times import RunTimes
from turnpike.export.parity.batches import REAL_ROWS
from turnpike.export.pipeline import export_model
from turnpike.export.verify import VerificationResult, verify_model
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import EntryKind, MlpConfig
from turnpike.service.artifact.manifest import Compression
from turnpike.service.artifact.runtime import device_available, open_model
from turnpike.service.errors import DeviceError, ModelFileError

WIDTH = 16
INPUT = f"x:float32[batch,{WIDTH}]"
Array = np.ndarray[Any, np.dtype[Any]]


def network(width: int = WIDTH, entry: EntryKind = "none", **settings: Any) -> torch.nn.Module:
    """A network of which a few units of each layer are open, and all others are nearly shut."""
    torch.manual_seed(0)
    config = MlpConfig(
        inputs=(width,), classes=3, width=width, layers=3, entry=entry, scaling="none", **settings
    )
    net = build_network(config).eval()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("gate.bias"):
                parameter.fill_(-12)
                parameter[: width // 4] = 1
    return net


def write_rows(path: Path, net: torch.nn.Module, count: int = 200, width: int = WIDTH) -> Path:
    x = np.random.default_rng(0).standard_normal((count, width)).astype(np.float32)
    with torch.no_grad():
        np.savez(path, x=x, y=net(torch.from_numpy(x)).argmax(1).numpy())
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the whole network as version 1, and rows."""
    folder = tmp_path_factory.mktemp("compress")
    rows = write_rows(folder / "rows.npz", network())
    export_model(network(), folder / "repository", inputs=[INPUT], name="net", data=rows)
    return folder


@pytest.mark.usefixtures("any_speed")
def test_an_exported_file_becomes_a_smaller_version(folder: Path, tmp_path: Path) -> None:
    """The open quarter of the units is found, and says all that the whole network does."""
    source = folder / "repository/net/1/model.onnx"
    result = compress_model(source, tmp_path, data=folder / "rows.npz", keep=0.25)
    manifest, whole = result.manifest, open_model(source).manifest
    assert whole is not None
    assert [gate.name for gate in manifest.gates] == [gate.name for gate in whole.gates]
    assert {gate.kept for gate in manifest.gates} == {tuple(range(4))}
    assert {gate.units for gate in manifest.gates} == {4}
    assert manifest.parity.reference.startswith("the whole graph with the removed units carried, by onnx's")
    assert len(manifest.parity.tensors) == 7
    assert manifest.profile is not None
    assert [len(layer.units) for layer in manifest.profile.layers] == [4, 4, 4]
    assert isinstance(manifest.compression, Compression)
    assert (manifest.compression.units, manifest.compression.units_whole) == (12, 48)
    assert manifest.compression.macs / manifest.compression.macs_whole == 0.25
    assert manifest.compression.original == whole.weights
    assert (manifest.compression.agreement, manifest.compression.metric) == (1, 1)
    assert (manifest.compression.calibration_rows, manifest.compression.rows) == (100, 100)
    assert result.path.stat().st_size < source.stat().st_size

    x = np.random.default_rng(5).standard_normal((9, WIDTH)).astype(np.float32)
    answers = [open_model(path).run({"x": x})[0] for path in (source, result.path)]
    np.testing.assert_allclose(answers[1], answers[0], atol=1e-3)


@pytest.mark.usefixtures("any_speed")
def test_a_file_with_shortened_sums_is_cut(tmp_path: Path) -> None:
    """The export adds operators there. Both forms of the cut graph are tried, and each loses its rows."""
    net = network(entry="plain")
    rows = write_rows(tmp_path / "rows.npz", net)
    source = export_model(net, tmp_path / "whole", inputs=[INPUT], name="net").path
    assert any(node.name.endswith(".change") for node in onnx.load(source).graph.node)
    compression = compress_model(source, tmp_path / "smaller", data=rows, keep=0.25).manifest.compression
    assert compression is not None
    assert compression.macs / compression.macs_whole == 0.25


@pytest.mark.usefixtures("any_speed")
def test_the_smallest_share_within_a_limit_is_found(folder: Path, tmp_path: Path) -> None:
    """An open unit less changes answers. The names of the repository's versions go on."""
    source = folder / "repository/net/1/model.onnx"
    result = compress_model(source, tmp_path, data=folder / "rows.npz", max_drop=0.5)
    assert 0.1 < result.point.share <= 0.3
    assert [point.share for point in result.curve] == sorted(
        (point.share for point in result.curve), reverse=True
    )
    assert result.curve[0].agreement == 1
    assert result.curve[-1].agreement < result.point.agreement
    more = compress_model(source, tmp_path, data=folder / "rows.npz", keep=0.5)
    assert (result.manifest.version, more.manifest.version) == (1, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("any_speed")
@pytest.mark.parametrize("precision", ["fp32", pytest.param("int8", marks=pytest.mark.slow)])
def test_other_sources_and_precisions(folder: Path, tmp_path: Path, precision: Any) -> None:
    """A factory, and a file without gates and manifest as of another tool; the rows have no classes."""
    (tmp_path / "net.py").write_text(
        "from tests.export.compress.test_remove_units import network\n\n\ndef make():\n    return network()\n"
    )
    rows = np.load(folder / "rows.npz")["x"]
    np.savez(tmp_path / "rows.npz", x=rows)
    made = onnx.load(
        export_model(network(), tmp_path / "other", inputs=[INPUT], name="net", plain=True).plain or ""
    )
    del made.metadata_props[:]
    onnx.save(made, tmp_path / "other.onnx")
    for source in (f"{tmp_path}/net.py:make", tmp_path / "other.onnx"):
        result = compress_model(
            source,
            tmp_path / "repository",
            data=tmp_path / "rows.npz",
            keep=0.3,
            inputs=[INPUT] if str(source).endswith(":make") else (),
            precision=precision,
        )
        assert result.manifest.precision == precision
        assert (result.manifest.variant is None) == (precision == "fp32")
        assert result.manifest.compression is not None
        assert result.manifest.compression.metric is None
        assert result.point.agreement == 1
        assert len(result.manifest.gates) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("any_speed")
def test_a_compressed_file_is_verified_against_its_source(folder: Path, tmp_path: Path) -> None:
    """Another network, and a file with a changed weight, are refused."""
    source = folder / "repository/net/1/model.onnx"
    path = compress_model(source, tmp_path, data=folder / "rows.npz", keep=0.25).path
    for against in (source, network()):
        assert len(verify_model(path, against).proof.parity.tensors) == 7
    other = network()
    with torch.no_grad():
        next(other.parameters()).mul_(1.01)
    other_file = export_model(other, tmp_path / "other", inputs=[INPUT], name="net").path
    with pytest.raises(ParityError, match="does not compute what its source does with the removed units"):
        verify_model(path, other_file)
    changed = onnx.load(path)
    weights = next(
        tensor for tensor in changed.graph.initializer if tensor.name.endswith("normal_layer.weight.kept")
    )
    array = onnx.numpy_helper.to_array(weights).copy()
    array[1, 2] += 0.01
    weights.CopyFrom(onnx.numpy_helper.from_array(array, weights.name))
    onnx.save(changed, tmp_path / "changed.onnx")
    with pytest.raises(ParityError, match="does not compute what its source does with the removed units"):
        verify_model(tmp_path / "changed.onnx", source)


@pytest.mark.usefixtures("any_speed")
def test_a_compressed_file_is_verified_with_all_options(folder: Path, tmp_path: Path) -> None:
    """On the user's rows, with the user's labels, on the device; whatever the file is compared with."""
    source, rows = folder / "repository/net/1/model.onnx", folder / "rows.npz"
    path = compress_model(source, tmp_path, data=rows, keep=0.25).path
    for against in (source, network()):
        assert REAL_ROWS not in batch_names(verify_model(path, against))
        assert REAL_ROWS in batch_names(verify_model(path, against, data=rows))
        with pytest.raises(SourceOptionError, match="--data: expected a .csv"):
            verify_model(path, against, data=tmp_path / "absent.npz")
        with pytest.raises(ParityError, match="manifest: labels: expected a, b, c, got "):
            verify_model(path, against, labels=["a", "b", "c"])
        if not device_available("cuda"):
            with pytest.raises(DeviceError, match="cuda"):
                verify_model(path, against, device="cuda")
    shown = run_in_process("verify", str(path), "--against", str(source), "--data", str(rows), "--json")
    assert REAL_ROWS in {batch["name"] for batch in json.loads(shown.stdout)["parity"]["batches"]}
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    refused = run_in_process(
        "verify", str(path), "--against", str(source), "--labels", str(tmp_path / "labels.txt")
    )
    assert refused.exit_code == 1
    assert "labels: expected a, b, c, got" in refused.stderr


def add_1e30th(model: ir.Model) -> None:
    """After the first Relu: too little to be seen in a sum of float32."""
    relu = next(node for node in model.graph if node.op_type == "Relu")
    number = ir.Value(name="tiny", const_value=ir.tensor(np.float32(1e-30), name="tiny"))
    model.graph.register_initializer(number)
    total = ir.node("Add", [relu.outputs[0], number])
    for user, index in tuple(relu.outputs[0].uses()):
        if user is not total:
            user.replace_input_with(index, total.outputs[0])
    model.graph.insert_after(relu, total)


@pytest.mark.usefixtures("any_speed")
def test_a_cut_is_decided_for_every_input(folder: Path, tmp_path: Path) -> None:
    """It is the whole network with the removed units carried. What no batch shows is refused."""
    source = folder / "repository/net/1/model.onnx"
    path = compress_model(source, tmp_path, data=folder / "rows.npz", keep=0.25).path
    for against in (source, network()):
        identity = verify_model(path, against).identity
        assert identity is not None
        assert identity.verdict is Verdict.IDENTICAL, identity
        # the output, and gate and output of three layers
        assert len(identity.compared) == 7
        assert identity.levers is not None
        assert identity.levers.verdict is Verdict.IDENTICAL, identity.levers
        assert len(identity.levers.carried) == 3
    model = ir.load(path)
    add_1e30th(model)
    ir.save(model, tmp_path / "changed.onnx")
    with pytest.raises(
        ParityError,
        match="removed units carried, or was made from another source: the graph: expected the same",
    ):
        verify_model(tmp_path / "changed.onnx", source)


@pytest.mark.usefixtures("any_speed")
def test_a_cut_that_no_batch_finds_wrong_is_not_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit of H is off by 1e-30."""

    def wrong(*arguments: Any) -> CutGraph:
        cut = cut_units(*arguments)
        add_1e30th(cut.model)
        return cut

    monkeypatch.setattr("turnpike.export.compress.trials.cut_units", wrong)
    source = folder / "repository/net/1/model.onnx"
    with pytest.raises(ParityError, match="expected the same function of every input"):
        compress_model(source, tmp_path, data=folder / "rows.npz", keep=0.25)
    assert not list(tmp_path.rglob("*.onnx"))


def batch_names(result: VerificationResult) -> set[str]:
    return {batch.name for batch in result.proof.parity.batches}


@pytest.mark.parametrize(
    ("option", "value"), [("--input", {"inputs": [INPUT]}), ("--weights", {"weights": Path("w.pt")})]
)
def test_options_that_an_exported_file_leaves_without_effect_are_refused(
    folder: Path, tmp_path: Path, option: str, value: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=f"{option}: expected none with .*model.onnx, because"):
        compress_model(
            folder / "repository/net/1/model.onnx", tmp_path, data=folder / "rows.npz", keep=0.25, **value
        )


class RowsLast(torch.nn.Module):
    """The network with a batch on the last axis of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.transpose(0, 1))


@pytest.mark.slow
@pytest.mark.usefixtures("any_speed")
def test_the_axis_of_the_batch_is_recorded(folder: Path, tmp_path: Path) -> None:
    """From the module, and from its export, which alone knows it."""
    options: dict[str, Any] = {"data": folder / "rows.npz", "keep": 0.25}
    net, inputs = RowsLast().eval(), [f"x:float32[{WIDTH},batch]"]
    cut = compress_model(net, tmp_path / "one", inputs=inputs, **options)
    exported = export_model(net, tmp_path / "two", inputs=inputs, data=folder / "rows.npz")
    again = compress_model(exported.path, tmp_path / "two", **options)
    assert cut.manifest.batch_axes == again.manifest.batch_axes == {"x": 1}
    verified = verify_model(cut.path, net, inputs=inputs, data=folder / "rows.npz")
    assert "batch_axes" in verified.claims.checked


@pytest.mark.slow
@pytest.mark.usefixtures("any_speed")
def test_an_output_without_classes_has_no_answers_to_compare(tmp_path: Path) -> None:
    """A network with one number as its output; nothing claims how many answers are the same."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(network(), torch.nn.Linear(3, 1)).eval()
    np.savez(
        tmp_path / "rows.npz", x=np.random.default_rng(0).standard_normal((200, WIDTH)).astype(np.float32)
    )
    result = compress_model(net, tmp_path / "new", data=tmp_path / "rows.npz", inputs=[INPUT], keep=0.25)
    assert result.manifest.compression is not None
    assert result.manifest.compression.agreement is None
    assert {point.agreement for point in result.curve} == {None}
    shown = curve_table(result.manifest, result.manifest.compression)
    assert [column.header for column in shown.columns] == ["units", "multiplications", "1 row"]
    with pytest.raises(UsageError, match="--max-drop: expected an output with a number for each class"):
        compress_model(net, tmp_path / "new", data=tmp_path / "rows.npz", inputs=[INPUT], max_drop=1)


@pytest.mark.usefixtures("any_speed")
def test_a_share_of_no_unit_or_of_all_is_refused(folder: Path, tmp_path: Path) -> None:
    """The message says how many units the share is."""
    source = folder / "repository/net/1/model.onnx"
    for keep, units in ((0.99, 48), (0.01, 0)):
        with pytest.raises(
            UsageError, match=f"--keep: expected .* of the 48 units, got {keep}, which keeps {units}$"
        ):
            compress_model(source, tmp_path, data=folder / "rows.npz", keep=keep)


@pytest.mark.usefixtures("any_speed")
def test_a_limit_that_other_rows_break_is_a_warning(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search keeps it on the rows that units are chosen on; here all cuts keep it there."""
    monkeypatch.setattr("turnpike.export.compress.selection.points_lost", lambda comparison, quality: 0.0)
    source = folder / "repository/net/1/model.onnx"
    result = compress_model(source, tmp_path, data=folder / "rows.npz", max_drop=0.5)
    assert any(text.startswith("--max-drop: ") and "more than 0.5" in text for text in result.warnings)
    # with --strict, nothing is written
    with pytest.raises(CompressionError, match="--max-drop: .* points are lost on the rows that judge"):
        compress_model(source, tmp_path / "strict", data=folder / "rows.npz", max_drop=0.5, strict=True)
    assert not list((tmp_path / "strict").rglob("*.onnx"))


@pytest.mark.usefixtures("any_speed")
def test_rows_that_are_unlike_those_of_the_export_are_a_warning(folder: Path, tmp_path: Path) -> None:
    """What is measured on them says little about others. A few far rows are usual."""
    source = folder / "repository/net/1/model.onnx"
    rows = dict(np.load(folder / "rows.npz"))
    for count, is_warned in ((2, False), (60, True)):
        changed = rows["x"].copy()
        changed[:count, 3] = 99
        np.savez(tmp_path / "rows.npz", x=changed, y=rows["y"])
        result = compress_model(source, tmp_path / "new", data=tmp_path / "rows.npz", keep=0.25)
        warned = [text for text in result.warnings if text.startswith("--data: ")]
        assert len(warned) == is_warned
        if is_warned:
            assert warned[0].startswith("--data: 30% of the rows have values of x outside of the -")
            assert "to 99. What is measured on such rows" in warned[0]


@pytest.mark.parametrize(
    ("gains", "message"),
    [
        # by the number of units that are kept
        (
            {3: 1.5, 12: 1.01},
            "with 12 of 48 units the graph is no faster: 1.01x with 1 row. "
            "With fewer units it is no faster either",
        ),
        (
            {3: 1.5, 12: 1.01, 5: 1.2},
            "1.01x with 1 row. With --keep 0.1 it would be faster: 1.20x with 1 row",
        ),
        (
            {3: 1.04, 12: 1.5},
            "this network does not get faster. With one unit in each layer, 3 of 48, a run takes",
        ),
    ],
)
def test_a_cut_that_is_not_faster_is_not_written(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gains: dict[int, float],
    message: str,
) -> None:
    """Layers may be so narrow that they gain nothing: the error says which share would, if any does."""
    kept: list[int] = []
    cut = trials.Cutter.cut

    def counted(cutter: trials.Cutter, units: Any, *form: Any) -> trials.OpenCut:
        kept.append(sum(map(len, units.values())))
        return cut(cutter, units, *form)

    def measure(runtimes: Any, *arguments: Any) -> list[Timing]:
        # the second form is the faster one
        return [Timing({1: 1.0}), Timing({1: 2.0}), Timing({1: 1 / gains.get(kept[-1], 1.0)})]

    monkeypatch.setattr(trials.Cutter, "cut", counted)
    monkeypatch.setattr(trials, "measure_speed", measure)
    with pytest.raises(CompressionError, match=re.escape(message)):
        compress_model(
            folder / "repository/net/1/model.onnx", tmp_path / "new", data=folder / "rows.npz", keep=0.25
        )
    assert not list(tmp_path.rglob("*.onnx"))
    if 3 in gains and gains[3] < trials.MIN_GAIN:
        # before any unit was chosen
        assert set(kept) == {3}


def test_nothing_is_decided_by_times_that_say_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load, a cut was 11 times as fast as the whole network, or had 0.17 of its speed."""

    def time(runs: Any) -> RunTimes:
        return RunTimes(tuple(1.0 / (1 + number) for number in range(len(runs))), noise=0.3)

    monkeypatch.setattr(speed, "time_in_turn", time)
    with pytest.raises(CompressionError, match=r"^not written: the speed cannot be measured now\. .* by 30%"):
        compress_model(
            folder / "repository/net/1/model.onnx", tmp_path / "new", data=folder / "rows.npz", keep=0.25
        )
    assert not list(tmp_path.rglob("*.onnx"))


@pytest.mark.slow
def test_a_lower_precision_that_is_slower_is_not_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph in fp32 is compared in two forms, and the file with the whole network alone."""

    def measure(runtimes: Any, *arguments: Any) -> list[Timing]:
        cut = Timing({1: 2.0 if len(runtimes) == 2 else 0.5})
        return [Timing({1: 1.0}), *[cut] * (len(runtimes) - 1)]

    monkeypatch.setattr(trials, "measure_speed", measure)
    with pytest.raises(
        CompressionError, match=r"--precision int8: expected .* here is 0.50x with 1 row: use fp32"
    ):
        compress_model(
            folder / "repository/net/1/model.onnx",
            tmp_path,
            data=folder / "rows.npz",
            keep=0.25,
            precision="int8",
        )
    assert not list(tmp_path.rglob("model.onnx"))


@pytest.mark.usefixtures("any_speed")
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, UsageError, "--keep and --max-drop: expected one of the two"),
        ({"keep": 0.2, "max_drop": 1.0}, UsageError, "--keep and --max-drop: expected one of the two"),
        ({"keep": 1.5}, UsageError, "--keep: expected a share of the units between 0 and 1, got 1.5"),
        ({"max_drop": -1.0}, UsageError, "--max-drop: expected points from 0 to 100, got -1.0"),
        (
            {"keep": 0.2, "data": "narrow.npz"},
            SourceError,
            r"--data: .*narrow.npz: x: expected shape \(rows, 16\)",
        ),
        ({"keep": 0.2, "data": "single.npz"}, SourceError, "--data: .*single.npz: expected 2 rows or more"),
        ({"keep": 0.2, "data": "few.npz"}, SourceError, "--data: expected 200 rows or more, .*, got 199"),
        ({"keep": 0.2, "strict": True}, UsageError, "--strict: expected --max-drop, which it is about"),
        ({"keep": 0.2, "data": "nowhere"}, SourceError, "--data: expected a .csv, .parquet or .npz file"),
        ({"keep": 0.2, "source": "plain"}, CompressionError, "gates: expected a highway layer .*, got none"),
        (
            {"max_drop": 0.0, "source": "hard"},
            CompressionError,
            "--max-drop: expected a share of the units that",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    error: type[ExportError],
    message: str,
) -> None:
    """Nothing is written."""
    monkeypatch.chdir(folder)
    np.savez("narrow.npz", x=np.zeros((10, 3), np.float32))
    np.savez("single.npz", x=np.zeros((1, WIDTH), np.float32))
    np.savez("few.npz", x=np.zeros((199, WIDTH), np.float32))
    sources = {
        "plain": network(kind="plain"),
        # every unit is open
        "hard": network(gate_bias=1.0),
    }
    source = options.pop("source", None)
    path = folder / "repository/net/1/model.onnx"
    if source is not None:
        if source == "hard":
            with torch.no_grad():
                for name, parameter in sources[source].named_parameters():
                    if name.endswith("gate.bias"):
                        parameter.fill_(1)
            write_rows(tmp_path / "rows.npz", sources[source], count=2000)
            options["data"] = tmp_path / "rows.npz"
        path = export_model(sources[source], tmp_path / "source", inputs=[INPUT], name="net").path
    with pytest.raises(error, match=message):
        compress_model(path, tmp_path / "new", **{"data": folder / "rows.npz", **options})
    assert not (tmp_path / "new/net").exists()


@pytest.mark.usefixtures("any_speed")
def test_the_command_shows_the_curve_and_inspect_the_rest(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(folder / "repository/net/1/model.onnx"), "--data", str(folder / "rows.npz")]
    page = tmp_path / "report/index.html"
    options = ["--keep", "0.25", "--to", str(tmp_path), "--report", str(page.parent)]
    result = run_in_process("compress", *arguments, *options)
    assert result.exit_code == 0, result.stderr
    assert f"report: {page}" in result.stdout.replace("\n", "")
    assert "units kept: 12 of 48, by layer: 4 of 16, 4 of 16, 4 of 16" in result.stdout
    assert "25.0%" in result.stdout
    assert "rows: units chosen on 100, the result judged on 100 others" in result.stdout
    # by hand: 100 / (100 + 1.96 ** 2)
    assert "same answers: 100.00%, for all rows of this kind 96.30% to 100.00%" in result.stdout
    inspected = run_in_process("inspect", str(tmp_path / "net/1/model.onnx"))
    assert "12 of 48 units, 25.0% of the layers' multiplications" in inspected.stdout
    assert "1.0000 equal answers on 100 rows, accuracy 1.0000 (whole: 1.0000)" in inspected.stdout
    result = run_in_process("compress", *arguments, *options, "--json")
    record = json.loads(result.stdout)
    assert record["report"] == str(page)
    assert record["written"] is False
    assert record["kept"]["layer00.transform_gate"] == {"units": 4, "of": 16}
    assert record["point"]["macs"] == 0.25


@pytest.mark.usefixtures("any_speed")
def test_the_report_has_the_proof_the_gates_and_what_each_layer_keeps(folder: Path, tmp_path: Path) -> None:
    """Also layers of which nothing is left. Maps have the units where they were."""
    source, rows = folder / "repository/net/1/model.onnx", folder / "rows.npz"
    result = compress_model(source, tmp_path / "new", data=rows, keep=0.05, report=tmp_path / "report")
    assert result.report == tmp_path / "report/index.html"
    html = result.report.read_text()
    for title in (
        "Compression",
        "The same function",
        "Rounding",
        "Gates",
        "Layers by units",
        "Lesions",
        "Provenance",
    ):
        assert f"<h2>{title}</h2>" in html
    assert "of onnx&#x27;s own evaluator against the whole graph with the removed units carried" in html
    record = json.loads((tmp_path / "report/report.json").read_text())
    assert {
        name: (layer["units"], layer["of"]) for name, layer in record["kept"].items()
    } == result.unit_counts
    gates = {gate.name: gate for gate in result.manifest.gates}
    assert set(record["kept"]) - set(gates), "a layer is gone"
    assert result.manifest.profile is not None
    means = {layer.gate: layer.units for layer in result.manifest.profile.layers}
    for row, gate in zip(record["panel"]["means"], gates.values(), strict=True):
        assert gate.kept is not None
        assert record["kept"][gate.name]["kept"] == list(gate.kept)
        assert [unit for unit, mean in enumerate(row) if mean is not None] == list(gate.kept)
        assert len(row) == WIDTH
        assert [row[unit] for unit in gate.kept] == pytest.approx(means[gate.name], rel=1e-5)


@pytest.mark.usefixtures("any_speed")
def test_a_file_whose_proof_is_not_its_own_is_refused(folder: Path, tmp_path: Path) -> None:
    """Changed weights, weights in another file, which is never read, and an already compressed file."""
    rows, source = folder / "rows.npz", folder / "repository/net/1/model.onnx"
    compressed = compress_model(source, tmp_path / "new", data=rows, keep=0.25).path
    with pytest.raises(SourceError, match="expected a whole network, got one that is compressed already"):
        compress_model(compressed, tmp_path / "again", data=rows, keep=0.5)

    model = onnx.load(source)
    weights = next(
        tensor for tensor in model.graph.initializer if tensor.name.endswith("normal_layer.weight")
    )
    array = onnx.numpy_helper.to_array(weights)
    weights.CopyFrom(onnx.numpy_helper.from_array(2 * array, weights.name))
    onnx.save(model, tmp_path / "changed.onnx")
    with pytest.raises(SourceError, match="expected the graph and weights that were exported, got others"):
        compress_model(tmp_path / "changed.onnx", tmp_path / "again", data=rows, keep=0.5)

    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="secret.bin")
    (tmp_path / "secret.bin").write_bytes(array.tobytes())
    (tmp_path / "external.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelFileError, match="expected its values in this file, got a reference to another"):
        compress_model(tmp_path / "external.onnx", tmp_path / "again", data=rows, keep=0.5)
    assert not (tmp_path / "again/net").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("any_speed")
def test_a_smaller_network_takes_the_texts_of_the_whole_one(tmp_path: Path) -> None:
    """Its conversion is proved too."""
    run = save_names_checkpoint(tmp_path / "model.safetensors")
    whole = export_model(run, tmp_path / "whole").manifest
    smaller = compress_model(run, tmp_path / "smaller", data="names", keep=0.5).manifest
    assert whole.text is not None
    assert smaller.text is not None
    assert (smaller.text.scheme, smaller.text.words) == ("alphabet", 8)
    assert smaller.text.texts > whole.text.texts
    assert smaller.alphabet == whole.alphabet


def test_units_are_ranked_over_all_layers() -> None:
    importance = {"a": np.array([0.1, 5, 0.3]), "b": np.array([4, 0.2])}
    assert most_important(importance, 0.4) == {"a": [1], "b": [0]}
    assert most_important(importance, 0.6) == {"a": [1, 2], "b": [0]}
    assert most_important({"a": np.ones(3), "b": np.ones(1)}, 0.5) == {"a": [0, 1], "b": []}


def test_the_search_halves_the_range() -> None:
    tried: list[float] = []

    def keeps_limit(share: float) -> bool:
        tried.append(share)
        return share >= 0.17

    share = smallest_share(keeps_limit, lambda done, total: None)
    assert share is not None
    assert 0.17 <= share < 0.175
    assert len(tried) == 9
    assert smallest_share(lambda share: False, lambda done, total: None) is None
