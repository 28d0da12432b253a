"""The families of networks by name: from a config, or the plain values kept in a checkpoint, to a net."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from models.attention import Transformer, TransformerConfig
from models.cbhg import CbhgConfig, CbhgNet
from models.characters import Characters, CharactersConfig
from models.errors import ConfigError
from models.grid_lstm import GridLstm, GridLstmConfig
from models.net import Net, NetConfig
from models.networks import ConvConfig, ConvNet, Mlp, MlpConfig
from models.recurrent import HighwayLstm, HighwayLstmConfig, Rhn, RhnConfig

FAMILIES: dict[type[NetConfig], type[Net]] = {
    MlpConfig: Mlp,
    ConvConfig: ConvNet,
    RhnConfig: Rhn,
    HighwayLstmConfig: HighwayLstm,
    GridLstmConfig: GridLstm,
    TransformerConfig: Transformer,
    CharactersConfig: Characters,
    CbhgConfig: CbhgNet,
}


def build(config: NetConfig) -> Net:
    """A fresh network, its weights drawn from PyTorch's generator."""
    return FAMILIES[type(config)](config)


def config_from_dict(values: Mapping[str, Any]) -> NetConfig:
    """The config that `NetConfig.to_dict` made these values of."""
    named = {config.family: config for config in FAMILIES}
    family = values.get("family")
    if not isinstance(family, str) or family not in named:
        raise ConfigError(f"family: expected one of {', '.join(named)}, got {family!r}")
    config = named[family]
    given = {name: _tuples(value) for name, value in values.items() if name != "family"}
    if strange := given.keys() - {field.name for field in fields(config)}:
        raise ConfigError(f"{family}: has no setting called {min(strange)!r}")
    try:
        return config(**given)
    except TypeError as error:
        raise ConfigError(f"{family}: settings are missing or of the wrong kind: {error}") from error


def _tuples(value: Any) -> Any:
    """JSON knows lists only; configs hold tuples, which cannot change."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
