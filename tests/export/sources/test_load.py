"""Every kind of source is recognized and read, with inputs, labels, rows and a name."""

from __future__ import annotations

import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file
from torch import nn
from torch.export import Dim

from turnpike.export.errors import ExportError, RefusedError, SourceError, UsageError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Messages, Network
from turnpike.export.options import SourceOptions
from turnpike.export.sources.data.row_arrays import MAX_ROWS_USED
from turnpike.export.sources.load import load_source
from turnpike.models.data.load import load_dataset
from turnpike.models.networks.base import Net, NetConfig
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import MlpConfig
from turnpike.models.training import checkpoint, presets
from turnpike.models.training.checkpoint import TrainingRecord

INPUTS = parse_inputs(["x:float32[batch,4]"])
DIGITS = MlpConfig(inputs=(1, 8, 8), classes=10, width=5, layers=1)


def save_checkpoint(path: Path, config: NetConfig = DIGITS, data: Any = None, **changes: Any) -> Path:
    """A checkpoint as `turnpike train` writes it."""
    record = TrainingRecord(
        preset="tiny",
        config=config.to_dict(),
        data={} if data is None else data,
        recipe={"test_fraction": None},
        seed=3,
        metrics={},
        history=[],
        torch=torch.__version__,
    )
    checkpoint.save_checkpoint(path, build_network(config).state_dict(), replace(record, **changes))
    return path


def load(source: Any, **options: Any) -> Network:
    return load_source(source, SourceOptions(**options))


@pytest.fixture(scope="module")
def digits() -> dict[str, Any]:
    dataset = load_dataset("digits", seed=3)
    return {"name": "digits", "digest": dataset.digest, "labels": list(dataset.labels), "alphabet": ""}


def test_a_checkpoint_has_network_inputs_labels_name_and_test_rows(
    tmp_path: Path, digits: dict[str, Any]
) -> None:
    """The source may be the file or the folder of the run."""
    path = save_checkpoint(tmp_path / "model.safetensors", data=digits)
    for given in (path, str(path), tmp_path):
        source = load(given)
        assert [str(spec) for spec in source.inputs] == ["x:float32[batch,1,8,8]"]
        assert (source.name, source.kind, source.labels) == ("tiny", "checkpoint", tuple("0123456789"))
        assert isinstance(source.module, Net)
        assert not source.module.training
        assert source.rows is not None
        assert len(source.rows) == 359
        assert source.messages == Messages()


@pytest.mark.parametrize("name", list(presets.PRESETS))
def test_every_preset_describes_its_input(tmp_path: Path, name: str) -> None:
    """Texts are ids[batch,words,...], series have a dynamic time; the module accepts such rows."""
    config = presets.find_preset(name).config
    small = {"layers": 1} if isinstance(config, MlpConfig) else {}
    source = load(save_checkpoint(tmp_path / "net.safetensors", replace(config, **small), preset=name))
    (spec,) = source.inputs
    assert source.name == name
    assert isinstance(source.module, Net)
    assert spec.dims[0] == "batch"
    assert [dim for dim in spec.dims[1:] if isinstance(dim, str)] == [
        "words" if source.module.reads_ids else "time" for _ in source.module.free_axes
    ]
    rows = torch.zeros(spec.shape(batch=2, words=3, time=3), dtype=getattr(torch, spec.dtype))
    with torch.inference_mode():
        assert source.module(rows).shape == (2, config.classes)


def test_inputs_get_the_names_of_the_user(tmp_path: Path) -> None:
    """The shape must be the same, but a dynamic time may be fixed."""
    path = save_checkpoint(tmp_path / "net.safetensors")
    renamed = parse_inputs(["pixels:float32[rows,1,8,8]"])
    assert load(path, inputs=renamed).inputs == renamed
    for other in (
        ["p:float32[rows,64]"],
        ["p:uint8[rows,1,8,8]"],
        ["p:float32[r,1,8,9]"],
        ["p:float32[r,1,8,h]"],
    ):
        with pytest.raises(UsageError, match=r"expected x:float32\[batch,1,8,8\], under any names, got p"):
            load(path, inputs=parse_inputs(other))
    text = save_checkpoint(tmp_path / "text.safetensors", presets.find_preset("charcnn").config)
    fixed = parse_inputs(["ids:int64[batch,5,12]"])
    assert load(text, inputs=fixed).inputs == fixed


