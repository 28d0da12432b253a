"""The one door for sources: told apart by what they are, with inputs, labels, rows and a name."""

from __future__ import annotations

import warnings
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

from export.errors import ExportError, RefusedError, RequestError, SourceError
from export.input_spec import parse_inputs
from export.sources.load import SourceWarning, load_source
from export.sources.rows import MAX_ROWS_USED
from models.data.load import load_dataset
from models.networks.base import Net, NetConfig
from models.networks.families import build_network
from models.networks.feedforward import MlpConfig
from models.training import checkpoint, presets
from models.training.checkpoint import TrainingRecord

INPUTS = parse_inputs(["x:float32[batch,4]"])
DIGITS = MlpConfig(inputs=(1, 8, 8), classes=10, width=5, layers=1)


def saved(path: Path, config: NetConfig = DIGITS, data: Any = None, **changes: Any) -> Path:
    """A checkpoint of ours, as training leaves it."""
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


@pytest.fixture(scope="module")
def digits() -> dict[str, Any]:
    found = load_dataset("digits", seed=3)
    return {"name": "digits", "digest": found.digest, "labels": list(found.labels), "alphabet": ""}


def test_a_checkpoint_brings_everything_along(tmp_path: Path, digits: dict[str, Any]) -> None:
    """Network, inputs, labels, name, and the rows it was tested on; from the file or the run's folder."""
    path = saved(tmp_path / "model.safetensors", data=digits)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for source in (path, str(path), tmp_path):
            found = load_source(source)
            assert [str(one) for one in found.inputs] == ["x:float32[batch,1,8,8]"]
            assert (found.name, found.kind, found.labels) == ("tiny", "checkpoint", tuple("0123456789"))
            assert isinstance(found.module, Net)
            assert not found.module.training
            assert found.rows is not None
            assert len(found.rows) == 359


@pytest.mark.parametrize("name", list(presets.PRESETS))
def test_every_preset_says_what_it_reads(tmp_path: Path, name: str) -> None:
    """Text by ids and words, series of any time; the module takes rows of that form."""
    config = presets.find_preset(name).config
    small = {"layers": 1} if isinstance(config, MlpConfig) else {}
    found = load_source(saved(tmp_path / "net.safetensors", replace(config, **small), preset=name))
    (one,) = found.inputs
    assert found.name == name
    assert isinstance(found.module, Net)
    assert one.dims[0] == "batch"
    assert [dim for dim in one.dims[1:] if isinstance(dim, str)] == [
        "words" if found.module.reads_ids else "time" for _ in found.module.free_axes
    ]
    rows = torch.zeros(one.shape(batch=2, words=3, time=3), dtype=getattr(torch, one.dtype))
    with torch.inference_mode():
        assert found.module(rows).shape == (2, config.classes)


def test_the_users_names_are_taken(tmp_path: Path) -> None:
    """For the input of a checkpoint, which must be the same input; a time may be fixed."""
    path = saved(tmp_path / "net.safetensors")
    theirs = parse_inputs(["pixels:float32[rows,1,8,8]"])
    assert load_source(path, inputs=theirs).inputs == theirs
    for bad in (
        ["p:float32[rows,64]"],
        ["p:uint8[rows,1,8,8]"],
        ["p:float32[r,1,8,9]"],
        ["p:float32[r,1,8,h]"],
    ):
        with pytest.raises(RequestError, match=r"expected x:float32\[batch,1,8,8\], under any names, got p"):
            load_source(path, inputs=parse_inputs(bad))
    text = saved(tmp_path / "text.safetensors", presets.find_preset("charcnn").config)
    fixed = parse_inputs(["ids:int64[batch,5,12]"])
    assert load_source(text, inputs=fixed).inputs == fixed


def test_other_rows_than_those_trained_on_are_said(tmp_path: Path, digits: dict[str, Any]) -> None:
    """They are used, with a note."""
    path = saved(tmp_path / "net.safetensors", data={**digits, "digest": "0" * 64})
    with pytest.warns(
        SourceWarning, match="digits has other rows here than the ones that the checkpoint was trained on"
    ):
        found = load_source(path)
    assert found.rows is not None


