"""Configs of all families: as JSON, and as networks."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
import torch

from turnpike.models.errors import ConfigError
from turnpike.models.networks.base import NetConfig
from turnpike.models.networks.cbhg import CbhgConfig
from turnpike.models.networks.character_cnn import CharacterCnnConfig
from turnpike.models.networks.families import FAMILIES, build_network, config_from_dict
from turnpike.models.networks.feedforward import ConvConfig, MlpConfig
from turnpike.models.networks.grid_lstm import GridLstmConfig
from turnpike.models.networks.recurrent import HighwayLstmConfig, RhnConfig
from turnpike.models.networks.transformer import TransformerConfig
from turnpike.models.training.presets import PRESETS

CONFIGS: list[NetConfig] = [
    MlpConfig(inputs=(6,), classes=3, width=5, layers=2, kind="plain", gate_bias=None, scaling="unit"),
    ConvConfig(inputs=(1, 8, 8), classes=3, stages=((4, 1), (6, 2)), dropout=(0.0, 0.1, 0.2), kernel=5),
    RhnConfig(inputs=(4, 2), classes=3, carry="independent"),
    HighwayLstmConfig(inputs=(4, 2), classes=3, depth_bias=-0.5),
    GridLstmConfig(inputs=(1, 8, 8), classes=3, dimensions=3, patch=2, tied=False),
    TransformerConfig(inputs=(4, 2), classes=3, join="residual"),
    CharacterCnnConfig(inputs=(2, 5), classes=3, filter_widths=(1, 2), filter_counts=(3, 4)),
    CbhgConfig(inputs=(4, 2), classes=3, bank=2),
]


def test_every_family_has_a_test_config() -> None:
    """Every family must have a config in this list, and family names differ."""
    assert {type(config) for config in CONFIGS} == FAMILIES.keys()
    assert len({config.family for config in FAMILIES}) == len(FAMILIES)


@pytest.mark.parametrize(
    "config", [*CONFIGS, *(preset.config for preset in PRESETS.values())], ids=lambda config: config.family
)
def test_a_config_survives_json(config: NetConfig) -> None:
    """Same class and fields; tuples are tuples again. Columns are only saved for tables that have them."""
    values = config.to_dict()
    names = [field.name for field in fields(config) if field.name != "columns" or config.columns]
    assert list(values) == ["family", *names]
    back = config_from_dict(json.loads(json.dumps(values)))
    assert type(back) is type(config)
    assert back == config
    assert back.to_dict() == values
    assert hash(back) == hash(config)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.family)
def test_a_config_builds_its_network(config: NetConfig) -> None:
    """The network is the family's, keeps its config, and draws from PyTorch's generator alone."""
    torch.manual_seed(4)
    net = build_network(config)
    assert type(net) is FAMILIES[type(config)]
    assert net.config is config
    torch.manual_seed(4)
    again = build_network(config).state_dict()
    assert again.keys() == net.state_dict().keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in net.state_dict().items())


MLP = {"family": "mlp", "inputs": [6], "classes": 3, "width": 5, "layers": 2}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "lstm"}, "family: expected one of mlp, conv, "),
        ({"family": None}, "family: expected one of mlp, conv, "),
        ({"family": ["mlp"]}, "family: expected one of mlp, conv, "),
        ({"depth": 3, "wide": 1}, "mlp: has no setting called 'depth'"),
        ({"width": None}, "mlp: width: expected a whole number, got None"),
        ({"inputs": 6}, "mlp: inputs: expected a list like those of the presets, got 6"),
        ({"inputs": [6, 1.5]}, "mlp: inputs: expected a list"),
        ({"width": "5"}, "mlp: width: expected a whole number, got '5'"),
        ({"width": 5.0}, "mlp: width: expected a whole number, got 5.0"),
        ({"layers": True}, "mlp: layers: expected a whole number, got True"),
        ({"batch_norm": "False"}, "mlp: batch_norm: expected true or false, got 'False'"),
        ({"batch_norm": 1}, "mlp: batch_norm: expected true or false, got 1"),
        ({"gate_bias": "None"}, "mlp: gate_bias: expected a number or null, got 'None'"),
        ({"carry": 3}, "mlp: carry: expected a word, got 3"),
        ({"width": 0}, "width: expected 1 or more, got 0"),
    ],
)
def test_invalid_config_values_are_refused(changes: dict[str, Any], message: str) -> None:
    """Unknown families and settings, and values of a wrong type or without meaning, are named."""
    assert config_from_dict(MLP) == MlpConfig(inputs=(6,), classes=3, width=5, layers=2)
    with pytest.raises(ConfigError) as caught:
        config_from_dict({**MLP, **changes})
    assert str(caught.value).startswith(message)
    if "family" in changes:
        assert str(caught.value).endswith(f"got {changes['family']!r}")
        assert all(config.family in str(caught.value) for config in FAMILIES)


@pytest.mark.parametrize("missing", MLP)
def test_a_missing_setting_is_named(missing: str) -> None:
    """A setting without a default is required."""
    with pytest.raises(ConfigError, match=missing):
        config_from_dict({name: value for name, value in MLP.items() if name != missing})
