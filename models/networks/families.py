"""Registry of the network families: builds a network from its config, and a config from saved values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from turnpike.models.errors import ConfigError
from turnpike.models.networks.base import Net, NetConfig
from turnpike.models.networks.cbhg import CbhgConfig, CbhgNet
from turnpike.models.networks.character_cnn import CharacterCnn, CharacterCnnConfig
from turnpike.models.networks.feedforward import ConvConfig, ConvNet, Mlp, MlpConfig
from turnpike.models.networks.grid_lstm import GridLstm, GridLstmConfig
from turnpike.models.networks.recurrent import HighwayLstm, HighwayLstmConfig, Rhn, RhnConfig
from turnpike.models.networks.transformer import Transformer, TransformerConfig

FAMILIES: dict[type[NetConfig], type[Net]] = {
    MlpConfig: Mlp,
    ConvConfig: ConvNet,
    RhnConfig: Rhn,
    HighwayLstmConfig: HighwayLstm,
    GridLstmConfig: GridLstm,
    TransformerConfig: Transformer,
    CharacterCnnConfig: CharacterCnn,
    CbhgConfig: CbhgNet,
}


def build_network(config: NetConfig) -> Net:
    """Create a network with new weights, drawn from PyTorch's global generator."""
    return FAMILIES[type(config)](config)


def config_from_dict(values: Mapping[str, Any]) -> NetConfig:
    """Return the config for values that `NetConfig.to_dict` wrote; a ConfigError names what does not fit."""
    config_types = {config_type.family: config_type for config_type in FAMILIES}
    family = values.get("family")
    if not isinstance(family, str) or family not in config_types:
        raise ConfigError(f"family: expected one of {', '.join(config_types)}, got {family!r}")
    config_type = config_types[family]
    settings = {name: lists_to_tuples(value) for name, value in values.items() if name != "family"}
    if unknown := settings.keys() - {field.name for field in fields(config_type)}:
        raise ConfigError(f"{family}: has no setting called {min(unknown)!r}")
    for name, value in settings.items():
        expect_setting_type(config_type, name, value)
    try:
        return config_type(**settings)
    except TypeError as error:
        raise ConfigError(f"{family}: settings are missing: {error}") from error


def expect_setting_type(config_type: type[NetConfig], name: str, value: Any) -> None:
    """Raise a ConfigError unless the value has the type that the setting is declared with."""
    declared = get_type_hints(config_type)[name]
    if not _matches_type(value, declared):
        raise ConfigError(f"{config_type.family}: {name}: expected {_type_in_words(declared)}, got {value!r}")


def _matches_type(value: Any, declared: Any) -> bool:
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        return any(_matches_type(value, alternative) for alternative in arguments)
    if origin is Literal:
        return isinstance(value, str)  # the config itself checks the choice and lists the valid ones
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        types = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return len(value) == len(types) and all(map(_matches_type, value, types))
    if isinstance(value, bool) and declared is not bool:
        return False  # to Python, a bool is also an int
    return isinstance(value, (int, float) if declared is float else declared)


def _type_in_words(declared: Any) -> str:
    if get_origin(declared) in (Union, UnionType):
        return " or ".join(map(_type_in_words, get_args(declared)))
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", NoneType: "null"}
    other = "a word" if get_origin(declared) is Literal else "a list like those of the presets"
    return words.get(declared, other)


def lists_to_tuples(value: Any) -> Any:
    """Turn lists from JSON into tuples, which configs hold because they cannot change."""
    return tuple(lists_to_tuples(item) for item in value) if isinstance(value, list) else value
