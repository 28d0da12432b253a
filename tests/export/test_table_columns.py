"""Tables with words, booleans, dates and blanks: trained, exported, and run in onnxruntime."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch

from tests.support.run_cli import run_in_process
from turnpike.export.compress import trials
from turnpike.export.compress.remove_units import CompressionResult, compress_model
from turnpike.export.compress.speed import Timing
from turnpike.export.errors import ParityError, SourceError, SourceOptionError, UsageError
from turnpike.export.output.model_bytes import embed_manifest
from turnpike.export.pipeline import ExportResult, export_model
from turnpike.export.verify import verify_model
from turnpike.models.cli.training_run import config_for_data
from turnpike.models.data.load import load_dataset
from turnpike.models.data.table.options import TableOptions
from turnpike.models.networks.feedforward import MlpConfig
from turnpike.models.training.checkpoint import load_network
from turnpike.models.training.evaluate import r2
from turnpike.models.training.recipe import Recipe
from turnpike.models.training.run_plan import RunPlan
from turnpike.models.training.train import train

ROWS = 400
HEADER = "mass [kg],length,color,member,day,price"
NAMES = ("mass [kg]", "length", "color", "member", "day")
KINDS = ("number", "number", "category", "boolean", "date")
BLANK = float("nan")
# cells as the network gets them: blanks everywhere, a word that was never seen, and an ordinary row
HARD_ROWS = np.array(
    [
        [BLANK] * 5,
        [50.0, BLANK, 3.0, 1.0, 17_000.0],
        [BLANK, 0.5, 99.0, BLANK, 17_000.5],
        [50.0, 0.5, 1.0, 0.0, BLANK],
        [50.0, 0.5, 1.0, 0.0, 17_000.0],
    ],
    np.float32,
)


def save_table(path: Path, task: str) -> Path:
    """A table in which each column but the second has blanks, and says something about the last one."""
    draw = random.Random(0)
    lines = [HEADER]
    for _ in range(ROWS):
        mass, length = draw.gauss(50, 10), draw.gauss(0, 1)
        color, member = draw.choice(["red", "green", "blue"]), draw.random() < 0.5
        day = f"{draw.randint(2015, 2020)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
        price = mass / 10 + {"red": 3, "green": 0, "blue": -3}[color] + 2 * member
        cells = [f"{mass:.2f}", f"{length:.3f}", color, "yes" if member else "no", day]
        cells = [cell if column == 1 or draw.random() > 0.1 else "" for column, cell in enumerate(cells)]
        lines.append(
            ",".join([*cells, f"{price:.4f}" if task == "number" else "low" if price < 6 else "high"])
        )
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module", params=["classes", "number"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training run, with its table beside the checkpoint."""
    folder = tmp_path_factory.mktemp(request.param)
    data = load_dataset(str(save_table(folder / "table.csv", request.param)))
    assert data.task == request.param
    config = config_for_data(MlpConfig(inputs=(1,), classes=2, width=16, layers=3), data, [])
    train(RunPlan("table", config, Recipe(epochs=8, batch=16, lr=0.01, threads=1), data, folder))
    return folder


@pytest.fixture(scope="module")
def exported(run: Path) -> ExportResult:
    return export_model(run, run / "models", data=run / "table.csv", report=run / "report", samples=4)


