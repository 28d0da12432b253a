"""The character CNN: words as ids of characters, and texts of words."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.support.network_training import expect_glorot, expect_he, losses_in_training
from turnpike.models.errors import ConfigError, ShapeError
from turnpike.models.layers.gate import record_gates
from turnpike.models.networks.character_cnn import CharacterCnn, CharacterCnnConfig, CharacterEncoder

Same = Callable[[Tensor, Tensor], None]


def small(**changes: object) -> CharacterCnnConfig:
    settings = {
        "inputs": (5, 6),
        "classes": 3,
        "alphabet": 11,
        "embedding": 4,
        "filter_widths": (1, 2, 3),
        "filter_counts": (3, 4, 5),
        "projection": 7,
        **changes,
    }
    return CharacterCnnConfig(**settings)  # type: ignore[arg-type]


def random_encoder(activation: str = "tanh") -> CharacterEncoder:
    encoder = CharacterEncoder(11, 4, [(1, 3), (3, 5)], 7, activation=activation).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.copy_(torch.randn_like(parameter))
        encoder.embed.weight[0] = 0
    return encoder


def word_by_loops(encoder: CharacterEncoder, ids: list[int], activation: str) -> Tensor:
    """One word's vector: every filter at every position, the maximum, then the highway layers in numbers."""
    ids = ids + [0] * max(0, 3 - len(ids))
    letters = [encoder.embed.weight[i] for i in ids]
    features: list[float] = []
    for conv in encoder.filters:
        count, _, width = conv.weight.shape
        for k in range(count):
            positions = []
            for start in range(len(ids) - width + 1):
                total = float(conv.bias[k])
                for offset in range(width):
                    total += float(conv.weight[k, :, offset] @ letters[start + offset])
                positions.append(total)
            features.append(math.tanh(max(positions)) if activation == "tanh" else max(0.0, *positions))
    x = torch.tensor(features, dtype=torch.float64)
    for highway in encoder.highways:
        h = highway.normal_layer.weight @ x + highway.normal_layer.bias
        t = 1 / (1 + torch.exp(-(highway.gate.weight @ x + highway.gate.bias)))
        x = h.clamp(min=0) * t + x * (1 - t)
    return encoder.project.weight @ x + encoder.project.bias


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("characters", [6, 3, 2, 1])
@torch.no_grad()
def test_encoder_equals_the_equation(activation: str, characters: int, same: Same) -> None:
    """Each filter's largest answer, activated, goes through highway layers and a projection.

    A word shorter than the widest filter is padded to its width.
    """
    encoder = random_encoder(activation)
    ids = torch.randint(0, 11, (2, 3, characters))
    expected = torch.stack([word_by_loops(encoder, word.tolist(), activation) for word in ids.flatten(0, 1)])
    same(encoder(ids).flatten(0, 1), expected)


@torch.no_grad()
def test_leading_axes_are_arbitrary(same: Same) -> None:
    """A word has the same vector alone, in a text, and in a batch of texts."""
    encoder = random_encoder()
    ids = torch.randint(0, 11, (2, 3, 4, 6))
    got = encoder(ids)
    assert got.shape == (2, 3, 4, 7)
    same(encoder(ids[1]), got[1])
    same(encoder(ids[1, 2, 3]), got[1, 2, 3])
    assert encoder(ids[:0]).shape == (0, 3, 4, 7)


@torch.no_grad()
def test_ids_may_have_any_integer_dtype(same: Same) -> None:
    encoder = random_encoder()
    ids = torch.randint(0, 11, (2, 6))
    for dtype in (torch.int32, torch.int16, torch.uint8):
        same(encoder(ids.to(dtype)), encoder(ids))


@pytest.mark.parametrize("ids", [torch.zeros(2, 6), torch.tensor(3), torch.zeros(2, 0, dtype=torch.int64)])
def test_anything_but_integer_ids_is_refused(ids: Tensor) -> None:
    """Floating point numbers, a single number and words without characters are a ShapeError."""
    with pytest.raises(ShapeError, match="CharacterEncoder: expected integer ids"):
        random_encoder()(ids)


@pytest.mark.parametrize("wrong", [-1, 11])
def test_ids_outside_the_alphabet_are_named(wrong: int) -> None:
    """The ShapeError gives the valid ids."""
    ids = torch.ones(2, 5, 6, dtype=torch.int64)
    ids[1, 2, 3] = wrong
    with pytest.raises(ShapeError, match=f"expected ids 0 to 10, got .*{wrong}"):
        CharacterCnn(small())(ids)


def test_a_new_encoder_has_weights_after_glorot() -> None:
    """Filters and projection. The highway layers are scaled, so H is drawn after He."""
    encoder = CharacterEncoder(11, 40, [(3, 90)], 70, highways=1)
    expect_glorot(encoder.filters[0].weight, inputs=40 * 3, units=90 * 3)
    expect_glorot(encoder.project.weight, inputs=90, units=70)
    expect_he(encoder.highways[0].normal_layer.weight, inputs=90)


