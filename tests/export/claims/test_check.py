"""One false claim at a time in the manifest of a real file: refused, with what was expected and what came."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn

from tests.support.tiny_checkpoint import tiny_record
from turnpike.export.claims.check import check_claims
from turnpike.export.claims.checklist import NO_CHECK, NO_ROWS, OTHER_ROWS, Claims, field_paths
from turnpike.export.claims.graph_claims import expect_same_interface
from turnpike.export.claims.verified_file import VerifiedFile
from turnpike.export.errors import ParityError
from turnpike.export.graph_identity import decide_identity
from turnpike.export.identity.decision import Decision, Verdict
from turnpike.export.input_spec import parse_inputs
from turnpike.export.measure.gate_profile import profile_gates
from turnpike.export.measure.lesion_curve import MAX_LESION_ROWS, lesion_curve
from turnpike.export.measure.sample_rows import choose_samples
from turnpike.export.network import Network, Rows
from turnpike.export.optimized.decide_optimized import decide_optimized
from turnpike.export.options import SourceOptions
from turnpike.export.output.model_bytes import embed_manifest
from turnpike.export.parity.rounding import measure_rounding
from turnpike.export.pipeline import export_model
from turnpike.export.prepared_graph import prepare_like
from turnpike.export.proved_graph import identity_record
from turnpike.export.sources.load import load_source
from turnpike.export.verify import verify_model
from turnpike.models.layers.highway import HighwayLayer
from turnpike.service.artifact.manifest import LesionCurve, Manifest, Variant
from turnpike.service.artifact.proof_records import (
    InputRange,
    Parity,
    ParityBatch,
    RoundedConstant,
)
from turnpike.service.artifact.runtime import open_model
from turnpike.service.artifact.text_records import TextInput

INPUT = "x:float32[batch,6]"
LABELS = ("red", "green", "blue")
FEATURES = tuple("abcdef")


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), HighwayLayer(8), HighwayLayer(8), nn.Linear(8, 3)).eval()


def save_rows(path: Path, seed: int) -> Path:
    """Rows that have another distribution than random ones."""
    x = (3 + 2 * np.random.default_rng(seed).standard_normal((40, 6))).astype(np.float32)
    np.savez(path, x=x, y=np.arange(40) % 3)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("claims")


@pytest.fixture(scope="module")
def rows(folder: Path) -> Path:
    return save_rows(folder / "rows.npz", 0)


def verified(path: Path, spec: str = INPUT, net: nn.Module | None = None, **options: Any) -> VerifiedFile:
    """A file with what a verification computes, for checks of many manifests."""
    runtime, model, net = open_model(path), ir.from_proto(onnx.load(path)), net or network()
    assert runtime.manifest is not None
    source = load_source(net, SourceOptions(inputs=parse_inputs([spec]), **options))
    graph = prepare_like(source, model, plain=False)
    proof = measure_rounding(source, graph.traced, model, graph.gates.origins, runtimes=[runtime])
    identity = decide_identity(source, graph, model)
    optimized = decide_optimized(path.read_bytes())
    return VerifiedFile(
        path, runtime, runtime.manifest, model, net, source, graph, proof, identity, optimized
    )


@pytest.fixture(scope="module")
def on_rows(folder: Path, rows: Path) -> VerifiedFile:
    """A file that was exported with rows, and is verified with them."""
    path = export_model(
        network(),
        folder / "with",
        name="net",
        inputs=[INPUT],
        data=rows,
        labels=LABELS,
        features=FEATURES,
        samples=2,
    ).path
    return verified(path, data=rows, labels=LABELS)


@pytest.fixture(scope="module")
def without_rows(folder: Path) -> VerifiedFile:
    """A file that was exported without rows, with another seed than that of its verification."""
    path = export_model(network(), folder / "without", name="net", inputs=[INPUT], seed=4).path
    return verified(path)


def check(file: VerifiedFile, network: Network | None = None, **changes: Any) -> Claims:
    manifest = file.manifest.model_copy(update=changes)
    return check_claims(replace(file, manifest=manifest, network=network or file.network))


def test_every_field_is_checked_or_claimed_with_a_reason(on_rows: VerifiedFile) -> None:
    """With the rows of the export, hardly anything is left to believe."""
    claims = check(on_rows)
    assert NO_CHECK not in claims.claimed.values()
    assert set(claims.claimed) == {"features.name", "features.unit", "random_weights", "tools"}
    noted = {*claims.checked, *claims.claimed}
    for path in field_paths(Manifest):
        parts = path.split(".")
        covered = {".".join(parts[:length]) for length in range(1, len(parts) + 1)} & noted
        known = {"alphabet", "text", "picture", "interval", "variant", "compression"}
        assert covered or parts[0] in known, path


def test_without_the_rows_of_the_export_what_they_gave_is_claimed(
    on_rows: VerifiedFile, folder: Path
) -> None:
    without = replace(on_rows.network, rows=None)
    claimed = check(on_rows, without).claimed
    measured = {"profile", "lesion", "ranges", "samples", "features", "parity.batches.digest", "parity.seed"}
    assert measured == {field for field, reason in claimed.items() if reason == NO_ROWS}
    others = load_source(
        network(), SourceOptions(inputs=[INPUT], data=save_rows(folder / "others.npz", 9), labels=LABELS)
    )
    claimed = check(on_rows, others).claimed
    assert measured == {field for field, reason in claimed.items() if reason == OTHER_ROWS}


def test_a_file_without_rows_is_verified_with_any(without_rows: VerifiedFile, on_rows: VerifiedFile) -> None:
    """Its batches are those of its own seed, whatever rows and seed the verification has."""
    assert without_rows.proof.parity.seed != without_rows.manifest.parity.seed
    for source in (without_rows.network, on_rows.network):
        unlabelled = replace(source, labels=())
        assert {"parity.batches", "parity.seed"} <= set(check(without_rows, unlabelled).checked)


def parity(file: VerifiedFile, **changes: Any) -> dict[str, Any]:
    return {"parity": file.manifest.parity.model_copy(update=changes)}


def first(items: tuple[Any, ...], **changes: Any) -> tuple[Any, ...]:
    return (items[0].model_copy(update=changes), *items[1:])


Change = Callable[[Manifest], dict[str, Any]]


def of_parity(change: Callable[[Parity], dict[str, Any]]) -> Change:
    return lambda manifest: {"parity": manifest.parity.model_copy(update=change(manifest.parity))}


def of_record(field: str, change: Callable[[Any], dict[str, Any]]) -> Change:
    return lambda manifest: {
        field: getattr(manifest, field).model_copy(update=change(getattr(manifest, field)))
    }


FALSE: dict[str, Change] = {
    "layer00.transform_gate: layer: expected 0, got 7": lambda m: {"gates": first(m.gates, layer=7)},
    "layer00.transform_gate: levers: expected": lambda m: {"gates": first(m.gates, levers=())},
    "gates: expected 2, as the source has, got 1": lambda m: {"gates": m.gates[:1]},
    "outputs: expected output, got layer00.transform_gate": lambda m: {
        "outputs": ("layer00.transform_gate",)
    },
    "batch_axes: expected {}, got {'x': 1}": lambda m: {"batch_axes": {"x": 1}},
    "batch_coupled: expected False, got True": lambda m: {"batch_coupled": True},
    "weights: expected the digest of the source's": lambda m: {"weights": "0" * 64},
    "content: expected": lambda m: {"content": "0" * 64},
    "precision: expected a graph with weights in fp16": lambda m: {"precision": "fp16"},
    "labels: expected red, green, blue, got x, y, z": lambda m: {"labels": ("x", "y", "z")},
    "features: expected 6, the columns of x, got 5": lambda m: {"features": m.features[:5]},
    "features: a: low: expected": lambda m: {"features": first(m.features, low=-1e3)},
    "text: input: expected an input, x, got 'y'": lambda m: {
        "text": TextInput(input="y", scheme="bytes", words=1, characters=1, texts=1, digest="")
    },
    "parity.reference: expected 'the original network in float64', got 'a proof'": of_parity(
        lambda p: {"reference": "a proof"}
    ),
    "parity: providers: expected some of": of_parity(lambda p: {"providers": ("A", *p.providers)}),
    "parity: providers: expected CPUExecutionProvider, where every proof runs, got none": of_parity(
        lambda p: {"providers": ()}
    ),
    "parity: providers: expected distinct ones, got CPUExecutionProvider, CPU": of_parity(
        lambda p: {"providers": p.providers * 2}
    ),
    "parity: seed: expected 0 or more, got -1": of_parity(lambda p: {"seed": -1}),
    "parity: batches: '1 row': digest: expected": of_parity(lambda p: {"seed": 5}),
    "parity: batches: 'strided': digest: expected": of_parity(
        lambda p: {
            "batches": tuple(
                batch.model_copy(update={"digest": "0" * 64}) if batch.name == "strided" else batch
                for batch in p.batches
            )
        }
    ),
    "parity: batches: '1 row': rows: expected 1, got 2000": of_parity(
        lambda p: {"batches": first(p.batches, rows=2000)}
    ),
    "parity: batches: 'mine': expected the batches that turnpike makes": of_parity(
        lambda p: {"batches": (*p.batches, ParityBatch(name="mine", rows=2000, digest="0"))}
    ),
    "batches, got": of_parity(lambda p: {"batches": p.batches[:-1]}),
    "parity.tensors.name: expected": of_parity(lambda p: {"tensors": p.tensors[::-1]}),
    "parity: tensors: layer00.transform_gate: rms: expected within 100 times": of_parity(
        lambda p: {"tensors": first(p.tensors, rms=0.0)}
    ),
    "parity: tensors: layer00.transform_gate: max_torch: expected within": of_parity(
        lambda p: {"tensors": first(p.tensors, max_torch=1.0)}
    ),
    "parity: input_ranges: expected each input of numbers at most once, x, got 'y'": of_parity(
        lambda p: {"input_ranges": (InputRange(input="y", low=0, high=1),)}
    ),
    "parity: input_ranges: x: expected low below high": of_parity(
        lambda p: {"input_ranges": (InputRange(input="x", low=1, high=1),)}
    ),
    "identity.verdict: expected 'identical', as decided now, got 'not decided'": of_record(
        "identity", lambda i: {"verdict": "not decided"}
    ),
    "identity.compared: expected 5, got 9": of_record("identity", lambda i: {"compared": 9}),
    "identity.runs: expected 3, got 30": of_record("identity", lambda i: {"runs": 30}),
    "identity.error_bound: expected": of_record("identity", lambda i: {"error_bound": 0.0}),
    "identity.rounded.name: expected none, got": of_record(
        "identity", lambda i: {"rounded": (RoundedConstant(name="c", ulp=0.5),)}
    ),
    "identity: reason: expected none": of_record("identity", lambda i: {"reason": "because"}),
    "profile.layers.gate: expected": of_record("profile", lambda p: {"layers": first(p.layers, gate="g")}),
    "profile: layers[0]: mean: expected": of_record(
        "profile", lambda p: {"layers": first(p.layers, mean=0.9)}
    ),
    "profile: layer00.transform_gate: units: expected 8 numbers, got 1": of_record(
        "profile", lambda p: {"layers": first(p.layers, units=(0.5,))}
    ),
    "profile.epsilon: expected 0.01, got 0.5": of_record("profile", lambda p: {"epsilon": 0.5}),
    "profile.levels: expected": of_record("profile", lambda p: {"levels": (0.1,)}),
    "profile: rows: expected 40, got 2000": of_record("profile", lambda p: {"rows": 2000}),
    "profile: digest: expected": of_record("profile", lambda p: {"digest": "0" * 64}),
    "profile: contrast: expected 2 gates, got 1": of_record("profile", lambda p: {"contrast": ((0.0,),)}),
    "lesion: accuracy: expected": of_record("lesion", lambda p: {"accuracy": 0.999}),
    "lesion: layers: expected layers that can be closed, 0, 1": of_record(
        "lesion", lambda p: {"layers": first(p.layers, layer=4)}
    ),
    "ranges: expected input='x'": lambda m: {"ranges": (InputRange(input="x", low=-1, high=1),)},
    "ranges: expected an input, x, got 'y'": lambda m: {"ranges": (InputRange(input="y", low=-1, high=1),)},
    "samples[0]: expected a row of the data, got another": lambda m: {"samples": m.samples[::-1]},
    "samples[0]: label: expected one of the labels": lambda m: {"samples": first(m.samples, label="pink")},
    "variant: expected none for a file in fp32": lambda m: {"variant": Variant(agreement=1.0, rows=4)},
}


@pytest.mark.parametrize("message", FALSE)
def test_a_false_claim_is_refused(on_rows: VerifiedFile, message: str) -> None:
    changes = FALSE[message](on_rows.manifest)
    with pytest.raises(ParityError, match=re.escape(message)) as refused:
        check(on_rows, **changes)
    assert str(refused.value).startswith(f"{on_rows.path}: manifest: ")


def test_one_sample_may_be_any_row_of_its_class(on_rows: VerifiedFile) -> None:
    """The row whose answer flips depends on rounding; older files have the first rows only."""
    loaded, labels = on_rows.network.rows, on_rows.manifest.labels
    assert loaded is not None
    for flipped in (None, 0, 7, 39):
        samples = choose_samples(loaded, 5, labels, flipped)
        assert "samples" in check(on_rows, samples=samples).checked
    first, second = (choose_samples(loaded, 5, labels, flipped) for flipped in (7, 8))
    with pytest.raises(ParityError, match=r"samples\[1\]: expected a row of the data"):
        check(on_rows, samples=(first[0], first[1], second[2], *first[3:]))


def test_figures_of_the_first_rows_are_those_of_older_files(folder: Path) -> None:
    """Newer ones are of rows that are spread over all, which may be sorted."""
    count = MAX_LESION_ROWS + 200
    x = np.sort(np.random.default_rng(0).standard_normal((count, 6)).astype(np.float32), axis=0)
    rows = folder / "many.npz"
    np.savez(rows, x=x, y=np.arange(count) * 3 // count)
    path = export_model(network(), folder / "many", name="net", inputs=[INPUT], data=rows).path
    file = verified(path, data=rows)
    loaded, graph, lesion = file.network.rows, file.graph, file.manifest.lesion
    assert loaded is not None
    assert lesion is not None

    def measured(some: Rows) -> LesionCurve | None:
        return lesion_curve(file.runtime, graph.gates.gates, some, graph.public_outputs[0], graph.biases)

    older = measured(loaded.take(slice(MAX_LESION_ROWS)))
    fewer = measured(loaded.take(slice(500)))
    assert older is not None
    assert (lesion.rows, older.rows, lesion == older) == (MAX_LESION_ROWS, MAX_LESION_ROWS, False)
    for curve in (lesion, older):
        assert "lesion" in check(file, lesion=curve).checked
    assert fewer is not None
    for false in (fewer, older.model_copy(update={"accuracy": lesion.accuracy})):
        with pytest.raises(ParityError, match="lesion: (rows|accuracy|loss): expected"):
            check(file, lesion=false)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_profile_of_the_first_rows_is_that_of_an_older_file(folder: Path) -> None:
    """A network with many positions is measured on fewer rows than there are."""
    count, spec = 270, "x:float32[batch,4096,6]"
    net = nn.Sequential(nn.Linear(6, 64), HighwayLayer(64), nn.Linear(64, 3)).eval()
    rows = folder / "positions.npz"
    x = np.random.default_rng(0).standard_normal((count, 4096, 6), np.float32)
    np.savez(rows, x=np.sort(x, axis=0))
    path = export_model(net, folder / "positions", name="net", inputs=[spec], data=rows).path
    file = verified(path, spec, net, data=rows)
    loaded, profile = file.network.rows, file.manifest.profile
    assert loaded is not None
    assert profile is not None
    assert profile.rows < count
    older = profile_gates(file.runtime, file.graph.gates.gates, loaded.take(slice(profile.rows)))
    assert (older.rows, older.digest == profile.digest) == (profile.rows, False)
    for record in (profile, older):
        assert "profile" in check(file, profile=record).checked
    with pytest.raises(ParityError, match="profile: (digest|layers)"):
        check(file, profile=profile.model_copy(update={"digest": older.digest}))


def test_only_a_decision_that_is_repeated_counts(without_rows: VerifiedFile) -> None:
    """What an older version did not decide is claimed. What this one does not decide is no proof."""
    undecided = Decision(Verdict.NOT_DECIDED, reason="top = TopK")
    older = identity_record(undecided)
    assert "identity" in check(without_rows, identity=older).claimed
    assert "identity.reason" in check(replace(without_rows, identity=undecided), identity=older).checked
    other = older.model_copy(update={"reason": "another"})
    assert "identity.reason" in check(replace(without_rows, identity=undecided), identity=other).claimed
    with pytest.raises(
        ParityError, match="identity.verdict: expected 'not decided', as decided now, got 'ident"
    ):
        check(replace(without_rows, identity=undecided))


def test_invented_batches_of_real_rows_are_refused(without_rows: VerifiedFile, on_rows: VerifiedFile) -> None:
    """The random batches show whether there were rows. Without them, names and sizes are checked."""
    batches = without_rows.manifest.parity.batches
    invented = ParityBatch(name="real rows", rows=2000, digest="0" * 64)
    with pytest.raises(ParityError, match="'real rows': expected none, because the batch '1 row' is that of"):
        check(without_rows, **parity(without_rows, batches=(*batches, invented)))
    rowless = replace(on_rows.network, rows=None)
    real = on_rows.manifest.parity.batches
    for wrong, message in (
        (
            (*real[:-1], invented.model_copy(update={"name": "mine"})),
            "expected the batch 'one Inf', got none",
        ),
        (
            (*real, invented.model_copy(update={"name": "mine"})),
            "'mine': expected a batch that turnpike makes",
        ),
        ((*real, real[0]), "expected distinct names, got '1 row' more than once"),
        (first(real, rows=9), "'1 row': rows: expected 1, got 9"),
        (
            tuple(
                batch.model_copy(update={"rows": 2000}) if batch.name == "real rows" else batch
                for batch in real
            ),
            "'real rows': rows: expected 1 to 128, got 2000",
        ),
        (tuple(batch for batch in real if batch.name != "first real rows"), "expected the batch 'first real"),
    ):
        with pytest.raises(ParityError, match=re.escape(message)):
            check(on_rows, rowless, **parity(on_rows, batches=wrong))


def test_labels_are_counted_if_the_source_has_none(without_rows: VerifiedFile) -> None:
    assert "labels" in check(without_rows, labels=LABELS).claimed
    with pytest.raises(ParityError, match="labels: expected 3, the columns of output, got 4"):
        check(without_rows, labels=(*LABELS, "pink"))
    with pytest.raises(ParityError, match="labels: expected distinct names, got 'red' more than once"):
        check(without_rows, labels=("red", "red", "blue"))


def test_random_weights_cannot_be_hidden(without_rows: VerifiedFile) -> None:
    """What the source says is checked. One that does not say how it got its weights leaves it a claim."""
    drawn = replace(without_rows.network, random_weights=True)
    assert "random_weights" in check(without_rows, drawn, random_weights=True).checked
    with pytest.raises(ParityError, match="random_weights: expected True, got False"):
        check(without_rows, drawn)
    assert "random_weights" in check(without_rows).claimed
    from_code = replace(without_rows, against="net.py:network")
    with pytest.raises(ParityError, match="random_weights: expected False, got True"):
        check(from_code, random_weights=True)


def test_columns_are_those_that_the_training_recorded(on_rows: VerifiedFile) -> None:
    features = on_rows.manifest.features
    trained = replace(on_rows.network, features=features)
    assert "features" in check(on_rows, trained).checked
    with pytest.raises(ParityError, match="features: expected .*, of the training run, got "):
        check(on_rows, trained, features=first(features, unit="kg"))


def test_what_is_predicted_is_checked(on_rows: VerifiedFile) -> None:
    """A training run tells it; without one, an output of several columns is no number."""
    with pytest.raises(ParityError, match="task: expected classes, as .* has 3 columns, got a number"):
        check(on_rows, task="number")
    assert {"task", "target"} <= set(check(on_rows).checked)
    assert "target" in check(on_rows, target="price").claimed
    trained = replace(on_rows.network, training=tiny_record(), target="price")
    assert {"task", "target"} <= set(check(on_rows, trained, target="price").checked)
    for field, value in (("target", "size"), ("task", "number")):
        with pytest.raises(ParityError, match=f"{field}: expected .*, of the training run,? got"):
            check(on_rows, trained, **{"target": "price", field: value})


def test_a_lesion_curve_needs_classes(on_rows: VerifiedFile) -> None:
    rows = on_rows.network.rows
    assert rows is not None
    unknown = replace(on_rows.network, rows=replace(rows, classes=None))
    with pytest.raises(ParityError, match="lesion: expected none, because the rows have no true answers"):
        check(on_rows, unknown, profile=None)


def change_opset(model: ir.Model) -> None:
    model.opset_imports[""] = 17


def change_width(model: ir.Model) -> None:
    model.graph.inputs[0].shape = ir.Shape(["batch", 7])


def change_dtype(model: ir.Model) -> None:
    model.graph.outputs[0].dtype = ir.DataType.DOUBLE


def drop_output(model: ir.Model) -> None:
    model.graph.outputs.pop()


def swap_levers(model: ir.Model) -> None:
    model.graph.inputs[1], model.graph.inputs[2] = model.graph.inputs[2], model.graph.inputs[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_opset, "opset: expected 20, as the source has, got 17"),
        (change_width, "inputs: x: expected FLOAT[batch,6], got FLOAT[batch,7]"),
        (change_dtype, "outputs: output: expected FLOAT[batch,3], got DOUBLE[batch,3]"),
        (drop_output, "outputs: expected output, layer00.transform_gate, "),
        (swap_levers, "levers: expected 1.gate.bias, 2.gate.bias, got 2.gate.bias, 1.gate.bias"),
    ],
)
def test_the_interface_is_that_of_the_source(
    without_rows: VerifiedFile, change: Callable[[ir.Model], None], message: str
) -> None:
    model = ir.from_proto(ir.to_proto(without_rows.model))
    expect_same_interface(without_rows.path, model, without_rows.graph)
    change(model)
    with pytest.raises(ParityError, match=re.escape(f"{without_rows.path}: {message}")):
        expect_same_interface(without_rows.path, model, without_rows.graph)


def test_name_and_version_are_those_of_the_folder(without_rows: VerifiedFile) -> None:
    assert {"name", "version", "source"} <= set(check(without_rows).checked)
    assert {"name", "version"} <= check(without_rows, version=7).claimed.keys()
    assert "source" in check(without_rows, source="checkpoint").claimed


def test_providers_that_did_not_run_here_are_claimed(without_rows: VerifiedFile) -> None:
    providers = ("CPUExecutionProvider", "CUDAExecutionProvider")
    claimed = check(without_rows, **parity(without_rows, providers=providers)).claimed
    assert claimed["parity.providers"] == "not run here: CUDAExecutionProvider"
    assert claimed["parity.tensors.rms"] == "of other devices"


def test_verify_refuses_a_false_claim_and_lists_the_others(
    without_rows: VerifiedFile, tmp_path: Path
) -> None:
    result = verify_model(without_rows.path, network())
    assert {"parity.batches", "gates", "weights"} <= set(result.claims.checked)
    assert "tools" in result.claims.claimed
    assert next(iter(result.claims.lines())).startswith("checked: gates, outputs, ")
    assert any(line.startswith("claimed, not checked: ") for line in result.claims.lines())
    false = without_rows.manifest.model_copy(update=parity(without_rows, reference="a proof"))
    path = tmp_path / "model.onnx"
    path.write_bytes(embed_manifest(without_rows.path.read_bytes(), false))
    with pytest.raises(ParityError, match="manifest: parity.reference: expected 'the original network"):
        verify_model(path, network())
