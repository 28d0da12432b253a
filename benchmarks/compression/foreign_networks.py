"""Two highway networks as other code bases write them: a character CNN and a convolutional network.

They use PyTorch alone, and nothing of `models`. So a file that `torch.onnx.export` makes of them is what
`turnpike compress` gets from somebody else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# the numbers of filters by their width, as (width, filters)
CHARACTER_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256))


class FusedHighway(nn.Module):
    """Highway layers with one Linear for H and the carry gate together, as in AllenNLP.

    y = g x + (1 - g) relu(h) with (h, g) = A x. The bias of g is 1 at the beginning, so that the input is
    carried.
    """

    def __init__(self, size: int, layers: int) -> None:
        super().__init__()
        self.size = size
        self.projections = nn.ModuleList([nn.Linear(size, 2 * size) for _ in range(layers)])
        for projection in self.projections:
            nn.init.constant_(projection.bias[size:], 1)  # type: ignore[index]

    def forward(self, x: Tensor) -> Tensor:
        for projection in self.projections:
            both = projection(x)
            hidden = F.relu(both[:, : self.size])
            gate = torch.sigmoid(both[:, self.size :])
            x = gate * x + (1 - gate) * hidden
        return x


class CharacterCnn(nn.Module):
    """Words from their characters, as in ELMo and CharacterBERT, and a class from the words.

    Shapes: (rows, words, characters) ids -> (rows, classes). Each word goes through convolutions of several
    widths, the maximum over its characters, highway layers and a projection.

    Kim et al. (2016), "Character-Aware Neural Language Models"; Peters et al. (2018), "Deep contextualized
    word representations".
    """

    def __init__(
        self, characters: int, classes: int, embedding: int = 16, layers: int = 2, output: int = 128
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        self.convolutions = nn.ModuleList(
            [nn.Conv1d(embedding, filters, width) for width, filters in CHARACTER_FILTERS]
        )
        size = sum(filters for _, filters in CHARACTER_FILTERS)
        self.highway = FusedHighway(size, layers)
        self.projection = nn.Linear(size, output)
        self.classifier = nn.Linear(output, classes)

    def forward(self, x: Tensor) -> Tensor:
        rows, words, characters = x.shape
        embedded = self.embedding(x.view(rows * words, characters)).transpose(1, 2)
        pooled = [F.relu(convolution(embedded).max(dim=-1).values) for convolution in self.convolutions]
        vectors = self.projection(self.highway(torch.cat(pooled, dim=-1)))
        return self.classifier(vectors.view(rows, words, -1).max(dim=1).values)


class ConvHighway(nn.Module):
    """A highway layer with a convolution for H and another for T: y = T H + (1 - T) x."""

    def __init__(self, channels: int, gate_bias: float) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.gate = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.constant_(self.gate.bias, gate_bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.norm(self.convolution(x)))
        gate = torch.sigmoid(self.gate(x))
        return gate * hidden + (1 - gate) * x


class ConvHighwayNetwork(nn.Module):
    """Stages of convolutional highway layers for 28x28 pixels: (rows, 1, 28, 28) -> (rows, classes).

    Args:
        stages: The channels and the number of layers of each stage. The first has 7x7 positions, and each
            other one half as many along both axes.
        gate_bias: The bias of all gates at the beginning.
        classes: Number of classes.
    """

    def __init__(self, stages: Sequence[tuple[int, int]], gate_bias: float, classes: int = 10) -> None:
        super().__init__()
        channels, size = stages[0][0], 7
        parts: list[nn.Module] = [
            nn.Conv2d(1, channels, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        for number, (wider, layers) in enumerate(stages):
            if number:
                parts += [nn.Conv2d(channels, wider, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
                channels, size = wider, size // 2
            parts += [ConvHighway(channels, gate_bias) for _ in range(layers)]
        self.layers = nn.Sequential(*parts)
        self.classifier = nn.Linear(channels * size * size, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.layers(x).flatten(1))