def test_rows_that_changed_since_training_cause_a_warning(tmp_path: Path, digits: dict[str, Any]) -> None:
    """They are used all the same."""
    path = save_checkpoint(tmp_path / "net.safetensors", data={**digits, "digest": "0" * 64})
    source = load(path)
    (warning,) = source.messages.warnings
    assert warning == "data: digits has other rows here than the ones that the checkpoint was trained on"
    assert source.rows is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x:float32[4]",
            r"takes exactly 4 single numbers: write x:float32\[batch,4\] for any number",
        ),
        ("x:float32[3,4]", r"takes exactly 3 rows: write x:float32\[batch,4\] for any number of rows"),
    ],
)
def test_inputs_without_a_dimension_that_varies_cause_a_warning(text: str, message: str) -> None:
    """The first dimension is taken for the rows, which may be the numbers of one row."""
    (warning,) = load(nn.Linear(4, 4), inputs=[text]).messages.warnings
    assert re.match(rf"--input {re.escape(text)}: no dimension varies, .* {message}", warning)


def test_messages_belong_to_what_was_loaded() -> None:
    """Also if several threads load networks at once."""

    def warnings_for(rows: int) -> tuple[str, ...]:
        return load(nn.Linear(4, 4), inputs=[f"x:float32[{rows},4]"]).messages.warnings

    with ThreadPoolExecutor(8) as threads:
        for rows, texts in enumerate(threads.map(warnings_for, range(1, 200)), 1):
            assert len(texts) == 1
            assert f"takes exactly {rows} rows" in texts[0]


def test_rows_of_named_data_sets_are_public(tmp_path: Path, digits: dict[str, Any]) -> None:
    """Rows of a checkpoint are public too. Rows of the user's own file never are."""
    path = save_checkpoint(tmp_path / "model.safetensors", data=digits)
    x = np.zeros((3, 1, 8, 8), np.uint8)
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(3))
    assert load(path).public
    assert load(path, data="digits").public
    assert not load(path, data=tmp_path / "own.npz").public
    assert not load(save_checkpoint(tmp_path / "bare.safetensors")).public


