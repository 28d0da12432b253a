"""Networks with the batch on another axis than the first: the file has rows first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from turnpike.export.errors import ParityError, SourceError
from turnpike.export.input_spec import batch_dimension, parse_inputs
from turnpike.export.network import Network
from turnpike.export.output.model_bytes import embed_manifest
from turnpike.export.pipeline import export_model
from turnpike.export.sources.module.rows_first import with_rows_first
from turnpike.export.verify import verify_model
from turnpike.service.artifact.runtime import open_model

INPUT = "x:float32[6,batch,4]"


class TimeFirst(nn.Module):
    """A highway over time, then a recurrent layer with PyTorch's default order of axes."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.transform = nn.Linear(4, 4), nn.Linear(4, 4)
        self.recurrent = nn.GRU(4, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        t = torch.sigmoid(self.gate(x))
        steps, state = self.recurrent(t * torch.relu(self.transform(x)) + (1 - t) * x)
        return {"steps": steps, "state": state, "mean": steps.mean(0)}


class UnitsFirst(nn.Module):
    """A highway whose rows are columns."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.transform = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4, 4))
        self.bias = nn.Parameter(torch.randn(4, 1))

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate @ x + self.bias)
        return t * torch.relu(self.transform @ x) + (1 - t) * x


@pytest.mark.slow
def test_the_file_has_rows_first(tmp_path: Path) -> None:
    """Inputs, outputs, gates and layers do; so the network does not seem to mix rows."""
    network = TimeFirst().eval()
    result = export_model(network, tmp_path, inputs=[INPUT])
    assert result.notes == (
        "the file has the rows first, unlike the network: "
        "x:float32[batch,6,4] instead of x:float32[6,batch,4], and 2 of 3 outputs",
    )
    assert not result.manifest.batch_coupled
    assert result.manifest.batch_axes == {"x": 1, "steps": 1, "state": 1}
    runtime = open_model(result.path)
    dims = {tensor.name: tensor.dims for tensor in (*runtime.inputs, *runtime.outputs, *runtime.hidden)}
    assert dims == {
        "x": ("batch", 6, 4),
        "steps": ("batch", 6, 3),
        "state": ("batch", 1, 3),
        "mean": ("batch", 3),
        "layer00.transform_gate": ("batch", 6, 4),
        "layer00.output": ("batch", 6, 4),
    }
    x = torch.randn(6, 5, 4)
    with torch.no_grad():
        expected, gate = network(x), torch.sigmoid(network.gate(x))
    steps, state, t = runtime.run(
        {"x": x.transpose(0, 1).contiguous().numpy()}, ["steps", "state", "layer00.transform_gate"]
    )
    for actual, wanted in ((steps, expected["steps"]), (state, expected["state"]), (t, gate)):
        np.testing.assert_allclose(actual, wanted.transpose(0, 1).numpy(), atol=1e-6)

    # the manifest has what `verify` needs to call the network itself
    assert verify_model(result.path, network).manifest == result.manifest
    changed = result.manifest.model_copy(update={"batch_axes": {"x": 1}})
    result.path.write_bytes(embed_manifest(result.path.read_bytes(), changed))
    with pytest.raises(ParityError, match=r"manifest: batch_axes: expected {'x': 1, 'steps': 1, "):
        verify_model(result.path, network)


def test_the_axis_of_the_units_moves_too(tmp_path: Path) -> None:
    """Rows move past it, to the first axis."""
    result = export_model(UnitsFirst(), tmp_path, inputs=["x:float32[4,batch]"])
    (gate,) = result.manifest.gates
    assert (gate.unit_axis, gate.units) == (-1, 4)
    assert not result.manifest.batch_coupled


def test_gates_inside_have_rows_first(tmp_path: Path) -> None:
    """Also where the network itself turns its axes and turns them back."""

    class Turning(TimeFirst):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.transpose(0, 1))["steps"].transpose(0, 1)

    result = export_model(Turning(), tmp_path, inputs=["x:float32[batch,6,4]"])
    assert result.manifest.batch_axes == {}
    hidden = {tensor.name: tensor.dims for tensor in open_model(result.path).hidden}
    assert hidden["layer00.transform_gate"] == hidden["layer00.output"] == ("batch", 6, 4)


@pytest.mark.parametrize(
    ("inputs", "batch"),
    [
        (["x:float32[time,batch,4]"], "batch"),
        (["x:float32[n,4]"], "n"),
        (["flag:bool[1]", "x:float32[4,batch]"], "batch"),
        (["x:float32[3,4]"], None),
    ],
)
def test_the_dimension_called_batch_is_the_batch(inputs: list[str], batch: str | None) -> None:
    """Without one, it is the first that varies."""
    assert batch_dimension(parse_inputs(inputs)) == batch


def test_a_forward_of_the_object_cannot_be_wrapped() -> None:
    module = TimeFirst()
    module.forward = module.forward
    with pytest.raises(SourceError, match=r"assigned to the module .*: define it in the module's class"):
        with_rows_first(Network("net", "module", parse_inputs([INPUT]), module=module))