def test_padding_has_no_gradient() -> None:
    """Its embedding is zero."""
    encoder = CharacterEncoder(11, 4, [(2, 5)], 7)
    assert not encoder.embed.weight[0].any()
    encoder(torch.randint(0, 11, (20, 6))).square().sum().backward()
    assert encoder.embed.weight.grad is not None
    assert not encoder.embed.weight.grad[0].any()
    assert encoder.embed.weight.grad[1:].any()


@torch.no_grad()
def test_network_averages_nonempty_words(same: Same) -> None:
    """The mean counts words with at least one character, at any position."""
    net = CharacterCnn(small()).double().eval()
    ids = torch.randint(1, 11, (1, 5, 6))
    ids[0, 1] = ids[0, 4] = 0
    ids[0, 2, 1:] = 0
    vectors = [net.words(ids[0, place]) for place in (0, 2, 3)]
    same(net(ids)[0], net.output((vectors[0] + vectors[1] + vectors[2]) / 3))


@torch.no_grad()
def test_padding_words_change_nothing(same: Same) -> None:
    """A text filled up with padding words gives the same logits; texts may have any number of words."""
    net = CharacterCnn(small()).eval()
    ids = torch.randint(1, 11, (2, 5, 6))
    same(net(torch.cat([ids, torch.zeros(2, 4, 6, dtype=torch.int64)], dim=1)), net(ids))


@torch.no_grad()
def test_an_empty_text_gives_the_bias(same: Same) -> None:
    """A text of padding alone gives the output's bias, without a division by zero."""
    net = CharacterCnn(small()).eval()
    nn.init.normal_(net.output.bias)
    same(net(torch.zeros(1, 5, 6, dtype=torch.int64))[0], net.output.bias)


@pytest.mark.parametrize(("activation", "kind"), [("tanh", nn.Tanh), ("relu", nn.ReLU)])
def test_activation_is_that_of_the_config(activation: str, kind: type) -> None:
    assert isinstance(CharacterCnn(small(activation=activation)).words.activation, kind)


def test_rows_of_another_shape_or_dtype_are_refused() -> None:
    """The number of characters is fixed by the config, and rows are integers."""
    net = CharacterCnn(small())
    with pytest.raises(ShapeError, match=r"\[batch, \*, 6\]"):
        net(torch.zeros(2, 5, 7, dtype=torch.int64))
    with pytest.raises(ShapeError, match="integer ids"):
        net(torch.zeros(2, 5, 6))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("inputs", (5,)),
        ("alphabet", 1),
        ("embedding", 0),
        ("projection", 0),
        ("filter_widths", ()),
        ("filter_widths", (1, 0, 3)),
        ("filter_counts", (3, 4, 0)),
        ("filter_counts", (3, 4)),
        ("activation", "maxout(2)"),
        ("highways", -1),
        ("dropout", 1.0),
    ],
)
def test_invalid_settings_are_refused(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{setting}:"):
        small(**{setting: value})


def test_config_is_fitted_to_other_texts() -> None:
    """The alphabet follows the data if it is known, and otherwise stays."""
    assert small().for_data((9, 8), 2, 40) == small(inputs=(9, 8), classes=2, alphabet=40)
    assert small().for_data((9, 8), 2) == small(inputs=(9, 8), classes=2)


def test_encoder_checks_its_own_settings() -> None:
    """The layer itself refuses what the config refuses."""
    with pytest.raises(ConfigError, match="filters:"):
        CharacterEncoder(11, 4, [], 7)
    with pytest.raises(ConfigError, match="filters:"):
        CharacterEncoder(11, 4, [(0, 3)], 7)
    with pytest.raises(ConfigError, match="alphabet:"):
        CharacterEncoder(1, 4, [(1, 3)], 7)


@pytest.mark.parametrize("highways", [0, 2, 3])
def test_gates_are_recorded(highways: int) -> None:
    """The gates are as wide as all filters together, and as closed as their bias says."""
    net = CharacterCnn(small(highways=highways, gate_bias=-5.0)).eval()
    with record_gates(net) as recordings:
        net(torch.randint(1, 11, (2, 5, 6)))
    assert len(recordings) == highways
    for recording in recordings.values():
        assert recording.transform_gates[0].shape == (2 * 5, 3 + 4 + 5)
        assert recording.transform_gates[0].mean() < 0.1


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_gradient_reaches_every_parameter(activation: str) -> None:
    net = CharacterCnn(small(activation=activation))
    net(torch.randint(0, 11, (8, 5, 6))).square().sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@torch.no_grad()
def test_rows_of_a_batch_are_independent(same: Same) -> None:
    """In eval mode, rows do not influence each other."""
    net = CharacterCnn(small()).eval()
    ids = torch.randint(0, 11, (5, 5, 6))
    same(net(ids), torch.cat([net(row.unsqueeze(0)) for row in ids]))


def test_training_reduces_the_loss() -> None:
    """A few steps on a tiny batch halve the loss."""
    net = CharacterCnn(small(dropout=0.0))
    ids, labels = torch.randint(0, 11, (9, 5, 6)), torch.arange(9) % 3
    losses = losses_in_training(net, ids, labels)
    assert losses[-1] < losses[0] / 2