def test_rows_are_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If they are not on this machine there are none, with a warning if the user named their folder."""
    monkeypatch.setenv("TURNPIKE_CACHE", str(tmp_path / "cache"))
    config = replace(DIGITS, inputs=(1, 28, 28))
    path = save_checkpoint(tmp_path / "net.safetensors", config, data={"name": "mnist"})
    for other in ("mnist", "rows", None, 3, "../../etc"):
        source = load(save_checkpoint(tmp_path / "other.safetensors", config, data={"name": other}))
        assert (source.rows, source.messages) == (None, Messages())
    source = load(path, data_dir=tmp_path)
    assert source.rows is None
    assert source.messages.warnings[0].startswith("no rows: ")
    assert not (tmp_path / "cache").exists()


def test_rows_that_the_user_gives_replace_those_of_the_checkpoint(
    tmp_path: Path, digits: dict[str, Any]
) -> None:
    """Their classes may be given as labels of the checkpoint."""
    path = save_checkpoint(tmp_path / "net.safetensors", data=digits)
    np.savez(tmp_path / "rows.npz", x=np.ones((2, 1, 8, 8), np.uint8), y=["7", "3"])
    source = load(path, data=tmp_path / "rows.npz")
    assert source.rows is not None
    assert source.rows.classes is not None
    assert source.rows.classes.tolist() == [7, 3]


def test_the_number_of_rows_is_limited(tmp_path: Path) -> None:
    """The parity data set has ten thousand test rows."""
    config = MlpConfig(inputs=(24,), classes=2, width=5, layers=1)
    data = {"name": "parity-24", "digest": load_dataset("parity-24").digest, "labels": ["even", "odd"]}
    rows = load(save_checkpoint(tmp_path / "net.safetensors", config, data=data)).rows
    assert rows is not None
    assert len(rows) == MAX_ROWS_USED


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "data.labels is of an unexpected type"),
        ({"labels": "0123456789"}, "data.labels is of an unexpected type"),
        ({"labels": [1, 2]}, "data.labels is of an unexpected type"),
        ({"alphabet": ["a"]}, "data.alphabet is of an unexpected type"),
        ({"labels": ["a", "b"]}, "expected 10 labels, one per class, got 2"),
    ],
)
def test_a_record_with_invalid_fields_is_rejected(tmp_path: Path, data: object, message: str) -> None:
    """The file may come from anyone."""
    with pytest.raises(SourceError, match=f"net.safetensors: .*{message}"):
        load(save_checkpoint(tmp_path / "net.safetensors", data=data))


def test_labels_that_the_user_gives_come_first(tmp_path: Path, digits: dict[str, Any]) -> None:
    """Without them, the labels of the data are used."""
    path = save_checkpoint(tmp_path / "net.safetensors", data={**digits, "name": "none"})
    assert load(path, labels=list("abcdefghij")).labels == tuple("abcdefghij")
    (tmp_path / "labels.txt").write_text("\n".join("klmnopqrst"))
    assert load(path, labels=tmp_path / "labels.txt").labels == tuple("klmnopqrst")
    inputs = parse_inputs(["x:float32[batch,1,8,8]"])
    source = load(nn.Flatten(), inputs=inputs, data="digits")
    assert source.labels == tuple("0123456789")


def test_the_name_is_given_or_derived(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path / "net.safetensors", preset="my net")
    assert load(path).name == "my-net"
    assert load(path, name="other").name == "other"
    with pytest.raises(UsageError, match="--name: expected"):
        load(path, name="../other")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ({"name": "penguins", "target": "species"}, "penguins"),
        ({"name": "my wines (2024)", "target": "grape"}, "my-wines-2024"),
        ({"name": "\u6570\u636e", "target": "grape"}, "grape"),
        ({"name": "\u6570\u636e", "target": "\u8461\u8404"}, "tiny"),
        # a table of this name, and not the data set
        ({"name": "digits", "target": "label"}, "digits"),
        ({"name": "photos"}, "photos"),
        ({"name": "digits"}, "tiny"),
        ({"name": "parity-24"}, "tiny"),
        ({}, "tiny"),
    ],
)
def test_a_network_of_a_users_data_is_named_after_it(tmp_path: Path, data: Any, name: str) -> None:
    """The preset is the name for data that comes with turnpike, or if others have no letters of ASCII."""
    assert load(save_checkpoint(tmp_path / "net.safetensors", data=data)).name == name


class DoublesInTraining(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if self.training else x


def test_a_module_object_is_not_changed() -> None:
    """A copy of it is put in eval mode."""
    net = nn.Sequential(DoublesInTraining(), nn.Dropout())
    source = load(net, inputs=INPUTS)
    assert (source.name, source.kind) == ("Sequential", "module")
    assert source.module is not net
    assert source.module is not None
    assert not any(part.training for part in source.module.modules())
    assert all(part.training for part in net.modules())
    with pytest.raises(UsageError, match=r"--input: expected one for each argument of forward\(input\)"):
        load(net)


def test_a_module_that_cannot_be_copied_is_an_error() -> None:
    net = nn.Linear(4, 4)
    net.lock = iter(open(__file__, "rb"))  # type: ignore[assignment]  # noqa: PTH123, SIM115
    with pytest.raises(SourceError, match="Linear: cannot be copied"):
        load(net, inputs=INPUTS)
    net.lock.close()  # type: ignore[operator]


def test_each_kind_of_source_is_recognized(tmp_path: Path) -> None:
    net = nn.Linear(4, 4)
    program = torch.export.export(net, (torch.ones(3, 4),), dynamic_shapes=({0: Dim("batch")},), strict=False)
    torch.export.save(program, tmp_path / "a.pt2")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "b.onnx")
    (tmp_path / "c.py").write_text("from torch import nn\ndef make(): return nn.Linear(4, 4)\n")
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    module_source = load(f"{tmp_path / 'c.py'}:make", inputs=INPUTS, weights=tmp_path / "w.safetensors")
    sources = [
        load(program),
        load(tmp_path / "a.pt2"),
        load(tmp_path / "b.onnx"),
        module_source,
    ]
    assert [(source.name, source.kind) for source in sources] == [
        ("program", "program"), ("a", "program"), ("b", "onnx"), ("make", "module")
    ]  # fmt: skip
    assert module_source.module is not None
    assert torch.equal(module_source.module(torch.ones(1, 4)), net(torch.ones(1, 4)))
    for other in (tmp_path / "a.pt2", tmp_path / "b.onnx", net, program):
        with pytest.raises(UsageError, match="--weights: works only with path/to/file.py:factory"):
            load(other, inputs=INPUTS, weights=tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("absent", None, "absent: no such file"),
        ("net.py", SourceError, "got .py|add the factory, as in net.py:make"),
        (
            "net.pt",
            RefusedError,
            "a pickle runs code when it is opened, .* file.py:factory, with --weights net.pt",
        ),
        ("net.ckpt", RefusedError, "a pickle runs code"),
        ("net.h5", SourceError, "expected a checkpoint .*, a run's folder, file.py:factory, .pt2 or .onnx"),
        ("net.safetensors", SourceError, "expected a .safetensors file, got a damaged"),
    ],
)
def test_other_files_are_rejected_with_a_remedy(
    tmp_path: Path, name: str, kind: type[ExportError] | None, message: str
) -> None:
    if kind is not None:
        (tmp_path / name).touch()
    with pytest.raises(kind or SourceError, match=message):
        load(tmp_path / name)


def test_weights_without_a_record_need_their_code(tmp_path: Path) -> None:
    save_file({"w": torch.ones(1)}, tmp_path / "w.safetensors")
    with pytest.raises(
        SourceError, match="bare weights need the code of their network: file.py:factory --weights"
    ):
        load(tmp_path / "w.safetensors")
    with pytest.raises(
        SourceError, match="expected the folder of a run, with a file model.safetensors, got none"
    ):
        load(tmp_path)


def test_objects_that_cannot_be_exported_are_rejected() -> None:
    """TorchScript, no forward, no shapes, no values; and objects that are no source at all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(nn.Linear(4, 4))
        traced = torch.jit.trace(nn.Linear(4, 4), torch.ones(1, 4))
    for module, message in (
        (scripted, "a TorchScript module has no Python to trace"),
        (traced, "a TorchScript module has no Python to trace"),
        (nn.Module(), "Module has no forward"),
        (nn.LazyLinear(4), "weight has no shape before the first call"),
        (nn.Linear(4, 4, device="meta"), "weight is on the meta device and has no values"),
    ):
        with pytest.raises(ExportError, match=message):
            load(module, inputs=INPUTS)
    for other in ("", 3, nn.Linear):
        with pytest.raises(UsageError, match="source: expected a path, a torch.nn.Module or an Exported"):
            load(other, inputs=INPUTS)  # type: ignore[arg-type]


