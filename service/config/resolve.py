"""Collects settings: flags override the environment, which overrides a TOML file."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from turnpike.common.similar_names import similar_name
from turnpike.service.artifact.manifest import read_manifest
from turnpike.service.config.auto_workers import MEASURED_TABLE, auto_settings
from turnpike.service.config.settings import KEYWORDS, PREFIX, SECRETS, Settings
from turnpike.service.errors import ModelFileError, SettingError
from turnpike.service.repository.location import locate

# names the file of settings, as --config does
CONFIG_VARIABLE = "TURNPIKE_CONFIG"
# variables with our prefix that are not settings of the service
OTHER_VARIABLES = frozenset({"TURNPIKE_DATA", "TURNPIKE_CACHE", CONFIG_VARIABLE})
# variables that Kubernetes sets in every container for Services called turnpike or turnpike-something
KUBERNETES_VARIABLE = re.compile(
    PREFIX + r"(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)", re.ASCII
)
FLAG = re.compile(r"--[a-z][a-z-]*")


@dataclass(frozen=True)
class ResolvedSettings:
    """The settings, and for each name where its value came from. Names without an origin have their default.

    `warning` says why the settings measured for `--workers auto` were not used, if they were not.
    """

    settings: Settings
    origins: Mapping[str, str]
    warning: str = ""


def resolve(
    flags: Mapping[str, Any],
    config: Path | None = None,
    models: str | None = None,
    *,
    spelling: Callable[[str], str] | None = None,
) -> ResolvedSettings:
    """Every setting from its first source.

    Args:
        flags: Settings of the command line, by name.
        config: A TOML file, used instead of the one that the environment names.
        models: The argument MODELS of the command line, another spelling of --models.
        spelling: How errors write the name of a setting in `flags`; by default as a flag.

    Raises:
        SettingError: A value is invalid. The message names the source, the value and the valid values.
    """
    # collect
    config_origin = "--config"
    if config is None and CONFIG_VARIABLE in os.environ:
        config_origin, config = CONFIG_VARIABLE, Path(os.environ[CONFIG_VARIABLE])
    from_file = {} if config is None else read_config(config, config_origin)
    from_variables = read_environment()
    origins = {name: f"{config}: {name}" for name in from_file}
    origins |= {name: variable_of(name) for name in from_variables}
    spelling = spelling or flag_of
    origins |= {name: spelling(name) for name in flags}
    values = {**from_file, **from_variables, **flags}
    if models is not None:
        if "models" in flags:
            raise SettingError(f"MODELS: expected one place, got {models!r} and --models {flags['models']!r}")
        origins["models"], values["models"] = "MODELS", models
    if values.get("workers") != KEYWORDS["workers"]:
        return ResolvedSettings(validate(values, origins, spelling), origins)

    # replace `workers = auto`; what auto sets beside workers gives way to values from any source
    del values["workers"]
    auto = auto_settings(validate(values, origins, spelling))
    workers_origin = {"workers": f"{origins['workers']} auto: {auto.origin}"}
    origins = dict.fromkeys(auto.settings, auto.origin) | origins | workers_origin
    settings = validate({**auto.settings, **values}, origins, spelling)
    return ResolvedSettings(settings, origins, auto.warning)


def validate(
    values: Mapping[str, Any], origins: Mapping[str, str], spelling: Callable[[str], str]
) -> Settings:
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise SettingError(error_message(error, origins, spelling)) from error
    if isinstance(settings.models, Path):
        _expect_models(settings.models, origins["models"])
    return settings


def _expect_models(path: Path, origin: str) -> None:
    """Raise a SettingError for what can never be served; and for an empty folder as the argument."""
    try:
        location = locate(path)
    except SettingError as error:
        raise SettingError(f"{origin}: {error}") from error
    if location.file is not None:
        try:
            _expect_onnx(location.file)
        except ModelFileError as error:
            raise SettingError(
                f"{origin}: expected an .onnx file, got {str(path)!r}: {error.public_message}"
            ) from error
    elif origin == "MODELS" and not any(location.root.iterdir()):
        raise SettingError(
            f"MODELS: expected a model, got the empty folder {str(path)!r}: export one to it first, or wait "
            f"for one with --models {path}"
        )


def _expect_onnx(path: Path) -> None:
    """Raise a ModelFileError unless a file is an ONNX model with a valid manifest or none."""
    with path.open("rb") as file:
        # an empty file cannot be mapped
        is_empty = not path.stat().st_size
        read_manifest(b"" if is_empty else memoryview(mmap(file.fileno(), 0, access=ACCESS_READ)), str(path))


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    return PREFIX + name.upper()


def read_config(config: Path, origin: str) -> dict[str, Any]:
    """The values of a TOML file, with names and types checked. `origin` says which option named the file."""
    try:
        values = tomllib.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"{origin}: expected a TOML file that can be read, got {str(config)!r}") from error
    except ValueError as error:
        raise SettingError(f"{config}: expected TOML, got something else: {error}") from error
    # in a file that `turnpike tune` wrote: the machine that the settings were measured on
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
    """Whether a TOML value has the type of a setting; pydantic would also parse strings."""
    if kind is bool or kind is int:
        return type(value) is kind
    if kind is float:
        return type(value) in (int, float)
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, str)


def read_environment() -> dict[str, Any]:
    """The settings of the environment, by name. An unknown variable with our prefix is likely misspelt."""
    names = {variable_of(name): name for name in Settings.model_fields}
    values = {}
    for variable, value in os.environ.items():
        upper = variable.upper()
        if upper in names:
            values[names[upper]] = value
        elif (
            upper.startswith(PREFIX)
            and upper not in OTHER_VARIABLES
            and not is_kubernetes_variable(upper, value)
        ):
            raise SettingError(
                f"{variable}: {unknown_setting(upper.removeprefix(PREFIX).lower(), variable_of)}"
            )
    # TURNPIKE_PORT is also what Kubernetes sets for a Service called turnpike
    if str(values.get("port", "")).startswith("tcp://"):
        del values["port"]
    return values


def is_kubernetes_variable(variable: str, value: str) -> bool:
    return bool(KUBERNETES_VARIABLE.fullmatch(variable)) or (variable.endswith("_PORT") and "://" in value)


def unknown_setting(name: str, spelling: Callable[[str], str] = str) -> str:
    """Error text for an unknown setting. `spelling` writes the suggested name as its source does."""
    similar = similar_name(name, list(Settings.model_fields))
    return "there is no such setting" + (f"; did you mean {spelling(similar)}?" if similar else "")


def error_message(
    error: ValidationError, origins: Mapping[str, str], spelling: Callable[[str], str] = flag_of
) -> str:
    """One sentence on the first error: where the value came from, what was expected, and what came."""
    first = error.errors()[0]
    our_error = first.get("ctx", {}).get("error")
    if not first["loc"]:
        # on a combination of settings, which `Settings` calls by their flags
        names = {flag_of(name): name for name in Settings.model_fields}

        def spelled(flag: re.Match[str]) -> str:
            name = names.get(flag[0])
            return flag[0] if name is None else origins.get(name, spelling(name))

        return FLAG.sub(spelled, str(our_error))
    name = str(first["loc"][0])
    if our_error is not None:
        return f"{origins[name]}: {our_error}"
    return f"{origins[name]}: {expectation(name, first['input'])}"


def expectation(name: str, value: Any) -> str:
    got = "something else" if name in SECRETS else repr(value)
    return f"expected {valid_values(Settings.model_fields[name])}{keyword_suffix(name)}, got {got}"


def keyword_suffix(name: str) -> str:
    return f" or {KEYWORDS[name]}" if name in KEYWORDS else ""


def valid_values(field: FieldInfo) -> str:
    """The valid values of a setting, in words."""
    kind: Any = field.annotation
    if type(None) in get_args(kind):
        # a setting that may be left out
        kind = next(member for member in get_args(kind) if member is not type(None))
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if kind is bool:
        return "true or false"
    if kind is int or kind is float:
        number = "a whole number" if kind is int else "a number"
        low = next((f" from {rule.ge}" for rule in field.metadata if isinstance(rule, Ge)), "")
        above = next((f" above {rule.gt}" for rule in field.metadata if isinstance(rule, Gt)), "")
        high = next((f" to {rule.le}" for rule in field.metadata if isinstance(rule, Le)), "")
        return number + low + above + high
    return "a list of strings" if get_origin(kind) is tuple else "a string"


def settings_as_toml(resolved: ResolvedSettings) -> str:
    """The settings as TOML that can be read back, with their origins as comments and without secrets."""
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
    # a basic string of TOML is a string of JSON, except that TOML escapes DEL
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
