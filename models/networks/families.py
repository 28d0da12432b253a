"""The families of networks by name: from a config, or the plain values kept in a checkpoint, to a net."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from models.errors import ConfigError
from models.networks.base import Net, NetConfig
from models.networks.cbhg import CbhgConfig, CbhgNet
from models.networks.character_cnn import CharacterCnn, CharacterCnnConfig
from models.networks.feedforward import ConvConfig, ConvNet, Mlp, MlpConfig
from models.networks.grid_lstm import GridLstm, GridLstmConfig
from models.networks.recurrent import HighwayLstm, HighwayLstmConfig, Rhn, RhnConfig
from models.networks.transformer import Transformer, TransformerConfig

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
    """A fresh network, its weights drawn from PyTorch's generator."""
    return FAMILIES[type(config)](config)


def config_from_dict(values: Mapping[str, Any]) -> NetConfig:
    """The config that `NetConfig.to_dict` made these values of."""
    named = {config.family: config for config in FAMILIES}
    family = values.get("family")
    if not isinstance(family, str) or family not in named:
        raise ConfigError(f"family: expected one of {', '.join(named)}, got {family!r}")
    config = named[family]
    given = {name: lists_to_tuples(value) for name, value in values.items() if name != "family"}
    if strange := given.keys() - {field.name for field in fields(config)}:
        raise ConfigError(f"{family}: has no setting called {min(strange)!r}")
    for name, value in given.items():
        expect_setting_type(config, name, value)
    try:
        return config(**given)
    except TypeError as error:
        raise ConfigError(f"{family}: settings are missing: {error}") from error


def expect_setting_type(config: type[NetConfig], name: str, value: Any) -> None:
    """Stop with a ConfigError unless the value is of the kind that the setting is declared with."""
    kind = get_type_hints(config)[name]
    if not _matches_type(value, kind):
        raise ConfigError(f"{config.family}: {name}: expected {_type_in_words(kind)}, got {value!r}")


def _matches_type(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_matches_type(value, one) for one in inner)
    if origin is Literal:
        return isinstance(value, str)  # which one, the config itself says best
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(kinds) and all(map(_matches_type, value, kinds))
    if isinstance(value, bool) and kind is not bool:
        return False  # which Python counts among the integers
    return isinstance(value, (int, float) if kind is float else kind)


def _type_in_words(kind: Any) -> str:
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_type_in_words(one) for one in get_args(kind))
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", NoneType: "null"}
    return names.get(kind, "a word" if get_origin(kind) is Literal else "a list like those of the presets")


def lists_to_tuples(value: Any) -> Any:
    """JSON knows lists only; configs hold tuples, which cannot change."""
    return tuple(lists_to_tuples(item) for item in value) if isinstance(value, list) else value