def test_rows_of_known_data_are_public(tmp_path: Path, digits: dict[str, Any]) -> None:
    """Those that a checkpoint was tested on or that go by a name; never a user's own file or folder."""
    path = saved(tmp_path / "model.safetensors", data=digits)
    x = np.zeros((3, 1, 8, 8), np.uint8)
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(3))
    assert load_source(path).public
    assert load_source(path, data="digits").public
    assert not load_source(path, data=tmp_path / "own.npz").public
    assert not load_source(saved(tmp_path / "bare.safetensors")).public


def test_rows_are_not_fetched_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is downloaded for a checkpoint; where a folder was named, that it has none is said."""
    monkeypatch.setenv("TURNPIKE_CACHE", str(tmp_path / "cache"))
    config = replace(DIGITS, inputs=(1, 28, 28))
    path = saved(tmp_path / "net.safetensors", config, data={"name": "mnist"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_source(path).rows is None
        for other in ("rows", None, 3, "../../etc"):
            assert load_source(saved(tmp_path / "o.safetensors", data={"name": other})).rows is None
    with pytest.warns(SourceWarning, match="no rows: "):
        assert load_source(path, data_dir=tmp_path).rows is None
    assert not (tmp_path / "cache").exists()


def test_given_rows_go_before_its_own(tmp_path: Path, digits: dict[str, Any]) -> None:
    """And classes are found by the checkpoint's labels."""
    path = saved(tmp_path / "net.safetensors", data=digits)
    np.savez(tmp_path / "rows.npz", x=np.ones((2, 1, 8, 8), np.uint8), y=["7", "3"])
    found = load_source(path, data=tmp_path / "rows.npz")
    assert found.rows is not None
    assert found.rows.classes is not None
    assert found.rows.classes.tolist() == [7, 3]