DRAWS = """
import torch
from torch import nn

def plain(): return nn.Linear(4, 2)
def seeded():
    torch.manual_seed(7)
    return nn.Linear(4, 2)
def loaded():
    net = nn.Linear(4, 2)
    net.load_state_dict({"weight": torch.ones(2, 4), "bias": torch.zeros(2)})
    return net
def without_weights(): return nn.Tanh()
made = plain()
"""
MADE_AND_LOADED = DRAWS + "made_and_loaded = loaded()"


@pytest.mark.parametrize(
    ("factory", "random"),
    [
        *(("plain", True), ("seeded", True), ("made", True)),
        *(("loaded", False), ("without_weights", False), ("made_and_loaded", False)),
    ],
)
def test_random_weights_are_noticed(tmp_path: Path, factory: str, random: bool) -> None:
    """A factory that draws its weights and loads none; weights of the user settle it."""
    (tmp_path / "net.py").write_text(MADE_AND_LOADED if factory == "made_and_loaded" else DRAWS)
    inputs = parse_inputs(["x:float32[batch,4]"])
    source = f"{tmp_path}/net.py:{factory}"
    load_state_dict = nn.Module.load_state_dict
    warning = (
        f"random weights: {factory} makes them at random and loads none; give the trained ones with --weights"
    )
    assert load(source, inputs=inputs).messages == Messages((warning,) if random else ())
    assert nn.Module.load_state_dict is load_state_dict
    if factory != "without_weights":
        save_file({"weight": torch.ones(2, 4), "bias": torch.zeros(2)}, tmp_path / "net.safetensors")
        load(source, inputs=inputs, weights=tmp_path / "net.safetensors")