@pytest.fixture
def any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network is so narrow that no cut makes it faster; here each cut is twice as fast."""
    monkeypatch.setattr(
        trials,
        "measure_speed",
        lambda runtimes, *_: [Timing({1: 1.0 if number else 2.0}) for number in range(len(runtimes))],
    )


def answers(path: Path, rows: np.ndarray[Any, Any], *outputs: str) -> list[Any]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(list(outputs), {"x": rows})


def test_blanks_and_unseen_words_are_answered_as_in_pytorch(run: Path, exported: ExportResult) -> None:
    net, _ = load_network(run / "model.safetensors")
    with torch.inference_mode():
        expected = net.eval()(torch.from_numpy(HARD_ROWS)).numpy()
    (actual,) = answers(exported.path, HARD_ROWS, exported.manifest.outputs[0])
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    # a blank, and a word that was never seen, are something else than the cells of the last row
    assert (np.abs(actual[:4] - actual[4]) > 1e-4).any(1).all()
    gates = answers(exported.path, HARD_ROWS, *(gate.name for gate in exported.manifest.gates))
    assert all(np.isfinite(gate).all() for gate in gates)


def test_the_file_is_proved_with_blanks_and_unseen_words(exported: ExportResult) -> None:
    identity, parity = exported.manifest.identity, exported.manifest.parity
    assert identity is not None
    assert identity.verdict == "identical"
    assert parity.verdict == "pass"
    assert {"blanks", "unseen words", "real rows"} <= {batch.name for batch in parity.batches}


def test_the_columns_are_published(run: Path, exported: ExportResult) -> None:
    features = exported.manifest.features
    assert tuple(feature.name for feature in features) == NAMES
    assert tuple(feature.kind for feature in features) == KINDS
    assert [feature.blanks for feature in features] == [True, False, True, True, True]
    mass, _, color, member, day = features
    assert (mass.unit, color.categories, (color.low, color.high)) == ("kg", ("blue", "green", "red"), (0, 2))
    assert (member.low, member.high) == (0, 1)
    assert 16_000 < day.low < day.mean < day.high < 19_000
    train_rows = load_dataset(str(run / "table.csv")).train.x[:, 0]
    known = train_rows[~train_rows.isnan()].double()
    assert (mass.low, mass.high) == (known.min().item(), known.max().item())
    assert (mass.mean, mass.sd) == pytest.approx((known.mean().item(), known.std(correction=0).item()))
    assert exported.manifest.target == "price"


def test_a_run_is_exported_without_its_table(run: Path, exported: ExportResult, tmp_path: Path) -> None:
    alone = export_model(run, tmp_path, hide_categories=True)
    assert "features" in verify_model(alone.path, run).claims.checked
    with pytest.raises(SourceError, match="the words of column 'color' are not in the model"):
        compress_model(alone.path, tmp_path / "cut", data=run / "table.csv", keep=0.5)
    assert alone.manifest.identity is not None
    assert alone.manifest.identity.verdict == "identical"
    hidden = alone.manifest.features
    assert [feature.categories for feature in hidden] == [()] * 5
    assert [replace_words(feature) for feature in exported.manifest.features] == list(hidden)
    for word in ("red", "green", "blue"):
        assert f'"{word}"'.encode() not in alone.path.read_bytes()
    np.testing.assert_array_equal(
        answers(alone.path, HARD_ROWS, "output")[0], answers(exported.path, HARD_ROWS, "output")[0]
    )


def replace_words(feature: Any) -> Any:
    return feature.model_copy(update={"categories": ()})


def test_a_number_is_judged_by_r2(run: Path, exported: ExportResult) -> None:
    manifest, page = exported.manifest, (run / "report" / "index.html").read_text()
    lesion = manifest.lesion
    assert lesion is not None
    if manifest.task == "classes":
        assert "accuracy with the layer closed" in page
        assert "R2 with" not in page
        return
    net, record = load_network(run / "model.safetensors")
    test = load_dataset(str(run / "table.csv")).test
    with torch.inference_mode():
        predicted = net.eval()(test.x)[:, 0]
    assert lesion.accuracy == pytest.approx(r2(predicted, test.y), abs=1e-5)
    assert lesion.accuracy == pytest.approx(record.metrics["test_r2"], abs=1e-5)
    assert lesion.loss == pytest.approx((predicted - test.y).abs().mean().item(), rel=1e-4)
    assert min(layer.accuracy for layer in lesion.layers) < lesion.accuracy
    assert all(0 <= layer.flipped <= 1 for layer in lesion.layers)
    assert max(layer.flipped for layer in lesion.layers) > 0
    assert "R2 with the layer closed" in page
    assert "mean absolute error" in page
    assert "ccuracy" not in page


def test_a_lower_precision_is_compared(run: Path, tmp_path: Path) -> None:
    result = export_model(
        run, tmp_path, data=run / "table.csv", precision="int8", max_error=0.2, min_agreement=0.95
    )
    variant = result.manifest.variant
    assert variant is not None
    assert variant.metric is not None
    assert variant.metric_fp32 is not None
    assert variant.metric == pytest.approx(variant.metric_fp32, abs=0.1)
    assert np.isfinite(answers(result.path, HARD_ROWS, "output")[0]).all()


def test_what_the_file_says_is_verified(run: Path, exported: ExportResult) -> None:
    for data in (run / "table.csv", None):
        claims = verify_model(exported.path, run, data=data).claims
        assert {"features", "task", "target"} <= set(claims.checked)
    assert "samples" in verify_model(exported.path, run, data=run / "table.csv").claims.checked


def test_false_columns_are_found(run: Path, exported: ExportResult, tmp_path: Path) -> None:
    """Words may be left out, but only those of all columns."""
    features = list(exported.manifest.features)
    for number, changes in ((2, {"categories": ("green", "blue", "red")}), (1, {"blanks": True})):
        false = [*features]
        false[number] = false[number].model_copy(update=changes)
        manifest = exported.manifest.model_copy(update={"features": tuple(false)})
        path = tmp_path / "model.onnx"
        path.write_bytes(embed_manifest(exported.path.read_bytes(), manifest))
        with pytest.raises(ParityError, match="features: expected .*, of the training run, got"):
            verify_model(path, run)


def test_blanks_of_a_column_without_any_in_training_are_refused(run: Path, tmp_path: Path) -> None:
    rows = np.tile(HARD_ROWS[4], (3, 1))
    rows[1, 1] = np.nan
    np.savez(tmp_path / "rows.npz", x=rows)
    with pytest.raises(SourceError, match="row 1: expected a value of 'length', which had no blanks"):
        export_model(run, tmp_path / "models", data=tmp_path / "rows.npz")
    path = tmp_path / "other.csv"
    path.write_text((run / "table.csv").read_text().replace("member", "members"))
    with pytest.raises(SourceError, match="expected a column 'member', as in the training, got none"):
        export_model(run, tmp_path / "models", data=path)


def test_a_model_takes_the_table_that_it_was_trained_on(tmp_path: Path) -> None:
    """Also the blanks of rows that were left out of the training, or that only tested it."""
    table = tmp_path / "plain.csv"
    lines = [f"{n},{n % 5},{n % 7},{'' if n == 99 else n % 3},{'xy'[n % 2]}" for n in range(100)]
    lines[50] = "50,,5,3,"
    table.write_text("\n".join(["t,answered,always,tested,class", *lines]))
    data = load_dataset(str(table), table=TableOptions(time_column="t", kinds={"t": "number"}))
    assert data.unanswered == 1
    config = config_for_data(MlpConfig(inputs=(1,), classes=2, width=4, layers=1), data, [])
    train(RunPlan("table", config, Recipe(epochs=1, threads=1), data, tmp_path / "run"))
    result = export_model(tmp_path / "run", tmp_path / "models", data=table)
    assert [feature.blanks for feature in result.manifest.features] == [False, True, False, True]
    assert result.manifest.identity is not None
    assert result.manifest.identity.verdict == "identical"
    ran = run_in_process("predict", tmp_path / "models" / "plain", table)
    assert ran.exit_code == 0, ran.stderr
    answers = list(csv.DictReader(io.StringIO(ran.stdout)))
    assert len(answers) == 100
    assert {answer["label"] for answer in answers} <= {"x", "y"}
    assert all(0 <= float(answer["probability"]) <= 1 for answer in answers)


def test_units_are_removed_within_a_drop_of_r2(run: Path, any_speed: None, tmp_path: Path) -> None:
    """Points of R2 are to a number what points of accuracy are to classes."""
    result = compress_model(
        run, tmp_path, data=run / "table.csv", max_drop=20, report=tmp_path / "report", seed=1
    )
    manifest, compression = result.manifest, result.manifest.compression
    assert compression is not None
    assert compression.metric is not None
    assert compression.metric_whole is not None
    assert compression.units < compression.units_whole
    assert manifest.identity is not None
    assert manifest.identity.verdict == "identical"
    assert (manifest.target, manifest.features[2].categories) == ("price", ("blue", "green", "red"))
    page = (tmp_path / "report" / "index.html").read_text()
    if manifest.task == "number":
        whole = load_network(run / "model.safetensors")[1].metrics["test_r2"]
        assert compression.metric_whole == pytest.approx(whole, abs=1e-5)
        assert compression.agreement is None
        assert "R2 of the whole network" in page
        assert "ccuracy" not in page
    else:
        assert "accuracy of the whole network" in page


def test_an_exported_file_is_compressed_on_a_table(
    run: Path, exported: ExportResult, any_speed: None, tmp_path: Path
) -> None:
    """The file itself says how the cells of a table become numbers, and which column is predicted."""
    result = compress_model(exported.path, tmp_path, data=run / "table.csv", keep=0.5)
    assert result.manifest.features == exported.manifest.features
    assert (result.manifest.task, result.manifest.target) == (exported.manifest.task, "price")
    compression = result.manifest.compression
    assert compression is not None
    assert compression.metric is not None
    verified = verify_model(result.path, exported.path)
    assert {"features", "task", "target"} <= set(verified.claims.checked)


def test_words_that_were_hidden_stay_hidden(
    run: Path, exported: ExportResult, any_speed: None, tmp_path: Path
) -> None:
    """By the source, by the newest version of the model, or by the option; other models keep theirs."""
    table, to = run / "table.csv", tmp_path / "models"

    def words(result: CompressionResult) -> bool:
        data = result.path.read_bytes()
        found = [f'"{word}"'.encode() in data for word in ("red", "green", "blue")]
        assert len(set(found)) == 1
        return found[0]

    hidden = export_model(run, to, data=table, hide_categories=True)
    compressed = compress_model(run, to, data=table, keep=0.5)
    assert (compressed.manifest.version, words(compressed)) == (2, False)
    said = "the words of categories are left out, as in version 1 of table"
    assert any(text.startswith(said) for text in compressed.warnings)
    assert "features" in verify_model(compressed.path, hidden.path).claims.checked
    rows = load_dataset(str(table)).train.x.numpy()
    np.savez(tmp_path / "rows.npz", x=rows)
    assert not words(compress_model(hidden.path, tmp_path / "other", data=tmp_path / "rows.npz", keep=0.5))
    by_option = compress_model(run, tmp_path / "option", data=table, keep=0.5, hide_categories=True)
    assert not words(by_option)
    named = compress_model(run, to, data=table, keep=0.5, name="named")
    assert words(named)
    for result in (by_option, named):
        assert not any("categories" in text for text in result.warnings)


def test_numbers_are_no_classes_of_an_output_with_several_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.ones((3, 2), np.float32), y=np.array([0.5, 1.5, 2.5]))
    with pytest.raises(SourceOptionError, match="expected one class per row, for the 3 columns of output"):
        export_model(
            torch.nn.Linear(2, 3),
            tmp_path / "models",
            inputs=["x:float32[batch,2]"],
            data=tmp_path / "rows.npz",
        )


def test_intervals_of_the_training_are_published(tmp_path: Path) -> None:
    """In fp32, where they were measured; not in int8, and not if units are removed."""
    data = load_dataset(str(save_table(tmp_path / "table.csv", "number")))
    config = config_for_data(MlpConfig(inputs=(1,), classes=2, width=16, layers=3), data, [])
    recipe = Recipe(epochs=8, batch=16, lr=0.01, threads=1)
    metrics = train(RunPlan("table", config, recipe, data, tmp_path, interval=0.8)).record.metrics
    exported = export_model(tmp_path, tmp_path / "models")
    interval = exported.manifest.interval
    assert interval is not None
    assert (interval.level, interval.rows) == (0.8, len(data.valid))
    assert interval.half_width == metrics["interval_half_width"]
    assert "interval" in verify_model(exported.path, tmp_path).claims.checked

    # a wider interval than that of the training is a false claim
    wider = exported.manifest.model_copy(
        update={"interval": interval.model_copy(update={"half_width": 2 * interval.half_width})}
    )
    changed = tmp_path / "changed.onnx"
    changed.write_bytes(embed_manifest(exported.path.read_bytes(), wider))
    with pytest.raises(ParityError, match="manifest: interval: expected"):
        verify_model(changed, tmp_path)

    eighths = export_model(
        tmp_path,
        tmp_path / "int8",
        data=tmp_path / "table.csv",
        precision="int8",
        min_agreement=0,
        max_error=9,
    )
    assert eighths.manifest.interval is None
    assert any("the intervals of the training are left out" in warning for warning in eighths.warnings)


@pytest.mark.usefixtures("any_speed")
def test_a_compressed_network_has_no_interval(tmp_path: Path) -> None:
    data = load_dataset(str(save_table(tmp_path / "table.csv", "number")))
    config = config_for_data(MlpConfig(inputs=(1,), classes=2, width=16, layers=3), data, [])
    recipe = Recipe(epochs=2, batch=16, lr=0.01, threads=1)
    train(RunPlan("table", config, recipe, data, tmp_path, interval=0.8))
    cut = compress_model(tmp_path, tmp_path / "cut", data=tmp_path / "table.csv", keep=0.5)
    assert cut.manifest.interval is None
    assert any("the intervals are left out" in warning for warning in cut.warnings)


def test_dates_keep_their_digits_in_fp16(run: Path, exported: ExportResult, tmp_path: Path) -> None:
    """With the usual limits; blanks and unseen words are answered as in fp32."""
    half = export_model(run, tmp_path, data=run / "table.csv", precision="fp16")
    assert half.manifest.variant is not None
    assert half.manifest.variant.error is not None
    assert half.manifest.variant.error < 0.005
    output = exported.manifest.outputs[0]
    (actual,), (expected,) = (answers(result.path, HARD_ROWS, output) for result in (half, exported))
    np.testing.assert_allclose(actual, expected, rtol=0.02, atol=0.02)


def test_a_network_that_predicts_something_else_is_no_next_version(
    run: Path, exported: ExportResult, any_speed: None, tmp_path: Path
) -> None:
    """Unless its version is given, since a server would answer with it in place of the newest one."""
    export_model(run, tmp_path, data=run / "table.csv")
    kind = "classes" if exported.manifest.task == "classes" else "a number"
    other_run, other_kind = tmp_path / "other", "a number" if kind == "classes" else "classes"
    table = save_table(tmp_path / "table.csv", "classes" if kind == "a number" else "number")
    table.write_text(table.read_text().replace("price", "cost of it").replace("length", "height"))
    data = load_dataset(str(table))
    config = config_for_data(MlpConfig(inputs=(1,), classes=2, width=16, layers=3), data, [])
    train(RunPlan("table", config, Recipe(epochs=1, batch=16, lr=0.01, threads=1), data, other_run))
    refused = (
        rf"version 1 of 'table' predicts 'price' \({kind}\), and this network 'cost of it' "
        rf"\({other_kind}\): .*Give --name table-cost-of-it, or --version 2"
    )
    with pytest.raises(UsageError, match=refused):
        export_model(other_run, tmp_path)
    with pytest.raises(UsageError, match=refused):
        compress_model(other_run, tmp_path, data=table, keep=0.5)
    assert not (tmp_path / "table" / "2").exists()

    named = export_model(other_run, tmp_path, name="table-cost-of-it")
    assert not any("columns are not" in text for text in named.warnings)
    columns = (
        "the columns are not those of version 1 of 'table', so its callers may be refused: "
        "new are 'height' and missing are 'length'"
    )
    second = export_model(other_run, tmp_path, version=2)
    assert (second.manifest.version, columns in second.warnings) == (2, True)
    # the newest version now predicts what this network does
    cut = compress_model(other_run, tmp_path, data=table, keep=0.5)
    assert (cut.manifest.version, any("columns are" in text for text in cut.warnings)) == (3, False)


def test_a_later_export_publishes_no_hidden_words(run: Path, tmp_path: Path) -> None:
    """Another name does, and so does a model whose newest version has words."""
    first = export_model(run, tmp_path, hide_categories=True)
    assert not any("categories" in text for text in first.warnings)
    again = export_model(run, tmp_path, data=run / "table.csv", version=2)
    assert again.manifest.version == 2
    assert again.manifest.features[2].categories == ()
    said = (
        "the words of categories are left out, as in version 1 of table: --name makes a model that has them"
    )
    assert said in again.warnings
    named = export_model(run, tmp_path, name="named")
    assert named.manifest.features[2].categories == ("blue", "green", "red")
    assert not any("categories" in text for text in named.warnings)
    assert not any("categories" in text for text in export_model(run, tmp_path, name="named").warnings)
