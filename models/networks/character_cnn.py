"""Character CNN: word vectors from convolutions over characters and highway layers, and a text classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from turnpike.models.checks import expect
from turnpike.models.errors import ShapeError
from turnpike.models.layers.activation import initialize_weights, make_activation, maxout_pieces
from turnpike.models.layers.highway import HighwayLayer
from turnpike.models.networks.base import Net, NetConfig

PADDING = 0  # the id that fills words and texts up to their size


class CharacterEncoder(nn.Module):
    """A word's vector from the ids of its characters.

        e = the embeddings of the characters, e_0 = 0
        f_k = act(max over positions p of (W_k * e)_p + b_k), for every filter k
        y = W highway(... highway(f)) + b

    Kim et al. 2016, "Character-Aware Neural Language Models" (tanh); Peters et al. 2018, "Deep
    Contextualized Word Representations" (relu, and the projection).
    A word shorter than the widest filter is padded. Filters and projection are drawn after Glorot, the
    highway layers with init="scaled". Dropout applies to the input of the highway layers.
    Shapes: integer ids (..., characters), each 0 (padding) to alphabet - 1 -> (..., projection).

    Args:
        alphabet: Number of character ids, including 0 for padding.
        embedding: Units of a character's embedding.
        filters: Pairs (width, count).
        projection: Units of the word's vector.
        highways: Number of highway layers.
        activation: Name of an activation: relu or tanh, after the filters.
        dropout: Dropout rate.
        gate_bias: Initial bias of the transform gates; None keeps PyTorch's own initialization.
    """

    def __init__(
        self,
        alphabet: int,
        embedding: int,
        filters: Sequence[tuple[int, int]],
        projection: int,
        *,
        highways: int = 2,
        activation: str = "tanh",
        dropout: float = 0.0,
        gate_bias: float | None = -2.0,
    ) -> None:
        super().__init__()
        expect(alphabet > 1, f"alphabet: expected 2 ids or more, the first of them padding, got {alphabet}")
        expect(embedding > 0, f"embedding: expected 1 or more, got {embedding}")
        expect(
            len(filters) > 0 and all(width > 0 and count > 0 for width, count in filters),
            f"filters: expected one or more (width, count), each 1 or more, got {filters}",
        )
        expect(projection > 0, f"projection: expected 1 or more, got {projection}")
        expect(highways >= 0, f"highways: expected 0 or more, got {highways}")
        expect(
            maxout_pieces(activation) == 1,
            f"activation: expected relu or tanh after the filters, got {activation!r}",
        )
        expect(0 <= dropout < 1, f"dropout: expected 0 or more and below 1, got {dropout}")
        self.alphabet = alphabet
        self.projection = projection
        self.widest = max(width for width, _ in filters)
        self.embed = nn.Embedding(alphabet, embedding, padding_idx=PADDING)
        self.filters = nn.ModuleList(nn.Conv1d(embedding, count, width) for width, count in filters)
        self.activation = make_activation(activation)
        self.dropout = nn.Dropout(dropout)
        features = sum(count for _, count in filters)
        self.highways = nn.ModuleList(
            HighwayLayer(features, gate_bias=gate_bias, init="scaled") for _ in range(highways)
        )
        self.project = nn.Linear(features, projection)
        for linear in (*self.filters, self.project):
            initialize_weights(linear, "tanh")

    def forward(self, ids: Tensor) -> Tensor:
        if ids.dim() < 1 or ids.shape[-1] < 1 or ids.is_floating_point():
            dtype = str(ids.dtype).removeprefix("torch.")
            raise ShapeError(
                f"CharacterEncoder: expected integer ids of shape [..., characters], "
                f"got {dtype} of shape {list(ids.shape)}"
            )
        *leading, characters = ids.shape
        words = ids.long().reshape(-1, characters)
        if characters < self.widest:
            words = F.pad(words, (0, self.widest - characters), value=PADDING)
        letters = self._embed(words).transpose(1, 2)  # (all words, embedding, characters)
        # the activation is monotonic, so it can follow the maximum, on far fewer values
        features = torch.cat([convolve(letters).amax(2) for convolve in self.filters], dim=1)
        x = self.dropout(self.activation(features))
        for highway in self.highways:
            x = highway(x)
        return self.project(x).reshape(*leading, self.projection)

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, ids: Tensor) -> Tensor: ...

    def _embed(self, words: Tensor) -> Tensor:
        # checking the ids first would make the traced graph depend on the data
        try:
            return self.embed(words)
        except IndexError as error:
            raise ShapeError(
                f"CharacterEncoder: expected ids 0 to {self.alphabet - 1}, "
                f"got {int(words.min())} to {int(words.max())}"
            ) from error


@dataclass(frozen=True, kw_only=True)
class CharacterCnnConfig(NetConfig):
    """A text classifier. `inputs` is (words, characters); texts may have any number of words.

    Attributes:
        alphabet: Number of character ids; the default is one per byte, and 0 for padding.
        embedding: Units of a character's embedding.
        filter_widths: Widths of the filters, in characters.
        filter_counts: Number of filters of each width, in the same order.
        activation: Name of an activation: relu or tanh, after the filters.
        highways: Number of highway layers.
        projection: Units of a word's vector.
        dropout: Dropout rate before the highway layers.
        gate_bias: Initial bias of the transform gates; None keeps PyTorch's own initialization.
    """

    family: ClassVar[str] = "charcnn"

    alphabet: int = 257
    embedding: int = 16
    filter_widths: tuple[int, ...] = (1, 2, 3, 4)
    filter_counts: tuple[int, ...] = (16, 32, 48, 64)
    activation: str = "tanh"
    highways: int = 2
    projection: int = 64
    dropout: float = 0.1
    gate_bias: float | None = -2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(len(self.inputs) == 2, f"inputs: expected (words, characters), got {self.inputs}")
        expect(self.alphabet > 1, f"alphabet: expected 2 ids or more, got {self.alphabet}")
        for name in ("embedding", "projection"):
            size = getattr(self, name)
            expect(size > 0, f"{name}: expected 1 or more, got {size}")
        for name in ("filter_widths", "filter_counts"):
            sizes = getattr(self, name)
            expect(
                len(sizes) > 0 and all(size > 0 for size in sizes),
                f"{name}: expected one or more sizes of 1 or more, got {sizes}",
            )
        expect(
            len(self.filter_widths) == len(self.filter_counts),
            f"filter_counts: expected one for each of {len(self.filter_widths)} widths, "
            f"got {self.filter_counts}",
        )
        expect(
            maxout_pieces(self.activation) == 1,
            f"activation: expected relu or tanh after the filters, got {self.activation!r}",
        )
        expect(self.highways >= 0, f"highways: expected 0 or more, got {self.highways}")
        expect(0 <= self.dropout < 1, f"dropout: expected 0 or more and below 1, got {self.dropout}")

    def for_data(
        self, inputs: tuple[int, ...], classes: int, alphabet_size: int = 0, **settings: Any
    ) -> Self:
        """Return the config for other texts; `alphabet_size` 0 keeps the alphabet of this config."""
        alphabet = {"alphabet": alphabet_size} if alphabet_size else {}
        return replace(self, inputs=inputs, classes=classes, **{**alphabet, **settings})


class CharacterCnn(Net):
    """characters -> word vectors -> their mean -> Linear.

    Words that are all padding do not count in the mean, so texts can be filled up with them. A text
    without other words has a mean of zero.
    Shapes: integer ids (batch, words, characters) -> (batch, classes).
    """

    free_axes = (0,)
    reads_ids = True

    def __init__(self, config: CharacterCnnConfig) -> None:
        super().__init__(config)
        self.words = CharacterEncoder(
            config.alphabet,
            config.embedding,
            tuple(zip(config.filter_widths, config.filter_counts, strict=True)),
            config.projection,
            highways=config.highways,
            activation=config.activation,
            dropout=config.dropout,
            gate_bias=config.gate_bias,
        )
        self.output = nn.Linear(config.projection, config.classes)
        initialize_weights(self.output, "tanh")

    def logits(self, x: Tensor) -> Tensor:
        vectors = self.words(x)  # (batch, words, projection)
        is_word = (x != PADDING).any(dim=2, keepdim=True).to(vectors.dtype)
        mean = (vectors * is_word).sum(dim=1) / is_word.sum(dim=1).clamp(min=1)
        return self.output(mean)
