"""Where settings come from: flags before the environment, before a TOML file, before the defaults."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from service.config.auto_workers import MEASURED_TABLE, auto_settings
from service.config.settings import KEYWORDS, PREFIX, SECRETS, Settings
from service.errors import SettingError

CONFIG_VARIABLE = "TURNPIKE_CONFIG"
# what other commands read
OTHER_VARIABLES = frozenset({"TURNPIKE_DATA", "TURNPIKE_CACHE", CONFIG_VARIABLE})
# what Kubernetes sets in every container beside a Service called turnpike, or turnpike-something
KUBERNETES_VARIABLE = re.compile(
    PREFIX + r"(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)", re.ASCII
)


@dataclass(frozen=True)
class ResolvedSettings:
    """The settings, and by name where each value was found; a name without an origin has its default.

    `warning` says why what was measured for `--workers auto` was not taken, if it was not.
    """

    settings: Settings
    origins: Mapping[str, str]
    warning: str = ""


def resolve(flags: Mapping[str, Any], config: Path | None = None) -> ResolvedSettings:
    """Every setting from its first source; a SettingError names the source, the value and the valid ones.

    `flags` are by field, those that were given; `config` goes before the file that the environment names.
    """
    said = "--config"
    if config is None and CONFIG_VARIABLE in os.environ:
        said, config = CONFIG_VARIABLE, Path(os.environ[CONFIG_VARIABLE])
    written = {} if config is None else read_config(config, said)
    environment = read_environment()
    origins = {name: f"{config}: {name}" for name in written}
    origins |= {name: variable_of(name) for name in environment}
    origins |= {name: flag_of(name) for name in flags}
    given = {**written, **environment, **flags}
    if given.get("workers") != KEYWORDS["workers"]:
        return ResolvedSettings(validate(given, origins), origins)
    del given["workers"]
    found = auto_settings(validate(given, origins))
    chosen = {**found.settings, **given}
    chose = {"workers": f"{origins['workers']} auto: {found.origin}"}
    origins = dict.fromkeys(found.settings, found.origin) | origins | chose
    return ResolvedSettings(validate(chosen, origins), origins, found.warning)


def validate(given: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    """The settings, checked."""
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingError(error_message(error, origins)) from error


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    return PREFIX + name.upper()


def read_config(config: Path, said: str) -> dict[str, Any]:
    """What a TOML file says, its names checked; `said` is where it was named."""
    try:
        values = tomllib.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"{said}: expected a TOML file that can be read, got {str(config)!r}") from error
    except ValueError as error:
        raise SettingError(f"{config}: expected TOML, got something else: {error}") from error
    # what turnpike tune says of the settings that it wrote
    if isinstance(values.get(MEASURED_TABLE), dict):
        del values[MEASURED_TABLE]
    for name in values:
        if name not in Settings.model_fields:
            raise SettingError(f"{config}: {name}: {unknown_setting(name)}")
    for name, value in values.items():
        field = Settings.model_fields[name]
        if not has_type(field.annotation, value) and value != KEYWORDS.get(name):
            raise SettingError(f"{config}: {name}: {expectation(name, value)}")
    return values


def has_type(kind: Any, value: Any) -> bool:
    """Whether a value of TOML is of a setting's type, which elsewhere only a text can be read as."""
    if kind is bool or kind is int:
        return type(value) is kind
    if kind is float:
        return type(value) in (int, float)
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return isinstance(value, str)


def read_environment() -> dict[str, Any]:
    """The variables that are settings, by field; one that is nothing of ours is most likely misspelt."""
    known = {variable_of(name): name for name in Settings.model_fields}
    values = {}
    for variable, value in os.environ.items():
        name = variable.upper()
        if name in known:
            values[known[name]] = value
        elif (
            name.startswith(PREFIX)
            and name not in OTHER_VARIABLES
            and not is_kubernetes_variable(name, value)
        ):
            raise SettingError(
                f"{variable}: {unknown_setting(name.removeprefix(PREFIX).lower(), variable_of)}"
            )
    # what Kubernetes injects for a Service called turnpike
    if str(values.get("port", "")).startswith("tcp://"):
        del values["port"]
    return values


def is_kubernetes_variable(variable: str, value: str) -> bool:
    """Whether Kubernetes set it."""
    return bool(KUBERNETES_VARIABLE.fullmatch(variable)) or (variable.endswith("_PORT") and "://" in value)


def unknown_setting(name: str, spelt: Callable[[str], str] = str) -> str:
    """That there is no such setting, and which one may be meant, as it is spelt there."""
    near = difflib.get_close_matches(name, Settings.model_fields, 1)
    return "there is no such setting" + (f"; did you mean {spelt(near[0])}?" if near else "")


def error_message(error: ValidationError, origins: Mapping[str, str]) -> str:
    """The first thing that is wrong: where it was said, what was expected, and what came."""
    first = error.errors()[0]
    own = first.get("ctx", {}).get("error")
    if not first["loc"]:
        return str(own)
    name = str(first["loc"][0])
    if own is not None:
        return f"{origins[name]}: {own}"
    return f"{origins[name]}: {expectation(name, first['input'])}"


def expectation(name: str, value: Any) -> str:
    got = "something else" if name in SECRETS else repr(value)
    return f"expected {valid_values(Settings.model_fields[name])}{keyword_suffix(name)}, got {got}"


def keyword_suffix(name: str) -> str:
    """The word that a number may be instead."""
    return f" or {KEYWORDS[name]}" if name in KEYWORDS else ""


def valid_values(field: FieldInfo) -> str:
    """What a field may be, in words."""
    kind = field.annotation
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if kind is bool:
        return "true or false"
    if kind is int or kind is float:
        number = "a whole number" if kind is int else "a number"
        least = next((f" from {rule.ge}" for rule in field.metadata if isinstance(rule, Ge)), "")
        above = next((f" above {rule.gt}" for rule in field.metadata if isinstance(rule, Gt)), "")
        most = next((f" to {rule.le}" for rule in field.metadata if isinstance(rule, Le)), "")
        return number + least + above + most
    return "a list of texts" if get_origin(kind) is tuple else "a text"


def settings_as_toml(resolved: ResolvedSettings) -> str:
    """The settings as TOML that can be read back, each with where it came from; secrets stay unsaid."""
    lines = []
    for name in Settings.model_fields:
        value = getattr(resolved.settings, name)
        origin = resolved.origins.get(name, "default")
        if name in SECRETS and value:
            lines.append(f"# {name} is set and not shown  # {origin}")
        elif value is None:
            lines.append(f"# {name} is not set")
        else:
            lines.append(f"{name} = {toml_value(value)}  # {origin}")
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    # a basic string of TOML is one of JSON, but for DEL
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
