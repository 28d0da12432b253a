"""Bugs in recurrent layers: another GRU, directions in another order, a frozen length."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.export.identity.planting import Plant
from tests.export.museum.exhibit import Exhibit, attribute, output_of, user_of


class Gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(x)[0]


class BidirectionalLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 8, bidirectional=True, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class TwoGrus(nn.Module):
    """A bidirectional GRU by hand: the second one reads the steps backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.forwards, self.backwards = nn.GRU(4, 8, batch_first=True), nn.GRU(4, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        rows, steps = x.shape[:2]
        places = (steps - 1 - torch.arange(steps)).unsqueeze(-1).expand(steps, 8)
        backwards = self.backwards(x.flip(1))[0]
        backwards = backwards.gather(1, places.unsqueeze(0).expand(rows, -1, -1))
        return torch.cat((self.forwards(x)[0], backwards), -1)


def freeze_steps(plant: Plant) -> None:
    """The example's number of steps in the shape that the places of the steps are expanded to."""
    gathered = plant.producer(output_of(plant, "GatherElements"))
    places = gathered.inputs[1]
    while places is not None and (node := places.producer()) is not None:
        if node.op_type == "Expand" and len(node.outputs[0].shape or ()) == 2:
            plant.feed(str(node.outputs[0].name), 1, [6, 8])
            return
        places = node.inputs[0]
    raise AssertionError("expected an Expand of the places of the steps")


EXHIBITS = (
    Exhibit(
        "gru-reset-gate",
        "pytorch/pytorch#189225",
        "torch.onnx.export",
        "`linear_before_reset=0`: the reset gate is applied before the matrix product instead of after it",
        Gru,
        ("x:float32[batch,time,4]",),
        lambda: (torch.randn(2, 5, 4),),
        attribute("GRU", linear_before_reset=0),
    ),
    Exhibit(
        "directions-swapped",
        "pytorch/pytorch#10838",
        "torch.onnx.export",
        "units and directions of a bidirectional layer in the wrong order",
        BidirectionalLstm,
        ("x:float32[batch,time,4]",),
        lambda: (torch.randn(2, 5, 4),),
        lambda plant: plant.attribute(user_of(plant, "LSTM"), "perm", [0, 2, 3, 1]),
    ),
    Exhibit(
        "frozen-time",
        "pytorch/pytorch#191855",
        "torch.onnx.export",
        "the example's 6 steps are a constant, although the time axis is dynamic",
        TwoGrus,
        ("x:float32[batch,time,4]",),
        lambda: (torch.randn(2, 6, 4),),
        freeze_steps,
        noticed="measured",
    ),
)