def test_drawn_rows_are_at_most_so_many(tmp_path: Path) -> None:
    """Parity has ten thousand test rows."""
    config = MlpConfig(inputs=(24,), classes=2, width=5, layers=1)
    data = {"name": "parity-24", "digest": load_dataset("parity-24").digest, "labels": ["even", "odd"]}
    rows = load_source(saved(tmp_path / "net.safetensors", config, data=data)).rows
    assert rows is not None
    assert len(rows) == MAX_ROWS_USED


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "data.labels is of an unexpected type"),
        ({"labels": "0123456789"}, "data.labels is of an unexpected type"),
        ({"labels": [1, 2]}, "data.labels is of an unexpected type"),
        ({"alphabet": ["a"]}, "data.alphabet is of an unexpected type"),
        ({"labels": ["a", "b"]}, "expected 10 labels, one per class, got 2"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(tmp_path: Path, data: object, says: str) -> None:
    """The file is a stranger's until it has been read."""
    with pytest.raises(SourceError, match=f"net.safetensors: .*{says}"):
        load_source(saved(tmp_path / "net.safetensors", data=data))


def test_labels_that_are_given_go_before(tmp_path: Path, digits: dict[str, Any]) -> None:
    """From a file or a list; those of the data where nobody else has any."""
    path = saved(tmp_path / "net.safetensors", data={**digits, "name": "none"})
    assert load_source(path, labels=list("abcdefghij")).labels == tuple("abcdefghij")
    (tmp_path / "labels.txt").write_text("\n".join("klmnopqrst"))
    assert load_source(path, labels=tmp_path / "labels.txt").labels == tuple("klmnopqrst")
    one = parse_inputs(["x:float32[batch,1,8,8]"])
    found = load_source(nn.Flatten(), inputs=one, data="digits")
    assert found.labels == tuple("0123456789")


def test_names_are_given_or_made(tmp_path: Path) -> None:
    """A bad one stops before anything is written."""
    path = saved(tmp_path / "net.safetensors", preset="my net")
    assert load_source(path).name == "my-net"
    assert load_source(path, name="other").name == "other"
    with pytest.raises(RequestError, match="--name: expected"):
        load_source(path, name="../other")


class Modal(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if self.training else x


def test_a_module_in_hand_is_not_changed() -> None:
    """Its copy is in eval mode, it stays as it was."""
    net = nn.Sequential(Modal(), nn.Dropout())
    found = load_source(net, inputs=INPUTS)
    assert (found.name, found.kind) == ("Sequential", "module")
    assert found.module is not net
    assert found.module is not None
    assert not any(part.training for part in found.module.modules())
    assert all(part.training for part in net.modules())
    with pytest.raises(RequestError, match=r"--input: expected one for each argument of forward\(input\)"):
        load_source(net)


def test_a_module_that_cannot_be_copied_is_said() -> None:
    """With the reason."""
    net = nn.Linear(4, 4)
    net.lock = iter(open(__file__, "rb"))  # type: ignore[assignment]  # noqa: PTH123, SIM115
    with pytest.raises(SourceError, match="Linear: cannot be copied"):
        load_source(net, inputs=INPUTS)
    net.lock.close()  # type: ignore[operator]


def test_each_kind_of_source_is_told_apart(tmp_path: Path) -> None:
    """A program in hand or in a file, a graph, and a factory with its weights."""
    net = nn.Linear(4, 4)
    program = torch.export.export(net, (torch.ones(3, 4),), dynamic_shapes=({0: Dim("batch")},), strict=False)
    torch.export.save(program, tmp_path / "a.pt2")
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "b.onnx")
    (tmp_path / "c.py").write_text("from torch import nn\ndef make(): return nn.Linear(4, 4)\n")
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    made = load_source(f"{tmp_path / 'c.py'}:make", inputs=INPUTS, weights=tmp_path / "w.safetensors")
    found = [load_source(program), load_source(tmp_path / "a.pt2"), load_source(tmp_path / "b.onnx"), made]
    assert [(one.name, one.kind) for one in found] == [
        ("program", "program"), ("a", "program"), ("b", "onnx"), ("c", "module")
    ]  # fmt: skip
    assert made.module is not None
    assert torch.equal(made.module(torch.ones(1, 4)), net(torch.ones(1, 4)))
    for source in (tmp_path / "a.pt2", tmp_path / "b.onnx", net, program):
        with pytest.raises(RequestError, match="--weights: works only with path/to/file.py:factory"):
            load_source(source, inputs=INPUTS, weights=tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("name", "kind", "says"),
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
        ("net.safetensors", SourceError, "expected a whole .safetensors file"),
    ],
)
def test_what_is_no_source_is_said(
    tmp_path: Path, name: str, kind: type[ExportError] | None, says: str
) -> None:
    """With the remedy."""
    if kind is not None:
        (tmp_path / name).touch()
    with pytest.raises(kind or SourceError, match=says):
        load_source(tmp_path / name)


def test_weights_alone_need_their_code(tmp_path: Path) -> None:
    """As does a folder that holds no run."""
    save_file({"w": torch.ones(1)}, tmp_path / "w.safetensors")
    with pytest.raises(
        SourceError, match="bare weights need the code of their network: file.py:factory --weights"
    ):
        load_source(tmp_path / "w.safetensors")
    with pytest.raises(
        SourceError, match="expected the folder of a run, with a file model.safetensors, got none"
    ):
        load_source(tmp_path)


def test_a_module_that_cannot_be_traced_is_said() -> None:
    """TorchScript, no forward, no shapes, no numbers; and what is no source at all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(nn.Linear(4, 4))
        traced = torch.jit.trace(nn.Linear(4, 4), torch.ones(1, 4))
    for module, says in (
        (scripted, "a TorchScript module has no Python to trace"),
        (traced, "a TorchScript module has no Python to trace"),
        (nn.Module(), "Module has no forward"),
        (nn.LazyLinear(4), "weight has no shape before the first call"),
        (nn.Linear(4, 4, device="meta"), "weight is on the meta device and has no values"),
    ):
        with pytest.raises(ExportError, match=says):
            load_source(module, inputs=INPUTS)
    for other in ("", 3, nn.Linear):
        with pytest.raises(RequestError, match="source: expected a path, a torch.nn.Module or an Exported"):
            load_source(other, inputs=INPUTS)  # type: ignore[arg-type]
